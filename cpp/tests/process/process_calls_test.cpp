// Questions to envs, beside their actions.
#include <thread>

#include "tests/check.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"

namespace stepmill::process_calls_test {

using test::act;
using test::all_of;
using test::contains;
using test::Ledger;
using test::options_of;
using test::Processes;

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

}  // namespace stepmill::process_calls_test
