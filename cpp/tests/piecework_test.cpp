#include "core/piecework.h"

#include <thread>
#include <vector>

#include "tests/check.h"

namespace stepmill::piecework_test {

// Counts who does what: plain numbers, so that a piece done twice, or seen too early, is a race.
struct Counts {
  explicit Counts(std::uint32_t pieces) : of(pieces) {}
  static void piece(void* context, std::uint32_t index) { static_cast<Counts*>(context)->of[index] += 1; }
  std::vector<int> of;
};

TEST(the_caller_does_all_of_it_where_nobody_helps) {
  Piecework work;
  CHECK(work.waiting() == false);
  CHECK(work.work_once() == false);
  Counts counts(7);
  work.open(7, Counts::piece, &counts);
  CHECK(work.waiting() == true);
  work.finish();
  CHECK(work.waiting() == false);
  CHECK(work.work_once() == false);
  for (const int count : counts.of) CHECK(count == 1);
}

TEST(every_piece_is_done_once_and_is_visible_when_finish_returns) {
  Piecework work;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed))
        if (!work.work_once()) std::this_thread::yield();
    });
  for (int round = 0; round < (test::kSanitized ? 2'000 : 20'000); ++round) {
    // Another number of pieces and other memory each time: a thread that still looks at the last work must not
    // mistake one for the other.
    Counts counts(static_cast<std::uint32_t>(1 + round % 9));
    work.open(static_cast<std::uint32_t>(counts.of.size()), Counts::piece, &counts);
    work.finish();
    for (const int count : counts.of) CHECK(count == 1);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// A thread that holds a piece holds up `finish`; one that never comes by does not.
TEST(finish_waits_for_pieces_that_were_begun) {
  struct Gate {
    std::atomic<bool> begun{false}, open{false};
    std::atomic<int> done{0};
    static void piece(void* context, std::uint32_t index) {
      auto& gate = *static_cast<Gate*>(context);
      if (index == 0) {
        gate.begun = true;
        gate.begun.notify_all();
        gate.open.wait(false);
      }
      gate.done += 1;
    }
  } gate;
  Piecework work;
  work.open(5, Gate::piece, &gate);
  std::thread helper([&] { work.work_once(); });
  gate.begun.wait(false);
  for (int i = 0; i < 4; ++i) CHECK(work.work_once() == true);
  CHECK(work.work_once() == false);
  CHECK(gate.done.load() == 4);
  std::thread opener([&] {
    gate.open = true;
    gate.open.notify_all();
  });
  work.finish();
  CHECK(gate.done.load() == 5);
  opener.join();
  helper.join();
}

}  // namespace stepmill::piecework_test
