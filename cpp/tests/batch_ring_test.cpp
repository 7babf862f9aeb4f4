#include "core/batch_ring.h"

#include <poll.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/zeroed_memory.h"

namespace stepmill::batch_ring_test {

struct Ring {
  Ring(std::int32_t envs, std::int32_t batch)
      : memory(BatchRing::bytes(envs, batch)),
        ring(memory, envs, batch) {}

  test::ZeroedMemory memory;
  BatchRing ring;
};

TEST(slots_are_given_out_one_after_the_other) {
  Ring r(6, 4);
  r.ring.open(0, 1000);
  r.ring.open(1, 2000);
  auto slots = r.ring.claim(3);
  CHECK(slots.first == 0u);
  CHECK(slots.count == 3u);
  CHECK(slots.offset == 1000u);
  slots = r.ring.claim(3);  // the batch ends first
  CHECK(slots.first == 3u);
  CHECK(slots.count == 1u);
  slots = r.ring.claim(2);
  CHECK(slots.first == 0u);
  CHECK(slots.count == 2u);
  CHECK(slots.offset == 2000u);
  CHECK(slots.place == r.ring.place(1));
}

TEST(sealing_ends_the_open_batch_early) {
  Ring r(6, 4);
  r.ring.open(0, 1000);
  r.ring.open(1, 2000);
  r.ring.claim(3);
  CHECK(r.ring.seal(0) == 3u);
  CHECK(r.ring.seal(0) == 4u);  // no longer open: it counts as full
  CHECK(r.ring.claim(1).offset == 2000u);
  CHECK(r.ring.seal(1) == 1u);
}

TEST(there_is_a_place_for_every_batch_that_can_be_open) {
  for (std::int32_t envs = 1; envs < 40; ++envs)
    for (std::int32_t batch = 1; batch <= envs; ++batch) {
      Ring r(envs, batch);
      // One is sealed early and not received, while the others hold every env.
      CHECK(r.ring.places() >= static_cast<std::uint32_t>((envs + batch - 1) / batch + 1));
      CHECK((r.ring.places() & (r.ring.places() - 1)) == 0u);
    }
}

TEST(every_slot_is_given_out_once_whatever_the_threads) {
  constexpr std::uint32_t kBatch = 7;
  constexpr int kThreads = 4;
  constexpr std::uint32_t kClaims = test::kSanitized ? 5'000 : 100'000;
  Ring r(16, kBatch);
  std::vector<std::vector<std::pair<std::uint64_t, std::uint32_t>>> taken(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> waiting{kThreads};
  for (std::size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      waiting -= 1;
      while (waiting > 0) std::this_thread::yield();
      for (std::uint32_t i = 0; i < kClaims; ++i) {
        const auto slots = r.ring.claim(1 + i % 3);
        for (std::uint32_t k = 0; k < slots.count; ++k) taken[t].push_back({slots.place, slots.first + k});
      }
    });
  for (auto& thread : threads) thread.join();
  // Places come round, so count: every slot of a place is given out equally often, but for the last
  // round.
  std::vector<std::vector<std::uint64_t>> count(r.ring.places(), std::vector<std::uint64_t>(kBatch));
  std::uint64_t total = 0;
  for (const auto& list : taken)
    for (const auto& [place, row] : list) {
      count[place][row] += 1;
      total += 1;
    }
  const std::uint64_t rounds = total / (kBatch * r.ring.places());
  for (const auto& rows : count)
    for (const auto n : rows) CHECK((n == rounds || n == rounds + 1) == true);
}

// As the pool waits: a lost wake-up would last until the alarm.
void wait_for(BatchHeader& header, std::uint32_t want) {
  while (header.done.load(std::memory_order_acquire) < header.rows_for(want)) {
    header.want.store(want, std::memory_order_seq_cst);
    const std::uint32_t done = header.done.load(std::memory_order_seq_cst);
    if (done < header.rows_for(want)) futex_wait(header.done, done, std::chrono::hours(1), false);
    header.want.store(0, std::memory_order_relaxed);
  }
}

// Threads that each write a row when a round begins, and count it.
class Writers {
 public:
  Writers(std::uint32_t count, int rounds, const std::function<void(std::uint32_t)>& commit_row) : rows(count) {
    for (std::uint32_t row = 0; row < count; ++row)
      threads_.emplace_back([this, row, rounds, commit_row] {
        for (int i = 1; i <= rounds; ++i) {
          int seen;
          while ((seen = round_.load()) < i) round_.wait(seen);
          rows[row] = i;
          commit_row(row);
        }
      });
  }
  ~Writers() {
    for (auto& thread : threads_) thread.join();
  }
  void begin(int round) {
    test::gets_on(static_cast<std::uint64_t>(round));
    round_ = round;
    round_.notify_all();
  }

  std::vector<int> rows;  // the round in which each was written last

 private:
  std::atomic<int> round_{0};
  std::vector<std::thread> threads_;
};

TEST(the_last_row_wakes_the_caller) {
  constexpr int kRounds = test::kSanitized ? 2'000 : 50'000;
  constexpr std::uint32_t kRows = 4;
  BatchHeader header{};
  Writers writers(kRows, kRounds, [&](std::uint32_t row) { commit(header, 1, 0, row == 0, false); });
  for (int i = 1; i <= kRounds; ++i) {
    header.done = 0;
    header.any_ended = 0;
    writers.begin(i);
    wait_for(header, kRows);
    for (const int value : writers.rows) CHECK(value == i);
    CHECK(header.any_ended.load() == 1u);
  }
}

// As a caller in an event loop waits: it polls the event, for as long as it takes.
void wait_in_loop(BatchHeader& header, const RowsEvent& event, std::uint32_t want) {
  for (;;) {
    header.want.store(want | BatchHeader::kByEvent, std::memory_order_seq_cst);
    if (header.done.load(std::memory_order_seq_cst) >= header.rows_for(want)) break;
    pollfd one{event.descriptor(), POLLIN, 0};
    CHECK(poll(&one, 1, -1) == 1);
    event.fall_silent();
  }
  header.want.store(0, std::memory_order_relaxed);
}

// The rows of a round are awaited in parts, and each is late for the others: whoever counts one may find the wish for the
// next part, and take that away. A lost wake-up would last until the alarm.
TEST(a_row_rings_for_a_caller_in_an_event_loop) {
  constexpr int kRounds = test::kSanitized ? 2'000 : 50'000;
  constexpr std::uint32_t kRows = 4;
  BatchHeader header{};
  RowsEvent event;
  event.open();
  Writers writers(kRows, kRounds, [&](std::uint32_t) { commit(header, 1, 0, false, false, event.descriptor()); });
  for (int i = 1; i <= kRounds; ++i) {
    header.done = 0;
    writers.begin(i);
    for (const std::uint32_t want : {1u, 3u, kRows}) {
      wait_in_loop(header, event, want);
      CHECK(header.done.load() >= want);
    }
    for (const int value : writers.rows) CHECK(value == i);
  }
}

TEST(rows_ring_once_and_only_if_the_caller_waits_in_a_loop) {
  BatchHeader header{};
  RowsEvent event;
  event.open();
  const auto is_rung = [&] {
    std::uint64_t times = 0;
    return read(event.descriptor(), &times, sizeof times) == static_cast<ssize_t>(sizeof times) ? times : 0;
  };
  commit(header, 1, 0, false, false, event.descriptor());
  CHECK(is_rung() == 0u);
  header.want = 3 | BatchHeader::kByEvent;
  commit(header, 1, 0, false, false, event.descriptor());
  CHECK(is_rung() == 0u);
  for (int i = 0; i < 3; ++i) commit(header, 1, 0, false, false, event.descriptor());
  CHECK(is_rung() == 1u);
  CHECK(header.want.load() == 0u);
}

// ---- waits for steps -----------------------------------------------------------------------------

constexpr std::uint32_t steps(std::uint32_t count) { return count | BatchHeader::kStepsOnly; }

TEST(rows_of_resets_are_none_that_a_wait_for_steps_is_for) {
  BatchHeader header{};
  CHECK(header.rows_for(3) == 3u);
  CHECK(header.rows_for(steps(3)) == 3u);
  commit(header, 5, 2, false, false);
  CHECK(header.done.load() == 5u);
  CHECK(header.rows_for(3) == 3u);
  CHECK(header.rows_for(steps(3)) == 5u);
  commit(header, 1, 1, false, false);
  CHECK(header.rows_for(steps(3)) == 6u);
}

// Else a row would be taken for a step for an instant, and a wait for steps would be over.
TEST(a_row_that_is_counted_is_known_to_be_a_resets) {
  constexpr std::uint32_t kResets = test::kSanitized ? 20'000 : 1'000'000;
  BatchHeader header{};
  std::thread worker([&] {
    for (std::uint32_t i = 0; i < kResets; ++i) commit(header, 1, 1, false, false);
  });
  for (std::uint32_t done = 0; done < kResets;) {
    done = header.done.load(std::memory_order_acquire);
    CHECK(header.rows_for(steps(1)) > done);
  }
  worker.join();
}

// Resets are counted around the steps that are awaited, and any of them may be the one who sees that these are there.
TEST(a_wait_for_steps_is_over_with_the_last_of_them) {
  constexpr int kRounds = test::kSanitized ? 2'000 : 20'000;
  constexpr std::uint32_t kSteps = 2, kRows = 4;
  BatchHeader header{};
  Writers writers(kRows, kRounds, [&](std::uint32_t row) { commit(header, 1, row >= kSteps, false, false); });
  for (int i = 1; i <= kRounds; ++i) {
    header.done = header.resets = 0;
    writers.begin(i);
    wait_for(header, steps(kSteps));
    for (std::uint32_t row = 0; row < kSteps; ++row) CHECK(writers.rows[row] == i);
    wait_for(header, kRows);
    CHECK(header.resets.load() == kRows - kSteps);
  }
}

}  // namespace stepmill::batch_ring_test
