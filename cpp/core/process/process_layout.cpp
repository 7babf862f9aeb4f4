#include "core/process/process_layout.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/process/slot_ring.h"

namespace stepmill {

// ---- seals -------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;

// Both steps are invertible, so two different words never lead to the same one.
std::uint64_t mix(std::uint64_t state, std::uint64_t word) { return std::rotl((state ^ word) * kOdd, 29); }

std::uint64_t load(const std::byte* from, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

}  // namespace

std::uint64_t seal_of(std::span<const std::byte> bytes, std::int32_t env, std::uint32_t epoch) {
  std::uint64_t lanes[4];  // which a processor works on at the same time
  for (std::size_t i = 0; i < 4; ++i)
    lanes[i] = mix(i + 1, static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint32_t>(env));
  const std::byte* from = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 32; left -= 32, from += 32)
    for (std::size_t i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], load(from + 8 * i, 8));
  for (std::size_t i = 0; left > 0; ++i) {
    const std::size_t some = left < 8 ? left : 8;
    lanes[i] = mix(lanes[i], load(from, some));
    from += some;
    left -= some;
  }
  std::uint64_t seal = bytes.size();
  for (const std::uint64_t lane : lanes) seal = mix(seal, lane);
  return seal;
}

// ---- measurements ------------------------------------------------------------------------------

void StepTimes::add(std::uint64_t ns) {
  const int octave = std::bit_width(ns | 1) - 1;
  const int quarter = octave >= 2 ? static_cast<int>(ns >> (octave - 2) & 3) : 0;
  count[std::clamp((octave - kFirstOctave) * 4 + quarter, 0, kBuckets - 1)] += 1;
}

double StepTimes::upper_bound_ns(int bucket) {
  return std::ldexp(1.0 + (bucket % 4 + 1) / 4.0, kFirstOctave + bucket / 4);
}

// ---- the layout --------------------------------------------------------------------------------

ProcessTables::ProcessTables(const EnvSpec& spec, const TableOptions& table, std::int32_t batch_size,
                             const ProcessOptions& options) {
  const std::int32_t num_envs = table.num_envs;
  words_ = add(sizeof(std::uint64_t), num_envs);
  orders_ = add(sizeof(Order), num_envs);
  reports_ = add(sizeof(Report), num_envs);
  begun_ = add(sizeof(Begun), num_envs);
  times_ = add(sizeof(StepTimes), num_envs);
  cancelled_ = add(sizeof(std::atomic<std::uint32_t>), num_envs);
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

void ProcessTables::keep_last(std::int32_t env, std::uint32_t copy, const sm_shared& shared, const sm_columns& columns,
                              std::int64_t row) const {
  std::byte* to = last_observation(env, copy);
  for (int leaf = 0; leaf < shared.observation_leaves; ++leaf) {
    const std::int64_t bytes = shared.observation_bytes[leaf] * shared.max_num_players;
    std::memcpy(to, static_cast<const std::byte*>(columns.observation[leaf]) + row * bytes,
                static_cast<std::size_t>(bytes));
    to += bytes;
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);  // a killed process has run a prefix of its program
  report(env).last_good = copy;
}

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace stepmill
