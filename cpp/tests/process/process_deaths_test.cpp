// Workers that end, and workers that do not even start: what becomes of their envs.
#include <fcntl.h>

#include "tests/check.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"

namespace stepmill::process_deaths_test {

using test::act;
using test::all_of;
using test::contains;
using test::Ids;
using test::Ledger;
using test::options_of;
using test::ProcessDriverOptions;
using test::Processes;

// ---- a worker that ends --------------------------------------------------------------------------

TEST(envs_in_flight_come_back_abnormal_and_go_on) {
  for (const std::int32_t batch : {4, 2}) {
    Processes p(options_of(4, batch, 2));
    Ledger ledger(p);
    ledger.excuse(0);
    ledger.send(all_of(4), test::kGoOn);
    ledger.drain();
    ledger.send({0, 1}, test::kBlock);
    test::await_word("one of them runs", p.board().entered);
    p.kill_and_await(0);
    p.open_gate();
    for (const auto& result : ledger.receive()) {
      CHECK(result.lost() == true);
      CHECK(result.fault->kind == Fault::kDied);
      CHECK(result.fault->phase == SM_IN_STEP);
      CHECK(result.fault->episode == 1);
      CHECK(result.fault->failures == 1);
      CHECK(contains(result.fault->message, "SIGKILL"));
      CHECK(contains(result.fault->message, "pid " + std::to_string(p.pid_of(0))));
    }
    for (int i = 0; i < 5; ++i) {
      ledger.send(all_of(4), test::kGoOn);
      ledger.drain();
    }
    for (std::int32_t env = 0; env < 4; ++env) CHECK(ledger.lost(env) == (env < 2 ? 1 : 0));
    CHECK(p.restarts(0) == 1u);
    CHECK(p.restarts(1) == 0u);
  }
}

// Each env has had an action, and worker 0 ends.
void lose_a_worker_at_rest(Processes& p, Ledger& ledger) {
  ledger.excuse(0);
  ledger.send(all_of(p.options.num_envs), test::kGoOn);
  ledger.drain();
  p.kill_and_await(0);
}

TEST(after_an_idle_death_the_next_action_is_answered_abnormal) {
  for (const std::int32_t batch : {4, 1}) {
    Processes p(options_of(4, batch, 2));
    Ledger ledger(p);
    lose_a_worker_at_rest(p, ledger);
    p.attend();
    CHECK(p.restarts(0) == 1u);
    CHECK(act(ledger, {0})[0].lost() == true);
    CHECK(act(ledger, {2})[0].lost() == false);
    CHECK(act(ledger, {0})[0].lost() == false);  // told once
    CHECK(act(ledger, {1})[0].lost() == true);
    CHECK(act(ledger, {1})[0].lost() == false);
  }
}

TEST(a_reset_begins_anew_whatever_was_lost) {
  for (const std::int32_t batch : {4, 1}) {
    Processes p(options_of(4, batch, 2));
    Ledger ledger(p);
    lose_a_worker_at_rest(p, ledger);
    ledger.send_reset({0, 1}, true);
    for (const auto& result : ledger.receive()) CHECK(!result.fault);
    for (const auto& result : act(ledger, {1})) CHECK(!result.fault);
  }
}

double drawn_of(const Batch& batch, std::int32_t row) {
  return static_cast<double*>(batch.buffer->columns.c.observation[0])[row * 4 + 2];
}

// Without a seed too: each env of its own, and the same ones when all of it happens again.
TEST(envs_that_are_built_anew_have_seeds_of_their_own) {
  std::vector<double> drawn[2];
  for (auto& its : drawn) {
    Processes p(options_of(4, 4, 2));
    p.send_orders(all_of(4), test::kGoOn);
    const Batch before = p.recv();
    for (std::int32_t row = 0; row < 4; ++row) its.push_back(drawn_of(before, row));
    Processes::drop(before);
    p.kill_and_await(0);
    for (const std::int32_t env : {0, 1}) p.pool->table().state(env).command = SM_RESET;
    p.pool->send(Ids{0, 1}, true, true);
    const Batch after = p.recv();
    for (std::int32_t row = 0; row < 2; ++row) its.push_back(drawn_of(after, row));
    Processes::drop(after);
    CHECK(std::set<double>(its.begin(), its.end()).size() == its.size());
  }
  CHECK(drawn[0] == drawn[1]);
}

// Where it is asked for: in the row of the death, and in those of further deaths before anything good came.
TEST(a_lost_row_shows_the_last_good_observation) {
  for (const bool keep_last : {false, true}) {
    ProcessDriverOptions options = options_of(1, 1, 1);
    options.keep_last_observation = keep_last;
    Processes p(options);
    const auto observe = [&](std::int64_t order) {
      p.send_orders({0}, order);
      const Batch batch = p.recv();
      const double* numbers = static_cast<double*>(batch.buffer->columns.c.observation[0]);
      const std::vector<double> out(numbers, numbers + 4);
      Processes::drop(batch);
      return out;
    };
    const std::vector<double> nothing(4);
    observe(test::kGoOn);
    const auto last = observe(test::kGoOn);
    CHECK(last != nothing);
    CHECK(observe(test::kExit) == (keep_last ? last : nothing));  // in flight
    CHECK(p.faults.size() == 1u);
    const auto anew = observe(test::kGoOn);
    CHECK(p.faults.empty());
    p.kill_and_await(0);
    CHECK(observe(test::kGoOn) == (keep_last ? anew : nothing));  // at rest
    p.attend();
    p.kill_and_await(0);
    p.send_orders({0}, test::kGoOn);
    CHECK(p.pool->to_restart().size() == 1u);
    p.pool->restart_failed(0, p.pool->to_restart()[0].second, "no process");
    const Batch batch = p.recv();
    CHECK(static_cast<double*>(batch.buffer->columns.c.observation[0])[2] == (keep_last ? anew[2] : 0.0));
    Processes::drop(batch);
  }
}

// The end was good, whatever became of the reset after it.
TEST(a_lost_row_shows_the_final_observation_of_an_end_whose_reset_failed) {
  ProcessDriverOptions options = options_of(1, 1, 1);
  options.keep_last_observation = true;
  options.autoreset = SM_SAME_STEP;
  Processes p(options);
  Ledger ledger(p);
  ledger.excuse(0);
  act(ledger, {0});
  act(ledger, {0});
  CHECK(act(ledger, {0}, test::kEndThenThrowInReset)[0].fault->kind == Fault::kRaised);
  p.kill_and_await(0);
  CHECK(act(ledger, {0})[0].lost() == true);  // the ledger knows what it must show
  CHECK(act(ledger, {0})[0].lost() == false);
}

TEST(how_a_worker_ended_is_told) {
  struct End {
    const char* says;
    std::function<void(Processes&)> make;
  };
  const End ends[] = {
      {"exited with code 7", [](Processes& p) { p.send_orders({0}, test::kExit); }},
      {"SIGSEGV", [](Processes& p) { p.signal(0, SIGSEGV); }},
      {"SIGKILL", [](Processes& p) { p.signal(0, SIGKILL); }},
      {"SIGTERM", [](Processes& p) { p.signal(0, SIGTERM); }},
  };
  for (const End& end : ends) {
    Processes p(options_of(1, 1, 1));
    p.send_orders({0}, test::kGoOn);
    p.recv_and_drop();
    end.make(p);
    p.await_loss(0);
    if (p.pool->in_flight_count() == 0) p.send_orders({0}, test::kGoOn);
    p.recv_and_drop();
    CHECK(p.faults.size() == 1u);
    CHECK(contains(p.faults[0].message, end.says));
    CHECK(p.faults[0].kind == Fault::kDied);
  }
}

// The news of how it ended is a courtesy: without it the end is an end.
TEST(an_end_without_an_obituary_is_seen) {
  ProcessDriverOptions options = options_of(1, 1, 1);
  options.obituaries = false;
  Processes p(options);
  p.send_orders({0}, test::kBlock);
  p.recv_and_drop();  // the first action resets
  p.send_orders({0}, test::kBlock);
  test::await_word("it runs", p.board().entered);
  p.signal(0, SIGKILL);
  p.recv_and_drop();
  CHECK(p.faults.size() == 1u);
  CHECK(contains(p.faults[0].message, "ended"));
}

// Who starts the workers is gone, and they with it: of those that have ended no news will come.
TEST(the_end_of_who_tells_of_ends_tells_enough) {
  ProcessDriverOptions options = options_of(2, 2, 2);
  options.obituaries = false;
  Processes p(options);
  Ledger ledger(p);
  ledger.excuse(0);
  act(ledger, {0, 1});
  p.signal(0, SIGKILL);
  test::await_word("it is reaped", p.board().code_count);
  p.write_obituary({-1, 0, 0});
  for (const auto& result : act(ledger, {0, 1})) {
    CHECK(result.lost() == (result.env == 0));
    if (result.fault) CHECK(contains(result.fault->message, "SIGKILL"));
  }
  for (int i = 0; i < 3; ++i)
    for (const auto& result : act(ledger, {0, 1})) CHECK(!result.fault);
}

TEST(obituaries_of_nobody_are_passed_over) {
  Processes p(options_of(2, 2, 2));
  Ledger ledger(p);
  act(ledger, {0, 1});
  p.write_obituary({2, 1, 0});
  p.write_obituary({1 << 30, 1, 0});
  p.write_obituary({0, 77, -9});
  for (int i = 0; i < 3; ++i)
    for (const auto& result : act(ledger, {0, 1})) CHECK(!result.fault);
}

TEST(failures_in_a_row_are_counted_until_a_good_step) {
  Processes p(options_of(1, 1, 1));
  const auto failures = [&](std::int64_t order) {
    p.send_orders({0}, order);
    p.recv_and_drop();
    return p.faults.empty() ? 0 : p.faults[0].failures;
  };
  CHECK(failures(test::kGoOn) == 0);
  CHECK(failures(test::kGoOn) == 0);
  for (int i = 1; i <= 3; ++i) {
    CHECK(failures(test::kExit) == i);
    CHECK(failures(test::kExit) == 0);  // the reset, in a new process
  }
  CHECK(failures(test::kGoOn) == 0);  // a good step
  CHECK(failures(test::kExit) == 1);
}

// ---- a worker that does not start ----------------------------------------------------------------

TEST(what_waits_for_a_worker_that_dies_before_it_is_ready_is_answered) {
  for (const bool queued_before : {false, true}) {
    ProcessDriverOptions options = options_of(4, 4, 2);
    options.before_announce = [](std::int32_t worker, std::uint32_t life) {
      if (worker == 0 && life < 3) _exit(3);
    };
    Processes p(options, false);
    Ledger ledger(p);
    ledger.excuse(0, 2);
    if (queued_before) ledger.send({0, 2}, test::kGoOn);  // before there is anybody
    CHECK(p.pool->wants_attention() == queued_before);
    for (const std::int32_t worker : {0, 1}) p.start(worker, 1);
    if (!queued_before) {
      p.await_loss(0);
      CHECK(p.pool->to_restart().empty());  // nobody needs it
      ledger.send({0, 2}, test::kGoOn);
    }
    for (const auto& result : ledger.receive()) {
      CHECK(result.lost() == (result.env == 0));
      if (!result.fault) continue;
      CHECK(result.fault->phase == SM_IN_CONSTRUCTOR);
      CHECK(contains(result.fault->message, "exited with code 3"));
      CHECK(contains(result.fault->message, "starting"));
    }
    if (queued_before) {
      CHECK(p.pool->to_restart().empty());
      CHECK(act(ledger, {0})[0].lost() == true);
    }
    for (int i = 0; i < 3; ++i)
      for (const auto& result : act(ledger, all_of(4))) CHECK(!result.fault);
  }
}

TEST(a_worker_that_does_not_start_in_time_is_given_up) {
  ProcessDriverOptions options = options_of(2, 2, 2);
  options.start_ns = 300'000'000;
  options.before_announce = [](std::int32_t worker, std::uint32_t life) {
    if (worker == 0 && life == 1) test::self.board->pass_gate();
  };
  Processes p(options);
  Ledger ledger(p);
  for (const std::int32_t worker : {0, 1}) ledger.excuse(worker, 100);  // on a busy machine the other, too
  ledger.send({0, 1}, test::kGoOn);
  for (const auto& result : ledger.receive())
    if (result.env == 0) {
      CHECK(result.lost() == true);
      CHECK(result.fault->kind == Fault::kLate);
      CHECK(result.fault->phase == SM_IN_CONSTRUCTOR);
      CHECK(contains(result.fault->message, "start_timeout"));
      CHECK(contains(result.fault->message, "the stack of a worker"));
    }
  test::until("it is killed", [&] { return !p.codes().empty(); });
  CHECK(p.codes()[0] == -SIGKILL);
  for (int i = 0; i < 3; ++i) act(ledger, {0, 1});
}

TEST(where_no_process_can_be_started_actions_are_answered) {
  for (const std::int32_t batch : {4, 1}) {
    Processes p(options_of(4, batch, 2));
    Ledger ledger(p);
    ledger.excuse(0, 3);
    ledger.send(all_of(4), test::kGoOn);
    ledger.drain();
    p.kill_and_await(0);
    using Wanted = std::vector<std::pair<std::int32_t, std::uint32_t>>;
    CHECK(p.pool->to_restart() == Wanted{{0, 2}});
    p.pool->restart_failed(0, 2, "no memory for a process");
    CHECK(p.pool->to_restart().empty());  // until there is something for it to do
    CHECK(p.pool->wants_attention() == false);

    ledger.send({0}, test::kGoOn);  // lost: told at once, without anybody
    CHECK(p.pool->wants_attention() == false);
    CHECK(ledger.receive()[0].lost() == true);

    ledger.send({0}, test::kGoOn);
    CHECK(p.pool->to_restart() == Wanted{{0, 3}});
    p.pool->restart_failed(0, 3, "still none");
    const auto results = ledger.receive();
    CHECK(results[0].lost() == true);
    CHECK(results[0].fault->phase == SM_IN_CONSTRUCTOR);
    CHECK(results[0].fault->message == "still none");

    CHECK(act(ledger, {0})[0].lost() == false);  // the next try has luck
    CHECK(act(ledger, {1})[0].lost() == true);
    CHECK(act(ledger, {1})[0].lost() == false);
    CHECK(act(ledger, {2})[0].lost() == false);
  }
}

// ---- the reset after an end ----------------------------------------------------------------------

TEST(an_end_stands_when_its_worker_dies_in_the_reset_after_it) {
  for (const bool keep_last : {false, true}) {
    ProcessDriverOptions options = options_of(2, 2, 2);
    options.autoreset = SM_SAME_STEP;
    options.keep_last_observation = keep_last;
    Processes p(options);
    Ledger ledger(p);
    for (int i = 0; i < 3; ++i) {
      ledger.send({0, 1}, test::kGoOn);
      ledger.receive();
    }
    ledger.excuse(0);
    ledger.send({0, 1}, test::kEndThenBlockInReset);
    test::await_word("both stand in their reset", p.board().entered, 2);
    p.kill_and_await(0);
    p.open_gate();
    p.wait();
    const Batch batch = p.recv();
    const sm_columns& c = batch.buffer->columns.c;
    CHECK(batch.any_ended == true);
    for (const std::int32_t row : {0, 1}) {
      CHECK(c.ended[row] == 1);
      CHECK(c.terminated[row] == 1);
      CHECK(c.truncated[row] == 0);
      CHECK(c.episode_length[row] == 3);
      CHECK(static_cast<double*>(c.reward)[row] != 0.0);
    }
    CHECK(p.faults.size() == 1u);
    CHECK(p.faults[0].env == 0);
    CHECK(p.faults[0].phase == SM_IN_RESET);
    const std::string final_row(static_cast<const char*>(c.final_observation[0]), 4 * sizeof(double));
    CHECK((final_row == std::string(static_cast<const char*>(c.observation[0]), 4 * sizeof(double))) == true);
    Processes::drop(batch);
    // It is the last good observation from then on.
    p.attend();
    p.kill_and_await(0);
    p.send_orders({0}, test::kGoOn);
    CHECK(p.pool->to_restart().size() == 1u);
    p.pool->restart_failed(0, p.pool->to_restart()[0].second, "no process");
    const Batch next = p.recv();
    const std::string shows(static_cast<const char*>(next.buffer->columns.c.observation[0]), 4 * sizeof(double));
    CHECK((shows == (keep_last ? final_row : std::string(4 * sizeof(double), '\0'))) == true);
    Processes::drop(next);
  }
}

// In the arrays of the row. What is in no array comes with the row itself, after the reset, and is lost.
TEST(an_end_whose_reset_killed_the_worker_shows_its_final_info) {
  ProcessDriverOptions options = options_of(2, 2, 1);
  options.autoreset = SM_SAME_STEP;
  Processes p(options);
  p.send_orders({0, 1}, test::kGoOn);
  p.recv_and_drop();
  for (int i = 0; i < 2; ++i) {  // so that what the worker wrote last is another info
    p.send_orders({1}, test::kTerminate);
    p.recv_and_drop();
  }
  p.send_orders({0}, test::kEndThenBlockInReset);
  test::await_word("it stands in its reset", p.board().entered);
  p.kill_and_await(0);
  const Batch batch = p.recv();
  const sm_columns& c = batch.buffer->columns.c;
  CHECK(c.ended[0] == 1);
  CHECK(*static_cast<std::int32_t*>(c.final_info[0]) == 1);  // how often it was reset
  CHECK(*static_cast<std::int32_t*>(c.info[0]) == 1);
  Processes::drop(batch);
}

}  // namespace stepmill::process_deaths_test
