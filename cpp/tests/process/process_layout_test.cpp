#include "core/process/process_layout.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "core/memory/batch_layout.h"
#include "core/process/slot_ring.h"
#include "tests/check.h"
#include "tests/zeroed_memory.h"
#include "tests/obedient_env.h"

namespace stepmill::process_layout_test {

// ---- words -------------------------------------------------------------------------------------

TEST(an_env_word_keeps_its_parts_apart) {
  for (const std::uint32_t epoch : {0u, 1u, 0x12345678u, 0xffffffffu})
    for (const std::uint32_t incarnation : {0u, 1u, 0xabcdefu, 0xffffffu})
      for (const Stage stage :
           {Stage::kRest, Stage::kQueued, Stage::kRunning, Stage::kWriting, Stage::kDone, Stage::kFault}) {
        const EnvWord word = EnvWord::unpack(EnvWord{epoch, incarnation, stage}.pack());
        CHECK(word.epoch == epoch);
        CHECK(word.incarnation == incarnation);
        CHECK(word.stage == stage);
      }
}

TEST(zeroed_memory_is_an_env_at_rest) {
  CHECK(EnvWord::unpack(0).stage == Stage::kRest);
  CHECK(EnvWord{}.pack() == 0u);
}

TEST(a_word_at_another_stage_is_the_same_action) {
  const EnvWord word = EnvWord{7, 3, Stage::kRunning}.at(Stage::kWriting);
  CHECK(word.epoch == 7u);
  CHECK(word.incarnation == 3u);
  CHECK(word.stage == Stage::kWriting);
}

TEST(an_incarnation_beyond_its_bits_spills_into_nothing) {
  const EnvWord word = EnvWord::unpack(EnvWord{9, 0xff000002u, Stage::kDone}.pack());
  CHECK(word.epoch == 9u);
  CHECK(word.incarnation == 2u);
  CHECK(word.stage == Stage::kDone);
}

TEST(begun_holds_a_time_and_what_for) {
  for (const Activity activity :
       {Activity::kStep, Activity::kReset, Activity::kCall, Activity::kResetAfterEnd}) {
    const std::uint64_t now = monotonic_ns(), word = pack_begun(now, activity);
    CHECK((word >> 2) == now);
    CHECK(static_cast<Activity>(word & 3) == activity);
  }
}

TEST(the_clock_never_goes_back) {
  std::uint64_t last = monotonic_ns();
  CHECK(last > 0u);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t now = monotonic_ns();
    CHECK(now >= last);
    last = now;
  }
}

// ---- step times ----------------------------------------------------------------------------------

int bucket_of(std::uint64_t ns) {
  StepTimes times{};
  times.add(ns);
  const auto found = std::find(std::begin(times.count), std::end(times.count), 1u);
  CHECK(std::count(std::begin(times.count), std::end(times.count), 0u) == StepTimes::kBuckets - 1);
  return static_cast<int>(found - std::begin(times.count));
}

TEST(a_time_lies_below_its_bound_and_not_far) {
  for (std::uint64_t ns = 128; ns < std::uint64_t{1} << 38; ns += 1 + ns / 97) {
    const double bound = StepTimes::upper_bound_ns(bucket_of(ns));
    CHECK(static_cast<double>(ns) < bound);
    CHECK(static_cast<double>(ns) * 1.25 >= bound);
  }
}

TEST(the_bounds_grow) {
  for (int i = 1; i < StepTimes::kBuckets; ++i)
    CHECK(StepTimes::upper_bound_ns(i) > StepTimes::upper_bound_ns(i - 1));
}

TEST(times_beyond_the_buckets_count_in_the_last_ones) {
  for (const std::uint64_t ns : {0u, 1u, 5u, 100u, 127u}) CHECK(bucket_of(ns) == 0);
  CHECK(bucket_of(std::uint64_t{1} << 45) == StepTimes::kBuckets - 1);
  CHECK(bucket_of(~std::uint64_t{0}) == StepTimes::kBuckets - 1);
}

// ---- where all of it lies ------------------------------------------------------------------------

constexpr std::int32_t kEnvs = 11, kBatch = 4, kWorkers = 3;

TableOptions options_for(bool same_step) {
  TableOptions table;
  table.num_envs = kEnvs;
  table.autoreset = same_step ? SM_SAME_STEP : SM_NEXT_STEP;
  return table;
}

struct Tables {
  explicit Tables(bool keep_last, bool same_step = false)
      : options{kWorkers, keep_last},
        tables(test::obedient_spec(), options_for(same_step), kBatch, options),
        memory(tables.bytes()) {
    tables.attach(memory);
  }

  // Every part as a range of bytes.
  void each(const std::function<void(std::byte* from, std::size_t bytes)>& visit) const {
    const auto one = [&](auto& thing) { visit(reinterpret_cast<std::byte*>(&thing), sizeof thing); };
    for (std::int32_t env = 0; env < kEnvs; ++env) {
      one(tables.word(env));
      one(tables.order(env));
      one(tables.report(env));
      one(tables.begun(env));
      one(tables.times(env));
      if (std::byte* ending = tables.ending(env))
        visit(ending, BatchLayout(test::obedient_spec(), 1, true, false).bytes());
      if (!tables.keeps_last()) continue;
      std::size_t row = 0;
      for (const Leaf& leaf : test::obedient_spec().observation) row += static_cast<std::size_t>(leaf.row_bytes());
      for (const std::uint32_t copy : {0u, 1u}) visit(tables.last_observation(env, copy), row);
    }
    for (std::int32_t worker = 0; worker < kWorkers; ++worker) one(tables.worker(worker));
    visit(tables.slot_ring(), SlotRing::bytes(kEnvs, kBatch));
  }

  ProcessOptions options;
  ProcessTables tables;
  test::ZeroedMemory memory;
};

TEST(no_two_parts_share_a_byte) {
  for (const bool keep_last : {false, true})
    for (const bool same_step : {false, true}) {
      const Tables t(keep_last, same_step);
      std::vector<int> owner(t.tables.bytes());
      int part = 0;
      t.each([&](std::byte* from, std::size_t bytes) {
        ++part;
        const auto at = static_cast<std::size_t>(from - static_cast<std::byte*>(t.memory));
        CHECK(at + bytes <= t.tables.bytes());
        if (at + bytes > t.tables.bytes()) return;
        for (std::size_t i = at; i < at + bytes; ++i) {
          CHECK(owner[i] == 0);
          owner[i] = part;
        }
      });
      CHECK(part == kEnvs * (5 + 2 * keep_last + same_step) + kWorkers + 1);
    }
}

TEST(every_process_finds_the_same_parts) {
  const Tables a(true), b(true);
  CHECK(a.tables.bytes() == b.tables.bytes());
  for (std::int32_t env = 0; env < kEnvs; ++env) {
    a.tables.word(env) = EnvWord{static_cast<std::uint32_t>(env), 2, Stage::kQueued}.pack();
    a.tables.order(env).mail = static_cast<std::uint64_t>(env) + 100;
    std::memset(a.tables.last_observation(env, 1), env + 1, 8);
  }
  a.tables.worker(2).bell = 77;
  std::memcpy(b.memory, a.memory, a.tables.bytes());
  for (std::int32_t env = 0; env < kEnvs; ++env) {
    CHECK(EnvWord::unpack(b.tables.word(env)).epoch == env);
    CHECK(b.tables.order(env).mail == env + 100);
    CHECK(static_cast<int>(*b.tables.last_observation(env, 1)) == env + 1);
  }
  CHECK(b.tables.worker(2).bell == 77u);
}

// A worker that spins on its block must slow down nobody else.
TEST(a_worker_block_has_its_cache_lines_alone) {
  const Tables t(true);
  for (std::int32_t worker = 0; worker < kWorkers; ++worker)
    CHECK(reinterpret_cast<std::size_t>(&t.tables.worker(worker)) % (2 * kCacheLine) == 0u);
  static_assert(sizeof(WorkerBlock) % (2 * kCacheLine) == 0);
}

TEST(last_observations_take_room_only_where_they_are_kept) {
  const Tables with(true), without(false);
  CHECK(with.tables.keeps_last() == true);
  CHECK(without.tables.keeps_last() == false);
  CHECK(with.tables.bytes() > without.tables.bytes());
}

TEST(an_ending_row_is_kept_only_where_a_reset_follows_in_the_same_step) {
  CHECK(Tables(false, true).tables.ending(0) != nullptr);
  CHECK(Tables(false, false).tables.ending(0) == nullptr);
}

TEST(the_copies_of_a_last_observation_alternate) {
  const Tables t(true);
  for (std::int32_t env = 0; env < kEnvs; ++env) {
    CHECK(t.tables.last_observation(env, 0) != t.tables.last_observation(env, 1));
    for (const std::uint32_t copy : {2u, 3u, 0xffffffffu})
      CHECK(t.tables.last_observation(env, copy) == t.tables.last_observation(env, copy & 1));
  }
}

TEST(whoever_waits_for_rest_is_told_and_nobody_else) {
  WorkerBlock block{};
  announce_rest(block);
  CHECK(block.rested == 0u);
  block.watched = 1;
  announce_rest(block);
  CHECK(block.rested == 1u);
}

}  // namespace stepmill::process_layout_test
