#include "core/process_pool.h"

#include <fcntl.h>

#include <cstdlib>
#include <thread>

#include "tests/check.h"
#include "tests/process_driver.h"
#include "tests/process_ledger.h"

namespace stepmill {
namespace {

using test::all_of;
using test::Ids;
using test::Ledger;
using test::ProcessDriverOptions;
using test::Processes;

ProcessDriverOptions options_of(std::int32_t envs, std::int32_t batch, std::int32_t workers) {
  ProcessDriverOptions options;
  options.num_envs = envs;
  options.batch_size = batch;
  options.num_workers = workers;
  return options;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<Ledger::Result> act(Ledger& ledger, const Ids& envs, std::int64_t order = test::kGoOn) {
  ledger.send(envs, order);
  return ledger.receive();
}

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

// A wait of any kind that is given up soon, and then one that is not.
void receive_some_kind(Processes& p, Ledger& ledger) {
  auto& random = ledger.random;
  if (random() % 4 == 0) {
    p.pool->be_content_with(1 + static_cast<std::int32_t>(random() % 4), random() % 2 == 0);
    if (!p.pool->ready()) p.pool->work_or_wait(std::chrono::microseconds(random() % 100));
  }
  ledger.receive_some(1 + static_cast<std::int32_t>(random() % 4), random() % 4 != 0);
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

// ---- in one process, step by step: the worker's side by hand --------------------------------------

// A worker that is an object of the test. The pool is told of its end by the test.
struct Hand {
  Hand(ProcessPool& pool, std::int32_t number, std::uint32_t life)
      : outbox(Outbox::create()),
        end(eventfd(0, EFD_CLOEXEC)),
        worker(pool.arena_descriptor(), outbox, pool.spec(), pool.plan(), number, life),
        envs(test::steered_table(), test::steered_configs(worker.first_env(), worker.env_count(), 1),
             worker.first_env()),
        arena(Arena::attach(pool.arena_descriptor(), pool.plan().arena_bytes)),
        tables(pool.spec(), pool.plan().table, pool.plan().batch_size, pool.plan().process) {
    tables.attach(arena->at(pool.plan().process_offset));
    worker.announce();
    pool.admit(number, life, getpid(), end, end, outbox, 0);
  }
  ~Hand() {
    ::close(outbox);
    ::close(end);
  }
  bool serve(std::int32_t env) {
    worker.advance(envs, env);
    return worker.publish(env, {});
  }
  // As if the env that runs had begun that long ago.
  void pretend_hours(std::int32_t env, std::int32_t hours) {
    const std::uint64_t ago = monotonic_ns() - std::uint64_t{3'600'000'000'000} * static_cast<std::uint64_t>(hours);
    tables.begun(env) = pack_begun(ago, Activity::kStep);
  }
  void die() {
    const std::uint64_t one = 1;
    (void)!write(end, &one, sizeof one);
  }

  const int outbox, end;
  ProcessWorker worker;
  EnvSet envs;
  const std::shared_ptr<Arena> arena;
  ProcessTables tables;
};

TEST(the_env_that_used_least_time_is_next) {
  Processes p(options_of(3, 1, 1), false);
  Hand hand(*p.pool, 0, 1);
  const std::array<std::int32_t, 3> hours{2, 3, 1};  // that each env takes for its first action
  p.send_orders({0, 1, 2}, test::kGoOn);
  for (int i = 0; i < 3; ++i) {
    const std::int32_t env = hand.worker.next();
    hand.pretend_hours(env, hours[static_cast<std::size_t>(env)]);
    CHECK(hand.serve(env) == true);
  }
  CHECK(hand.worker.next() == -1);
  for (int i = 0; i < 3; ++i) p.recv_and_drop();
  p.send_orders({0, 1, 2}, test::kGoOn);
  for (const std::int32_t env : {2, 0, 1}) {
    CHECK(hand.worker.next() == env);
    hand.serve(env);
  }
  for (int i = 0; i < 3; ++i) p.recv_and_drop();
}

// It does not wait behind slower ones that were found before it.
TEST(an_env_that_comes_back_meanwhile_has_its_turn) {
  Processes p(options_of(3, 1, 1), false);
  Hand hand(*p.pool, 0, 1);
  p.send_orders({0, 1, 2}, test::kGoOn);
  for (int i = 0; i < 3; ++i) {
    const std::int32_t env = hand.worker.next();
    if (env != 2) hand.pretend_hours(env, 1);
    hand.serve(env);
  }
  for (int i = 0; i < 3; ++i) p.recv_and_drop();
  p.send_orders({0, 1, 2}, test::kGoOn);
  for (int i = 0; i < 3; ++i) {
    CHECK(hand.worker.next() == 2);
    hand.serve(2);
    p.recv_and_drop();
    p.send_orders({2}, test::kGoOn);
  }
}

TEST(a_life_that_is_gone_has_no_say) {
  Processes p(options_of(2, 2, 1), false);
  Hand old(*p.pool, 0, 1);
  p.send_orders({0, 1}, test::kGoOn);
  const std::int32_t env = old.worker.next();
  old.worker.advance(old.envs, env);
  old.die();
  p.await_loss(0);
  Batch batch = p.recv();  // answered, both of them
  CHECK(p.faults.size() == 2u);
  const std::string shown =
      test::row_bytes(p.pool->spec(), p.options.table(), batch.buffer->columns.c, env);
  CHECK(old.worker.publish(env, {}) == false);
  CHECK(old.worker.next() == -1);
  CHECK(test::row_bytes(p.pool->spec(), p.options.table(), batch.buffer->columns.c, env) == shown);
  Processes::drop(batch);
  CHECK(p.pool->to_restart() == (std::vector<std::pair<std::int32_t, std::uint32_t>>{{0, 2}}));
  p.send_orders({0, 1}, test::kGoOn);
  CHECK(old.worker.next() == -1);  // that is for the life to come
  Hand young(*p.pool, 0, 2);
  for (int i = 0; i < 2; ++i) CHECK(young.serve(young.worker.next()) == true);
  batch = p.recv();
  CHECK(p.faults.empty());
  Processes::drop(batch);
}

TEST(mail_goes_with_one_action) {
  Processes p(options_of(1, 1, 1), false);
  Hand hand(*p.pool, 0, 1);
  const auto next_mail = [&] {
    p.send_orders({0}, test::kGoOn);
    CHECK(hand.worker.next() == 0);
    const std::string mail = test::text_of(hand.worker.mail(0));
    hand.serve(0);
    p.recv_and_drop();
    return mail;
  };
  CHECK(next_mail() == "");
  for (const std::size_t size : {1u, 300u, 100'000u, 5u}) {
    const std::string mail(size, 'm');
    p.pool->set_mail(0, test::bytes_of(mail));
    CHECK((next_mail() == mail) == true);
    CHECK(next_mail() == "");
  }
  p.pool->set_mail(0, {});
  CHECK(next_mail() == "");
}

TEST(mail_that_grows_a_little_each_time_takes_little_memory) {
  Processes p(options_of(1, 1, 1), false);
  const std::size_t before = p.pool->memory();
  for (std::size_t size = 1; size < 20'000; size += 50) p.pool->set_mail(0, test::bytes_of(std::string(size, 'm')));
  CHECK(p.pool->memory() - before < 100'000u);
}

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

TEST(after_an_idle_death_the_next_action_is_answered_abnormal) {
  for (const std::int32_t batch : {4, 1}) {
    Processes p(options_of(4, batch, 2));
    Ledger ledger(p);
    ledger.excuse(0);
    ledger.send(all_of(4), test::kGoOn);
    ledger.drain();
    p.kill_and_await(0);
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
    ledger.excuse(0);
    ledger.send(all_of(4), test::kGoOn);
    ledger.drain();
    p.kill_and_await(0);
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

// ---- deadlines -----------------------------------------------------------------------------------

constexpr std::uint64_t kDeadline = 150'000'000;

TEST(a_step_that_is_too_long_is_answered_late) {
  for (const std::int32_t batch : {4, 1}) {
    ProcessDriverOptions options = options_of(4, batch, 2);
    options.deadlines.step = kDeadline;
    Processes p(options);
    Ledger ledger(p);
    ledger.send(all_of(4), test::kGoOn);  // resets have no deadline here
    ledger.drain();
    ledger.excuse(0);
    ledger.send({0}, test::kBlock);
    test::await_word("it runs", p.board().entered);
    ledger.send({1}, test::kGoOn);  // waits behind it
    std::vector<Ledger::Result> results;
    while (p.pool->in_flight_count() != 0)
      for (auto& result : ledger.receive()) results.push_back(std::move(result));
    CHECK(results.size() == 2u);
    for (const auto& result : results) {
      CHECK(result.lost() == true);
      if (!result.fault) continue;
      CHECK(result.fault->phase == SM_IN_STEP);
      CHECK(result.fault->kind == (result.env == 0 ? Fault::kLate : Fault::kDied));
      CHECK(contains(result.fault->message, result.env == 0 ? "step_timeout=0.15" : "missed its deadline"));
      CHECK(contains(result.fault->message, "the stack of a worker") == (result.env == 0));
    }
    test::until("it is killed", [&] { return !p.codes().empty(); });
    p.open_gate();
    for (const std::int32_t worker : {0, 1}) ledger.excuse(worker, 100);  // who knows, on a busy machine
    for (int i = 0; i < 3; ++i) {
      ledger.send(all_of(4), test::kGoOn);
      ledger.drain();
    }
  }
}

TEST(a_reset_has_a_deadline_of_its_own) {
  for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP}) {
    ProcessDriverOptions options = options_of(1, 1, 1);
    options.deadlines.reset = kDeadline;
    options.autoreset = mode;
    Processes p(options);
    p.send_orders({0}, test::kGoOn);
    p.recv_and_drop();
    p.send_orders({0}, test::kEndThenBlockInReset);
    if (mode == SM_NEXT_STEP) {
      p.recv_and_drop();
      CHECK(p.faults.empty());
      p.send_orders({0}, test::kGoOn);
    }
    const Batch batch = p.recv();
    CHECK(p.faults.size() == 1u);
    CHECK(p.faults[0].kind == Fault::kLate);
    CHECK(p.faults[0].phase == SM_IN_RESET);
    CHECK(contains(p.faults[0].message, "reset_timeout=0.15"));
    CHECK(batch.buffer->columns.c.ended[0] == (mode == SM_SAME_STEP));
    CHECK(batch.buffer->columns.c.truncated[0] == (mode == SM_NEXT_STEP));
    Processes::drop(batch);
  }
}

TEST(a_stopped_worker_misses_the_deadline_whatever_it_was_about) {
  for (const bool runs : {false, true}) {
    ProcessDriverOptions options = options_of(2, 2, 2);
    options.deadlines = {kDeadline, kDeadline};
    Processes p(options);
    Ledger ledger(p);
    for (const std::int32_t worker : {0, 1}) ledger.excuse(worker, 100);
    act(ledger, {0});
    if (runs) {
      ledger.send({0}, test::kBlock);
      test::await_word("it runs", p.board().entered);
    }
    p.stop(0);
    if (!runs) ledger.send({0}, test::kGoOn);
    const auto results = ledger.receive();
    CHECK(results[0].lost() == true);
    CHECK(results[0].fault->kind == Fault::kLate);
    CHECK(contains(results[0].fault->message, "stopped"));
    p.open_gate();
    for (int i = 0; i < 3; ++i) act(ledger, {0, 1});
  }
}

TEST(without_deadlines_a_stopped_worker_is_waited_for) {
  Processes p(options_of(2, 2, 2));
  Ledger ledger(p);
  act(ledger, {0, 1});
  p.stop(0);
  ledger.send({0, 1}, test::kGoOn);
  p.await_rest(1);
  CHECK(p.pool->ready() == false);
  p.signal(0, SIGCONT);
  for (const auto& result : ledger.receive()) CHECK(!result.fault);
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

// ---- calls ---------------------------------------------------------------------------------------

TEST(calls_are_answered_by_the_env_that_was_asked) {
  Processes p(options_of(4, 4, 2));
  Ledger ledger(p);
  act(ledger, all_of(4));
  for (std::int32_t env = 0; env < 4; ++env)
    for (const char* text : {"hello", "large 3000000", "", "large 10", "hello again"}) {
      const auto [answer, fault] = p.call(env, text);
      CHECK((answer == test::answer_to(text, env, 1)) == true);
      CHECK(!fault);
    }
  for (int i = 0; i < 3; ++i) act(ledger, all_of(4));
}

TEST(an_env_can_be_asked_before_its_first_action) {
  Processes p(options_of(2, 2, 1));
  Ledger ledger(p);
  CHECK(p.call(1, "hello").first == test::answer_to("hello", 1, 1));
  act(ledger, {0, 1});
}

TEST(a_call_waits_for_the_step_that_runs) {
  Processes p(options_of(2, 2, 1));
  Ledger ledger(p);
  act(ledger, {0, 1});
  ledger.send({0}, test::kBlock);
  test::await_word("it runs", p.board().entered);
  CHECK(p.pool->at_rest(0) == false);
  std::pair<std::string, std::optional<Fault>> got;
  std::thread opener([&] { p.open_gate(); });
  got = p.call(0, "hello");
  opener.join();
  CHECK(got.first == test::answer_to("hello", 0, 1));
  CHECK(!ledger.receive()[0].fault);  // whose row waited meanwhile
}

TEST(a_call_that_is_lost_with_its_worker_says_so) {
  for (const bool runs : {false, true}) {
    Processes p(options_of(3, 3, 1));
    Ledger ledger(p);
    ledger.excuse(0);
    act(ledger, all_of(3));
    p.pool->queue_call(0, test::bytes_of(std::string("block")));
    test::await_word("it runs", p.board().entered);
    if (!runs) p.pool->queue_call(1, test::bytes_of(std::string("hello")));
    p.signal(0, SIGKILL);
    for (const std::int32_t env : {0, 1}) {
      if (env == 1 && runs) p.pool->queue_call(1, test::bytes_of(std::string("hello")));  // lost while at rest
      const auto [answer, fault] = p.take_answer(env);
      CHECK(answer == "");
      CHECK(fault.has_value());
      if (!fault) continue;
      CHECK(fault->env == env);
      CHECK(fault->phase == SM_IN_CALL);
      CHECK(fault->kind == Fault::kDied);
      CHECK(contains(fault->message, "SIGKILL"));
    }
    p.open_gate();
    p.attend();
    for (const std::int32_t env : {0, 1, 2}) CHECK(p.call(env, "hello").second.has_value());  // until it acts again
    for (const auto& result : act(ledger, all_of(3))) CHECK(result.lost() == true);
    for (const std::int32_t env : {0, 1, 2}) CHECK(p.call(env, "hello").first == test::answer_to("hello", env, 2));
    for (const auto& result : act(ledger, all_of(3))) CHECK(!result.fault);
  }
}

TEST(a_call_that_ends_the_process_is_answered) {
  Processes p(options_of(2, 2, 2));
  Ledger ledger(p);
  act(ledger, {0, 1});
  const auto [answer, fault] = p.call(0, "exit");
  CHECK(fault.has_value());
  if (fault) CHECK(contains(fault->message, "exited with code 7"));
  CHECK(p.call(1, "hello").first == test::answer_to("hello", 1, 1));
}

TEST(a_call_that_takes_too_long_is_late) {
  ProcessDriverOptions options = options_of(2, 2, 1);
  options.deadlines.step = kDeadline;
  Processes p(options);
  Ledger ledger(p);
  ledger.excuse(0, 100);
  act(ledger, {0, 1});
  const auto [answer, fault] = p.call(0, "block");
  CHECK(fault.has_value());
  if (fault) CHECK(fault->kind == Fault::kLate);
  if (fault) CHECK(fault->phase == SM_IN_CALL);
  p.open_gate();
  for (int i = 0; i < 3; ++i) act(ledger, {0, 1});
}

// ---- ending --------------------------------------------------------------------------------------

int open_descriptors() {
  int count = 0;
  for (int number = 0; number < 1024; ++number) count += fcntl(number, F_GETFD) >= 0;
  return count;
}

TEST(workers_that_are_asked_to_stop_end_by_themselves) {
  Processes p(options_of(4, 4, 2));
  Ledger ledger(p);
  act(ledger, all_of(4));
  CHECK(p.pool->stopped() == false);
  p.pool->ask_to_stop();
  p.pool->wait_stopped(test::kPatience);
  CHECK(p.pool->stopped() == true);
  CHECK(p.pool->to_restart().empty());
  test::until("they are reaped", [&] { return p.codes().size() == 2; });
  CHECK(p.codes() == (std::vector<int>{0, 0}));
}

TEST(a_worker_that_starts_while_the_pool_stops_is_told_too) {
  Processes p(options_of(2, 2, 2), false);
  p.start(0, 1);
  p.pool->ask_to_stop();
  p.start(1, 1);
  p.pool->wait_stopped(test::kPatience);
  CHECK(p.pool->stopped() == true);
}

TEST(what_is_stuck_ends_by_force) {
  Processes p(options_of(2, 2, 2));
  Ledger ledger(p);
  act(ledger, {0, 1});
  ledger.excuse(0);
  ledger.send({0}, test::kBlock);
  test::await_word("it runs", p.board().entered);
  p.pool->ask_to_stop();
  test::until("the other has ended", [&] { return !p.is_alive(1); });
  CHECK(p.pool->stopped() == false);
  p.pool->kill();
  p.pool->wait_stopped(test::kPatience);
  CHECK(p.pool->stopped() == true);
  CHECK(ledger.receive()[0].lost() == true);  // what was in flight is answered to the last
}

TEST(nothing_is_left_behind) {
  const int before = open_descriptors();
  for (const bool in_flight : {false, true}) {
    Processes p(options_of(4, 2, 2));
    p.send_orders(all_of(4), test::kGoOn);
    p.recv_and_drop();
    p.recv_and_drop();
    p.kill_and_await(0);
    p.attend();
    if (in_flight) {
      p.send_orders({2}, test::kBlock);
      test::await_word("it runs", p.board().entered);
    }
    p.end();
    CHECK(p.codes() == std::vector<int>(3, -SIGKILL));
    CHECK(open_descriptors() == before);
  }
}

TEST(a_batch_outlives_its_pool) {
  Processes p(options_of(4, 4, 2));
  p.send_orders(all_of(4), test::kGoOn);
  const Batch batch = p.recv();
  const std::string row = test::row_bytes(p.pool->spec(), p.options.table(), batch.buffer->columns.c, 2);
  const EnvSpec spec = p.pool->spec();
  p.end();
  CHECK(test::row_bytes(spec, p.options.table(), batch.buffer->columns.c, 2) == row);
  Processes::drop(batch);
}

// ---- measurements --------------------------------------------------------------------------------

TEST(statistics_count_what_was_done) {
  Processes p(options_of(4, 4, 2));
  CHECK(p.pool->step_cost_ns() == 0.0);
  const double parts[] = {0.5, 1.0};
  CHECK(p.pool->step_percentiles(0, parts) == (std::vector<double>{0.0, 0.0}));
  for (int i = 0; i < 10; ++i) {
    p.send_orders(all_of(4), test::kGoOn);
    p.recv_and_drop();
  }
  for (const auto& worker : p.pool->worker_stats()) {
    CHECK(worker.alive == true);
    CHECK(worker.steps == 20u);
    CHECK(worker.busy_s > 0.0);
    CHECK(worker.restarts == 0u);
    CHECK(worker.outbox_bytes > 0u);
  }
  const auto times = p.pool->step_percentiles(0, parts);
  CHECK(times[0] > 0.0);
  CHECK(times[1] >= times[0]);
  CHECK(p.pool->step_cost_ns() > 0.0);
}

// ---- at random instants ---------------------------------------------------------------------------

std::uint32_t seed_of_the_run() {
  const char* given = std::getenv("STEPMILL_SEED");
  const auto seed = static_cast<std::uint32_t>(given ? std::strtoul(given, nullptr, 10) : 20240229);
  std::cout << "STEPMILL_SEED=" << seed << std::endl;
  return seed;
}

// A while that is as short as a step, or as long as several batches.
void linger(std::mt19937& random) {
  const int most = 1 << random() % 9;
  spin_until(std::chrono::microseconds(random() % static_cast<std::uint32_t>(most)), [] { return false; });
}

TEST(workers_killed_at_random_instants_lose_no_action) {
  constexpr int kKills = test::kSanitized ? 80 : 260;
  const std::uint32_t seed = seed_of_the_run();
  int kills = 0;
  for (int round = 0; kills < kKills && test::failed_checks == 0; ++round) {
    ProcessDriverOptions options = options_of(7, std::array{7, 3, 1, 7}[static_cast<std::size_t>(round % 4)], 3);
    options.as_ready = round % 4 == 3;
    options.work = 100;
    options.autoreset = round / 4 % 2 ? SM_SAME_STEP : SM_NEXT_STEP;
    options.keep_last_observation = round / 8 % 2 == 0;
    Processes p(options);
    Ledger ledger(p, seed + static_cast<std::uint32_t>(round));
    auto& random = ledger.random;
    for (int i = 0; i < 20 && test::failed_checks == 0; ++i) {
      ledger.send_any(random() % 2 == 0, true, options.as_ready);
      if (random() % 5 == 0 && !ledger.idle().empty() && p.pool->is_async() && !p.pool->gathering())
        ledger.send_reset(ledger.idle(), true);
      for (std::uint32_t victims = random() % 3; victims > 0; --victims) {
        const auto worker = static_cast<std::int32_t>(random() % 3);
        linger(random);
        ledger.excuse(worker);
        p.signal(worker, SIGKILL);
        ++kills;
        if (random() % 2 == 0) p.attend();  // then the next one may still be starting
      }
      if (options.as_ready && random() % 4 != 0)
        receive_some_kind(p, ledger);
      else
        ledger.receive();
    }
    ledger.drain();
    for (int i = 0; i < 2; ++i) {  // everybody is well again
      ledger.send_any(false, false);
      ledger.drain();
    }
    std::vector<int> before;
    for (std::int32_t env = 0; env < 7; ++env) before.push_back(ledger.lost(env));
    for (int i = 0; i < 3; ++i) {
      ledger.send_any(false, false);
      ledger.drain();
    }
    for (std::int32_t env = 0; env < 7; ++env) CHECK(ledger.lost(env) == before[static_cast<std::size_t>(env)]);
  }
  CHECK(kills >= kKills);
}

TEST(workers_stopped_and_continued_at_random_instants_lose_nothing) {
  const std::uint32_t seed = seed_of_the_run();
  for (int round = 0; round < 6; ++round) {
    ProcessDriverOptions options = options_of(7, std::array{7, 3, 7}[static_cast<std::size_t>(round % 3)], 3);
    options.as_ready = round % 3 == 2;
    Processes p(options);
    Ledger ledger(p, seed + static_cast<std::uint32_t>(round));
    auto& random = ledger.random;
    for (int i = 0; i < (test::kSanitized ? 30 : 100); ++i) {
      ledger.send_any(random() % 2 == 0, true, options.as_ready);
      const auto worker = static_cast<std::int32_t>(random() % 3);
      linger(random);
      p.signal(worker, SIGSTOP);
      linger(random);
      p.signal(worker, SIGCONT);
      if (options.as_ready)
        receive_some_kind(p, ledger);
      else
        ledger.receive();
    }
    ledger.drain();
    for (std::int32_t env = 0; env < 7; ++env) CHECK(ledger.lost(env) == 0);
  }
}

}  // namespace
}  // namespace stepmill
