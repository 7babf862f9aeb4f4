// Workers that are killed or held while they count their row: rows that are whole and perhaps not counted.

#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/process/kill_points.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"
#include "tests/process/sleeping_caller.h"

namespace stepmill::kill_points_counts_test {

using test::begin;
using test::Case;
using test::Ledger;
using test::one_env_each;
using test::ProcessDriverOptions;
using test::Processes;
using test::SleepingCaller;
using test::Trap;

TEST(rows_that_nobody_counted_are_received) {
  for (const std::int32_t batch_size : {3, 2})
    for (const char* point : {"done", "counted", "committed"}) {
      const Case here(std::string(point) + ", batches of " + std::to_string(batch_size));
      Processes p(one_env_each(3, batch_size));
      Ledger ledger(p);
      begin(p, ledger);
      for (std::int32_t worker = 0; worker < 3; ++worker) {
        ledger.excuse(worker);
        p.board().arm(Trap::kKill, worker, point);
      }
      ledger.send(test::all_of(3), test::kTerminate);  // a batch also says that an episode ended
      while (p.pool->in_flight_count() != 0)
        for (const auto& result : ledger.receive()) CHECK(!result.fault);
      for (int i = 0; i < 3; ++i) {
        ledger.send(test::all_of(3), test::kGoOn);
        ledger.drain();
      }
      for (std::int32_t env = 0; env < 3; ++env) CHECK(ledger.lost(env) == 1);
    }
}

TEST(a_batch_in_doubt_waits_for_who_is_alive) {
  for (const std::int32_t batch_size : {3, 2})
    for (const char* point : {"done", "counted", "committed"}) {
      const Case here(std::string(point) + ", batches of " + std::to_string(batch_size));
      Processes p(one_env_each(3, batch_size));
      Ledger ledger(p);
      begin(p, ledger);
      ledger.excuse(0);
      p.board().arm(Trap::kKill, 0, point);
      ledger.send({0, 1}, test::kBlock);
      test::await_word("both stand at the gate", p.board().entered, 2);
      Trap& other = p.board().arm(Trap::kHold, 1, "copied");
      p.open_gate();
      test::await_word("the other writes", other.reached);
      p.await_loss(0);
      CHECK(p.pool->ready() == false);
      Processes::release(other);
      for (const auto& result : ledger.receive()) CHECK(!result.fault);
      ledger.send(test::all_of(3), test::kGoOn);
      ledger.drain();
    }
}

// Of two rows one is whole, and its worker died before it counted it; the worker of the other is held at a point.
Trap& put_in_doubt(Processes& p, Ledger& ledger, const char* point) {
  begin(p, ledger);
  ledger.excuse(0);
  p.board().arm(Trap::kKill, 0, "done");
  Trap& other = p.board().arm(Trap::kHold, 1, point);
  ledger.send({0, 1}, test::kGoOn);
  test::await_word("the other is held", other.reached);
  p.await_loss(0);
  return other;
}

// The last worker of a batch in doubt wakes the caller, wherever it is delayed.
TEST(a_batch_in_doubt_wakes_the_caller) {
  for (const char* point : {"reported", "done", "counted", "committed"}) {
    const Case here(point);
    Processes p(one_env_each(2, 2));
    Ledger ledger(p);
    Trap& other = put_in_doubt(p, ledger, point);
    SleepingCaller caller([&] { ledger.receive(); });
    caller.await_sleep();
    Processes::release(other);
    caller.join();
  }
}

// A live worker is between the last word on its row and its count while the batch is received by the words: it
// must not count in the batch that has the buffer next.
TEST(a_late_count_never_falls_into_the_next_batch) {
  for (const char* point : {"done", "counted", "committed"}) {
    const Case here(point);
    Processes p(one_env_each(2, 2));
    Ledger ledger(p);
    Trap& late = put_in_doubt(p, ledger, point);
    Trap& writing = p.board().arm(Trap::kHold, 1, "before writing");
    if (!p.pool->ready()) {
      Processes::release(late);
      ledger.receive();
      ledger.send({0, 1}, test::kGoOn);
    } else {
      ledger.receive();
      ledger.send({0, 1}, test::kGoOn);
      Processes::release(late);
    }
    test::await_word("the other has not written", writing.reached);
    CHECK(p.pool->ready() == false);
    Processes::release(writing);
    ledger.receive();
  }
}

// ---- waits for steps -----------------------------------------------------------------------------

ProcessDriverOptions each_as_ready(std::int32_t workers) {
  ProcessDriverOptions options = one_env_each(workers, workers);
  options.as_ready = true;
  return options;
}

// The next reset of env 0 stands at the gate, in its worker.
void begin_with_slow_reset(Processes& p, Ledger& ledger) {
  begin(p, ledger);
  ledger.send({0}, test::kEndThenBlockInReset);
  ledger.drain();
  p.await_rest(0);
  ledger.send_reset({0}, false);
  test::await_word("it stands in its reset", p.board().entered);
}

// Both rows are whole and neither is counted when the caller goes to sleep. Whichever is counted last sees that the
// step is there, wherever the other is.
TEST(who_is_counted_last_wakes_a_caller_who_waits_for_a_step) {
  struct Order {
    const char* what;
    std::int32_t first;   // whose row is counted first: env 0 is reset, env 1 steps
    const char* hold_at;  // it goes no further then
  };
  constexpr Order kOrders[] = {
      {"the reset, then the step", 0, "rest"},
      {"the reset, which does not look whether somebody waits, then the step", 0, "counted"},
      {"the step, then the reset", 1, "rest"},
      {"the step, which does not look whether somebody waits, then the reset", 1, "counted"},
  };
  for (const Order& order : kOrders) {
    const Case here(order.what);
    Processes p(each_as_ready(2));
    Ledger ledger(p);
    begin(p, ledger);
    Trap* traps[2] = {&p.board().arm(Trap::kHold, 0, "done"), &p.board().arm(Trap::kHold, 1, "done")};
    ledger.send_reset({0}, false);
    ledger.send({1}, test::kGoOn);
    for (Trap* trap : traps) test::await_word("its row is whole", trap->reached);
    Trap& first = p.board().arm(Trap::kHold, order.first, order.hold_at);
    std::size_t rows = 0;
    SleepingCaller caller([&] { rows = ledger.receive_some(1, true).size(); });
    caller.await_sleep();
    Processes::release(*traps[order.first]);
    test::await_word("it is counted", first.reached);
    Processes::release(*traps[1 - order.first]);
    caller.join();
    CHECK(rows == 2u);  // both had taken their slots
    Processes::release(first);
    for (int i = 0; i < 3; ++i) {
      ledger.send({0, 1}, test::kGoOn);
      ledger.drain();
    }
  }
}

// A step whose worker dies before it wakes the caller: the pool does, and does not wait for the reset.
TEST(a_step_that_nobody_counted_ends_a_wait_for_steps) {
  for (const bool asleep : {true, false})
    for (const char* point : {"done", "counted", "committed", "rest"}) {
      const Case here(std::string(point) + (asleep ? ", the caller sleeps" : ""));
      Processes p(each_as_ready(2));
      Ledger ledger(p);
      ledger.excuse(1);
      begin_with_slow_reset(p, ledger);
      Trap& before = p.board().arm(Trap::kHold, 1, "before writing");
      ledger.send({1}, test::kGoOn);
      test::await_word("it is about to write", before.reached);
      p.board().arm(Trap::kKill, 1, point);
      std::size_t rows = 0;
      if (asleep) {
        SleepingCaller caller([&] { rows = ledger.receive_some(1, true).size(); });
        caller.await_sleep();
        Processes::release(before);
        caller.join();
      } else {
        Processes::release(before);
        p.await_loss(1);
        rows = ledger.receive_some(1, true).size();
      }
      CHECK(rows == 1u);
      CHECK(p.pool->in_flight(0) == true);
      p.open_gate();
      ledger.drain();
      CHECK(ledger.lost(1) == 0);
    }
}

// Whether it was counted before its worker died or not, and whether its row stands or is the pool's.
TEST(a_reset_that_nobody_counted_holds_no_step_back) {
  for (const char* point : {"taken", "copied", "reported", "done", "half counted", "counted", "committed"}) {
    const Case here(point);
    Processes p(each_as_ready(3));
    Ledger ledger(p);
    ledger.excuse(0);
    begin(p, ledger);
    Trap& trap = p.board().arm(Trap::kKill, 0, point);
    ledger.send_reset({0}, false);
    test::await_word("the reset is dead", trap.reached);
    ledger.send({1}, test::kBlock);
    test::await_word("the step runs", p.board().entered);
    p.await_loss(0);
    p.pool->be_content_with(1, true);
    CHECK(p.pool->ready() == false);  // a reset, dead or alive, is no step
    p.pool->be_content_with(1, false);
    CHECK(p.pool->ready() == true);
    p.open_gate();
    CHECK(ledger.receive_some(1, true).size() == 2u);
    ledger.send(test::all_of(3), test::kGoOn);
    ledger.drain();
  }
}

// A worker that dies between its two counts leaves a reset that is known and a row that is not.
TEST(a_reset_that_was_half_counted_holds_no_step_back) {
  for (const bool step_first : {true, false}) {
    const Case here(step_first ? "after the step" : "before the step");
    Processes p(each_as_ready(2));
    Ledger ledger(p);
    ledger.excuse(0);
    begin(p, ledger);
    Trap& reset = p.board().arm(Trap::kHold, 0, "half counted");
    Trap& step = p.board().arm(Trap::kHold, 1, "done");
    ledger.send_reset({0}, false);
    ledger.send({1}, test::kGoOn);
    for (Trap* trap : {&reset, &step}) test::await_word("its row is whole", trap->reached);
    if (step_first) {
      Processes::release(step);
      p.await_rest(1);
    }
    const auto victim = p.life(0);  // the caller starts another in its place
    std::size_t rows = 0;
    SleepingCaller caller([&] { rows = ledger.receive_some(1, true).size(); });
    caller.await_sleep();
    Processes::send(victim, SIGKILL);
    if (!step_first) {
      test::until("the pool sees it end", [&] { return get(p.pool->counters()->worker(0).pid) != static_cast<std::uint64_t>(victim.pid); });
      Processes::release(step);
    }
    caller.join();
    CHECK(rows == 2u);
    CHECK(ledger.lost(0) == 0);
  }
}

// By the words, as by the counts.
TEST(in_a_batch_in_doubt_resets_are_no_steps) {
  for (const bool fails : {false, true})
    for (const char* point : {"done", "counted", "committed"}) {
      const Case here(std::string(point) + (fails ? ", one fails" : ""));
      Processes p(each_as_ready(4));
      Ledger ledger(p);
      ledger.excuse(0);
      begin(p, ledger);
      ledger.send({1}, fails ? test::kEndThenThrowInReset : test::kGoOn);
      ledger.drain();
      Trap& dies = p.board().arm(Trap::kKill, 0, point);
      ledger.send_reset({0, 1}, false);
      Trap& held = p.board().arm(Trap::kHold, 2, "copied");
      ledger.send({2}, test::kGoOn);
      test::await_word("one is dead", dies.reached);
      test::await_word("the step is being written", held.reached);
      p.await_loss(0);
      p.await_rest(1);  // this may start another in its place
      const auto ready_with = [&](std::int32_t rows, bool steps_only) {
        p.pool->be_content_with(rows, steps_only);
        return p.pool->ready();
      };
      CHECK(ready_with(1, true) == false);
      CHECK(ready_with(4, true) == false);
      CHECK(ready_with(2, false) == true);
      CHECK(ready_with(3, false) == false);
      Processes::release(held);
      p.await_rest(2);
      CHECK(ready_with(1, true) == true);
      CHECK(ledger.receive_some(1, true).size() == 3u);
      ledger.send(test::all_of(4), test::kGoOn);
      ledger.drain();
    }
}

// What is taken of it comes, be it resets alone.
TEST(a_batch_that_has_ended_is_waited_for_as_it_is) {
  Processes p(each_as_ready(3));
  Ledger ledger(p);
  begin(p, ledger);
  ledger.send({2}, test::kBlock);
  test::await_word("the step runs", p.board().entered);
  Trap& held = p.board().arm(Trap::kHold, 1, "copied");
  ledger.send_reset({0, 1}, false);
  test::await_word("one is being written", held.reached);
  p.await_rest(0);
  p.pool->seal_early();
  CHECK(p.pool->expected() == 2);
  const auto ready_with = [&](std::int32_t rows) {
    p.pool->be_content_with(rows, true);
    return p.pool->ready();
  };
  CHECK(ready_with(1) == true);
  CHECK(ready_with(2) == false);
  Processes::release(held);
  p.await_rest(1);
  CHECK(ready_with(2) == true);
  p.pool->be_content_with(0);
  for (const auto& result : ledger.receive()) CHECK(result.is_reset == true);
  p.open_gate();
  CHECK(ledger.receive_some(1, true)[0].env == 2);
}

}  // namespace stepmill::kill_points_counts_test
