// Steps, resets and calls that take too long, and workers that stand still.
#include "tests/check.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"

namespace stepmill::process_deadlines_test {

using test::act;
using test::all_of;
using test::contains;
using test::Ledger;
using test::options_of;
using test::ProcessDriverOptions;
using test::Processes;

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

TEST(a_slow_env_without_a_deadline_is_reported_once) {
  ProcessDriverOptions options = options_of(2, 1, 2);
  options.deadlines.slow = kDeadline;
  Processes p(options);
  Ledger ledger(p);
  for (const std::int32_t env : {0, 1}) act(ledger, {env});
  ledger.send({0}, test::kBlock);
  test::until("it is reported", [&] { return p.pool->wants_attention(); });
  const auto news = p.pool->take_news();
  CHECK(news.size() == 1u);
  if (!news.empty()) {
    CHECK(contains(news[0], "env 0 has been in step for 0.15 s, and no step_timeout ends it. It runs in worker 0 (pid "));
    CHECK(contains(news[0], "the stack of a worker"));
  }
  CHECK(p.pool->wants_attention() == false);
  ledger.send({1}, test::kBlock);
  test::until("the other one is reported", [&] { return p.pool->wants_attention(); });
  const auto more = p.pool->take_news();
  CHECK(more.size() == 1u);
  if (!more.empty()) CHECK(contains(more[0], "env 1 has been in step"));
  if (!more.empty()) CHECK(!contains(more[0], "env 0 "));
  p.open_gate();
  for (int i = 0; i < 2; ++i)
    for (const auto& result : ledger.receive()) CHECK(!result.fault);
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

}  // namespace stepmill::process_deadlines_test
