// What a process pool hands out: rows and the notes that came with them, in the order and at the time they should.
#include <algorithm>

#include "tests/check.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"

namespace stepmill::process_rows_test {

using test::all_of;
using test::contains;
using test::Ids;
using test::Ledger;
using test::options_of;
using test::ProcessDriverOptions;
using test::Processes;
using test::receive_some_kind;

// ---- rows --------------------------------------------------------------------------------------

// Bit for bit what one env after the other gives, with any number of workers, notes and mail included.
TEST(rows_are_those_of_the_reference) {
  std::uint32_t seed = 0;
  for (const std::int32_t workers : {1, 2, 5})
    for (const std::int32_t batch : {8, 3, 1})
      for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP}) {
        ProcessDriverOptions options = options_of(8, batch, workers);
        options.autoreset = mode;
        options.work = batch == 3 ? 500 : 1;
        options.max_episode_steps = mode == SM_NEXT_STEP ? 20 : 0;
        options.keep_last_observation = workers == 2;
        Processes p(options);
        Ledger ledger(p, ++seed);
        for (int i = 0; i < 150 && test::failed_checks == 0; ++i) {
          ledger.send_any(i % 3 == 0, true);
          if (i % 10 == 9 && !ledger.idle().empty() && (batch < 8 || p.pool->in_flight_count() == 0)) {
            ledger.send_reset(ledger.idle(), true);
            ledger.receive();
          }
          if (p.pool->in_flight_count() != 0) ledger.receive();
        }
        ledger.drain();
        for (std::int32_t env = 0; env < 8; ++env) CHECK(ledger.lost(env) == 0);
      }
}

TEST(a_sync_batch_has_the_order_it_was_sent_in) {
  Processes p(options_of(5, 5, 2));
  p.send_orders({3, 1}, test::kGoOn);
  p.send_orders({4, 0}, test::kGoOn);
  const Batch batch = p.recv();
  const std::int32_t* ids = batch.buffer->columns.c.env_id;
  CHECK(Ids(ids, ids + batch.rows) == Ids{3, 1, 4, 0});
  CHECK(batch.all_in_order == false);
  Processes::drop(batch);
  p.send_orders(all_of(5), test::kGoOn);
  const Batch all = p.recv();
  CHECK(all.all_in_order == true);
  Processes::drop(all);
}

TEST(a_batch_does_not_wait_for_a_slow_env_of_another_worker) {
  Processes p(options_of(4, 2, 2));
  Ledger ledger(p);
  ledger.send(all_of(4), test::kGoOn);
  ledger.drain();
  ledger.send({0}, test::kBlock);
  test::await_word("env 0 is in its step", p.board().entered);
  ledger.send({2, 3}, test::kGoOn);
  for (const auto& result : ledger.receive()) CHECK(result.env != 0);
  p.open_gate();
  CHECK(ledger.receive()[0].env == 0);
}

// ---- results as they are ready -------------------------------------------------------------------

ProcessDriverOptions as_ready_of(std::int32_t envs, std::int32_t workers) {
  ProcessDriverOptions options = options_of(envs, envs, workers);
  options.as_ready = true;
  return options;
}

TEST(rows_that_come_as_they_are_ready_are_those_of_the_reference) {
  std::uint32_t seed = 100;
  for (const std::int32_t workers : {1, 2, 5})
    for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP}) {
      ProcessDriverOptions options = as_ready_of(8, workers);
      options.autoreset = mode;
      options.work = mode == SM_NEXT_STEP ? 500 : 1;
      options.keep_last_observation = workers == 2;
      Processes p(options);
      Ledger ledger(p, ++seed);
      for (int i = 0; i < 300 && test::failed_checks == 0; ++i) {
        ledger.send_any(i % 3 != 0, true, true);
        if (i % 10 == 9 && !ledger.idle().empty()) {
          ledger.send_reset(ledger.idle(), true);
          ledger.receive_some(1, true);
        }
        if (p.pool->in_flight_count() != 0) receive_some_kind(p, ledger);
      }
      ledger.drain();
      for (std::int32_t env = 0; env < 8; ++env) CHECK(ledger.lost(env) == 0);
    }
}

// A first action of every env, and the next reset of these stands at the gate, or is as the order says.
void begin_with_slow_resets(Processes& p, Ledger& ledger, const Ids& slow,
                            std::int64_t order = test::kEndThenBlockInReset) {
  ledger.send(all_of(p.options.num_envs), test::kGoOn);
  ledger.drain();
  ledger.send(slow, order);
  ledger.drain();
}

TEST(a_slow_reset_holds_no_step_back) {
  Processes p(as_ready_of(6, 3));
  Ledger ledger(p);
  begin_with_slow_resets(p, ledger, {0, 2});
  ledger.send_reset({0, 2}, false);
  test::await_word("both stand in their resets", p.board().entered, 2);
  for (const std::int32_t most : {1, 2, 6})  // more than there are, too
    for (int i = 0; i < 5; ++i) {
      ledger.send({4, 5}, test::kGoOn);
      ledger.receive_some(most, true);
      while (ledger.idle().size() != 4) ledger.receive_some(1, true);
    }
  ledger.send_reset({4}, false);  // a quick one is no step either
  p.await_rest(4);                // before its worker is held up by the other
  ledger.send({5}, test::kBlock);
  test::await_word("env 5 is in its step", p.board().entered, 3);
  p.pool->be_content_with(1, true);
  CHECK(p.pool->ready() == false);
  p.pool->be_content_with(1, false);
  CHECK(p.pool->ready() == true);
  p.open_gate();
  ledger.receive_some(1, true);
  ledger.drain();
}

// Be it the env's own failure, or what the pool says in its place.
TEST(a_reset_that_failed_is_no_step) {
  enum { kRaises, kIsLate, kDies };
  for (const auto how : {kRaises, kIsLate, kDies}) {
    ProcessDriverOptions options = as_ready_of(2, 2);
    if (how == kIsLate) options.deadlines.reset = 300'000'000;
    Processes p(options);
    Ledger ledger(p);
    if (how != kRaises) ledger.excuse(0);
    const std::int64_t ends = how == kRaises ? std::int64_t{test::kEndThenThrowInReset} : test::kEndThenBlockInReset;
    begin_with_slow_resets(p, ledger, {0}, ends);
    ledger.send({1}, test::kBlock);
    test::await_word("a step runs", p.board().entered);
    ledger.send_reset({0}, false);
    if (how == kRaises) {
      p.await_rest(0);
    } else {
      test::await_word("the reset runs", p.board().entered, 2);
      if (how == kDies) p.signal(0, SIGKILL);
      p.await_loss(0);
    }
    p.pool->be_content_with(1, false);
    CHECK(p.pool->ready() == true);
    p.pool->be_content_with(1, true);
    CHECK(p.pool->ready() == false);
    p.open_gate();
    const auto results = ledger.receive_some(1, true);
    CHECK(results.size() == 2u);
    for (const auto& result : results) CHECK(result.fault.has_value() == (result.env == 0));
  }
}

TEST(a_step_that_is_lost_ends_a_wait_for_steps) {
  for (const bool in_flight : {true, false}) {
    Processes p(as_ready_of(2, 2));
    Ledger ledger(p);
    ledger.excuse(1);
    begin_with_slow_resets(p, ledger, {0});
    ledger.send_reset({0}, false);
    test::await_word("it stands in its reset", p.board().entered);
    if (in_flight) {
      ledger.send({1}, test::kBlock);
      test::await_word("the other is in its step", p.board().entered, 2);
      p.signal(1, SIGKILL);
    } else {
      p.kill_and_await(1);
      ledger.send({1}, test::kGoOn);  // told at once
    }
    const auto results = ledger.receive_some(1, true);
    CHECK(results.size() == 1u);
    CHECK(results[0].env == 1);
    CHECK(results[0].lost() == true);
    p.open_gate();
    CHECK(!ledger.receive()[0].fault);
  }
}

// ---- notes ---------------------------------------------------------------------------------------

// Rows that were written are good whatever happens to their worker, and so is what came with them.
TEST(rows_not_yet_received_stand_with_their_notes) {
  for (const std::int32_t batch : {6, 2})
    for (const bool restarts : {false, true}) {
      Processes p(options_of(6, batch, 2));
      Ledger ledger(p);
      ledger.excuse(0);
      for (int i = 0; i < 8; ++i) {  // one with a large note among them
        ledger.send(all_of(6), test::kGoOn);
        if (i < 7) ledger.drain();
      }
      for (std::int32_t env = 0; env < 6; ++env) p.await_rest(env);
      p.kill_and_await(0);
      if (restarts) p.attend();
      while (p.pool->in_flight_count() != 0)
        for (const auto& result : ledger.receive()) CHECK(!result.fault);
      ledger.send(all_of(6), test::kGoOn);
      ledger.drain();
      for (std::int32_t env = 0; env < 6; ++env) CHECK(ledger.lost(env) == (env < 3 ? 1 : 0));
    }
}

TEST(a_note_can_be_read_until_the_next_action_also_after_a_death) {
  Processes p(options_of(2, 2, 2));
  p.send_orders({0, 1}, test::kGoOn);
  p.recv_and_drop();
  p.send_orders({0, 1}, test::kGoOn);
  p.recv_and_drop();
  const std::string note = p.note(0);
  CHECK(contains(note, "env 0 row 1"));
  p.kill_and_await(0);
  CHECK(p.note(0) == note);
  p.attend();
  CHECK(p.note(0) == note);
  p.send_orders({0, 1}, test::kGoOn);
  p.recv_and_drop();
  CHECK(p.note(0) == "");  // an abnormal row has none
}

}  // namespace stepmill::process_rows_test
