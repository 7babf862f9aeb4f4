#include "core/process_layout.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/slot_ring.h"

namespace stepmill {

void StepTimes::add(std::uint64_t ns) {
  const int octave = std::bit_width(ns | 1) - 1;
  const int quarter = octave >= 2 ? static_cast<int>(ns >> (octave - 2) & 3) : 0;
  count[std::clamp((octave - kFirstOctave) * 4 + quarter, 0, kBuckets - 1)] += 1;
}

double StepTimes::upper_bound_ns(int bucket) {
  return std::ldexp(1.0 + (bucket % 4 + 1) / 4.0, kFirstOctave + bucket / 4);
}

ProcessTables::ProcessTables(const EnvSpec& spec, const TableOptions& table, std::int32_t batch_size,
                             const ProcessOptions& options) {
  const std::int32_t num_envs = table.num_envs;
  words_ = add(sizeof(std::uint64_t), num_envs);
  orders_ = add(sizeof(Order), num_envs);
  reports_ = add(sizeof(Report), num_envs);
  begun_ = add(sizeof(Begun), num_envs);
  times_ = add(sizeof(StepTimes), num_envs);
  bytes_ = align_up(bytes_, alignof(WorkerBlock));
  workers_ = add(sizeof(WorkerBlock), options.num_workers);
  ring_ = add(static_cast<std::int64_t>(SlotRing::bytes(num_envs, batch_size)), 1);
  if (options.keep_last_observation) {
    std::int64_t row = 0;
    for (const Leaf& leaf : spec.observation) row += leaf.row_bytes() * spec.max_num_players;
    last_bytes_ = std::max<std::size_t>(column_bytes(row, 1), kCacheLine);
    last_ = add(static_cast<std::int64_t>(last_bytes_) * 2, num_envs);
  }
  if (table.autoreset == SM_SAME_STEP) {
    ending_bytes_ = align_up(BatchLayout(spec, 1, true, table.reward_is_float32).bytes(), kCacheLine);
    ending_ = add(static_cast<std::int64_t>(ending_bytes_), num_envs);
  }
}

std::size_t ProcessTables::add(std::int64_t row_bytes, std::int64_t rows) {
  const std::size_t offset = bytes_;
  bytes_ += column_bytes(row_bytes, rows);
  return offset;
}

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace stepmill
