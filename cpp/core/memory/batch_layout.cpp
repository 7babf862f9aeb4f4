#include "core/memory/batch_layout.h"

#include <cstring>
#include <iterator>
#include <limits>
#include <new>

namespace stepmill {

std::size_t column_bytes(std::int64_t row_bytes, std::int64_t rows) {
  // Far below the limit of 64 bits, so that sums of columns cannot overflow either.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4096;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(row_bytes, rows, &bytes) || bytes < 0 || bytes > kMost)
    throw std::bad_alloc();
  return align_up(static_cast<std::size_t>(bytes), kCacheLine);
}

BatchLayout::BatchLayout(const EnvSpec& spec, std::int64_t capacity, bool same_step,
                         bool reward_is_float32)
    : capacity_(capacity), players_(spec.max_num_players) {
  terminated_ = add(1);
  truncated_ = add(1);
  ended_ = add(1);
  env_id_ = add(sizeof(std::int32_t));
  elapsed_step_ = add(sizeof(std::int32_t));
  episode_length_ = add(sizeof(std::int32_t));
  reward_ = add(players_ * (reward_is_float32 ? sizeof(float) : sizeof(double)));
  episode_return_ = add(sizeof(double));
  if (players_ > 1) players_at_ = add(players_);
  for (int round = 0; round < (same_step ? 2 : 1); ++round) {
    for (const Leaf& leaf : spec.observation)
      (round ? final_observation_ : observation_).push_back(add(players_ * leaf.row_bytes()));
    for (const Leaf& leaf : spec.info)
      (round ? final_info_ : info_).push_back(add(leaf.row_bytes()));
    if (!spec.info.empty()) (round ? final_info_present_ : info_present_) = add(std::ssize(spec.info));
  }
}

std::size_t BatchLayout::add(std::int64_t row_bytes) {
  const std::size_t offset = bytes_;
  bytes_ += column_bytes(row_bytes, capacity_);
  columns_.push_back({offset, static_cast<std::size_t>(row_bytes)});
  return offset;
}

void BatchLayout::copy_row(const std::byte* from, std::int64_t from_row, const BatchLayout& layout,
                           std::byte* to, std::int64_t to_row) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::size_t bytes = columns_[i].row_bytes;
    std::memcpy(to + layout.columns_[i].offset + static_cast<std::size_t>(to_row) * bytes,
                from + columns_[i].offset + static_cast<std::size_t>(from_row) * bytes, bytes);
  }
}

void BatchLayout::fill(Columns& columns, std::byte* buffer) const {
  const auto pointers = [&](const std::vector<std::size_t>& offsets, std::vector<void*>& out) {
    out.clear();
    for (auto offset : offsets) out.push_back(buffer + offset);
  };
  pointers(observation_, columns.observation);
  pointers(info_, columns.info);
  pointers(final_observation_, columns.final_observation);
  pointers(final_info_, columns.final_info);
  columns.c.observation = columns.observation.data();
  columns.c.info = columns.info.data();
  const bool has_final = !final_observation_.empty();
  columns.c.final_observation = has_final ? columns.final_observation.data() : nullptr;
  columns.c.final_info = has_final ? columns.final_info.data() : nullptr;
  columns.c.info_present = info_present_ ? reinterpret_cast<std::uint8_t*>(buffer + info_present_) : nullptr;
  columns.c.final_info_present =
      final_info_present_ ? reinterpret_cast<std::uint8_t*>(buffer + final_info_present_) : nullptr;
  columns.c.reward = buffer + reward_;
  columns.c.terminated = reinterpret_cast<std::uint8_t*>(buffer + terminated_);
  columns.c.truncated = reinterpret_cast<std::uint8_t*>(buffer + truncated_);
  columns.c.ended = reinterpret_cast<std::uint8_t*>(buffer + ended_);
  columns.c.env_id = reinterpret_cast<std::int32_t*>(buffer + env_id_);
  columns.c.elapsed_step = reinterpret_cast<std::int32_t*>(buffer + elapsed_step_);
  columns.c.episode_length = reinterpret_cast<std::int32_t*>(buffer + episode_length_);
  columns.c.episode_return = reinterpret_cast<double*>(buffer + episode_return_);
  columns.c.players = players_ > 1 ? reinterpret_cast<std::uint8_t*>(buffer + players_at_) : nullptr;
}

}  // namespace stepmill
