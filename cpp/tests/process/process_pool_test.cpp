// How a process pool ends, what it measures, and that nothing is lost whenever its workers die.
#include <fcntl.h>

#include <array>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/check.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"

namespace stepmill::process_pool_test {

using test::act;
using test::all_of;
using test::Ledger;
using test::options_of;
using test::ProcessDriverOptions;
using test::Processes;
using test::receive_some_kind;

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
  p.pool->wait_stopped(test::kLongEnough);
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
  p.pool->wait_stopped(test::kLongEnough);
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
  p.pool->wait_stopped(test::kLongEnough);
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
  for (int i = 0; i < 10; ++i) {
    p.send_orders(all_of(4), test::kGoOn);
    p.recv_and_drop();
  }
  for (std::int32_t worker = 0; worker < 2; ++worker) {
    CHECK(p.is_alive(worker) == true);
    CHECK(p.restarts(worker) == 0u);
    CHECK(p.pool->outbox_bytes()[static_cast<std::size_t>(worker)] > 0u);
  }
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

}  // namespace stepmill::process_pool_test
