// Pools whose results come as they are ready: batches that end early, and waits for steps, which resets do not end.
#include <poll.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "core/local_pool.h"
#include "tests/check.h"
#include "tests/pool_driver.h"

namespace stepmill::pool_as_ready_test {

using test::all_of;
using test::async_of;
using test::Driver;
using test::DriverOptions;
using test::Ids;
using test::resets_of;
using test::steps_of;

DriverOptions as_ready_of(std::int32_t envs, std::int32_t batch, std::int32_t threads) {
  DriverOptions options = async_of(envs, batch, threads, 200);
  options.as_ready = true;
  return options;
}

TEST(a_pool_of_all_envs_can_give_results_as_they_are_ready) {
  Driver d(as_ready_of(4, 4, 0));  // the caller steps, and stops where it is content
  CHECK(d.pool.is_async() == true);
  d.send({2, 0, 3}, test::kGoOn);
  const Batch two = d.recv_some(2);
  CHECK(two.rows >= 2);
  CHECK(d.pool.in_flight_count() == 3 - two.rows);
  d.send({1}, test::kGoOn);  // behind the seal
  const Batch rest = d.recv();
  CHECK(rest.rows == 4 - two.rows);
  CHECK(d.pool.in_flight_count() == 0);
  Ids seen = d.ids(two);
  for (const std::int32_t id : d.ids(rest)) seen.push_back(id);
  std::sort(seen.begin(), seen.end());
  CHECK(seen == all_of(4));
  d.drop(two);
  d.drop(rest);
}

// Batches are ended at any time, with any number of rows taken, written and to come, while threads take slots.
TEST(batches_that_end_early_lose_and_double_nothing) {
  for (const std::int32_t threads : {0, 1, 3})
    for (const std::int32_t batch : {1, 3, 7}) {
      Driver d(as_ready_of(7, batch, threads));
      std::vector<double> steps(7, -1.0);  // the first action of an env is its reset
      std::vector<std::uint8_t> idle(7, 1);
      std::uint32_t dice = 12345;
      for (int turn = 0; turn < 4000; ++turn) {
        dice = dice * 1664525u + 1013904223u;
        Ids chosen;
        for (std::int32_t env = 0; env < 7; ++env)
          if (idle[static_cast<std::size_t>(env)] && ((dice >> (env + 8)) & 1)) chosen.push_back(env);
        if (!chosen.empty()) d.send(chosen, test::kGoOn);
        for (const std::int32_t env : chosen) idle[static_cast<std::size_t>(env)] = 0;
        if (d.pool.in_flight_count() == 0) continue;
        const Batch some = d.recv_some(1 + static_cast<std::int32_t>((dice >> 20) % 3));
        CHECK(some.rows >= 1);
        for (std::int32_t row = 0; row < some.rows; ++row) {
          const auto env = static_cast<std::size_t>(d.ids(some)[static_cast<std::size_t>(row)]);
          CHECK(idle[env] == 0);
          idle[env] = 1;
          steps[env] += 1.0;
          CHECK(steps_of(some, row) == steps[env]);
        }
        d.drop(some);
      }
    }
}

// ---- a caller in an event loop -------------------------------------------------------------------

// As an event loop waits for a row: it steps what only the caller steps, and then sleeps until the event is rung. A lost
// wake-up would last until the alarm.
void wait_in_loop(Driver& d) {
  for (;;) {
    while (d.pool.needs_caller()) d.pool.work_or_wait(std::chrono::nanoseconds(0));
    if (!d.pool.watch_rows()) return;
    pollfd one{d.pool.rows_event().descriptor(), POLLIN, 0};
    CHECK(poll(&one, 1, -1) == 1);
    d.pool.look_again(true);
  }
}

// A sync pool returns rows as they are ready for a while, and then batches of all envs again.
TEST(a_pool_changes_the_order_of_its_results_as_often_as_one_likes) {
  constexpr std::int32_t kEnvs = 9;
  for (const std::int32_t threads : {0, 1, 3})
    for (const int work : {1, 2'000}) {
      Driver d(async_of(kEnvs, kEnvs, threads, work));
      std::vector<double> steps(kEnvs, -1.0);  // the first action of an env is its reset
      std::mt19937 random(static_cast<unsigned>(threads));
      const auto take = [&](const Batch& batch, std::vector<std::uint8_t>& idle) {
        for (std::int32_t row = 0; row < batch.rows; ++row) {
          const auto env = static_cast<std::size_t>(d.ids(batch)[static_cast<std::size_t>(row)]);
          CHECK(idle[env] == 0);
          idle[env] = 1;
          steps[env] += 1.0;
          CHECK(steps_of(batch, row) == steps[env]);
        }
        d.drop(batch);
      };
      d.pool.rows_event().open();
      for (int round = 0; round < 50; ++round) {
        d.send(all_of(kEnvs), test::kGoOn);
        std::vector<std::uint8_t> idle(kEnvs, 0);
        const Batch all = d.recv();
        CHECK(all.all_in_order == true);
        take(all, idle);
        d.pool.return_as_ready(true);
        CHECK(d.pool.is_async() == true);
        for (int turn = 0; turn < 40 || d.pool.in_flight_count() != 0; ++turn) {
          Ids chosen;
          for (std::int32_t env = 0; turn < 40 && env < kEnvs; ++env)
            if (idle[static_cast<std::size_t>(env)] && random() % 2 == 0) chosen.push_back(env);
          std::shuffle(chosen.begin(), chosen.end(), random);
          if (!chosen.empty()) d.send(chosen, test::kGoOn);
          for (const std::int32_t env : chosen) idle[static_cast<std::size_t>(env)] = 0;
          if (d.pool.in_flight_count() == 0) continue;
          wait_in_loop(d);
          take(d.recv_some(1), idle);
        }
        d.pool.return_as_ready(false);
        CHECK(d.pool.is_async() == false);
      }
    }
}

// ---- waits for steps, which resets do not end ----

// The ids of a batch that is let go of at once.
Ids some_of(Driver& d, std::int32_t at_least, bool steps_only) {
  const Batch batch = d.recv_some(at_least, steps_only);
  d.drop(batch);
  return d.ids(batch);
}

// The caller of these pools does one action after the other, in the order sent, until it has what it waits for: a
// first action is never measured, and what was never measured is not done in chunks.
TEST(a_wait_for_steps_goes_on_past_resets) {
  for (const bool steps_only : {false, true}) {
    Driver d(as_ready_of(5, 5, 0));
    d.send_reset({4, 2, 0}, false);
    d.send({1, 3}, test::kGoOn);
    CHECK(some_of(d, 1, steps_only) == (steps_only ? Ids{4, 2, 0, 1} : Ids{4}));
    CHECK(some_of(d, 1, true) == (steps_only ? Ids{3} : Ids{2, 0, 1}));
    CHECK(d.pool.in_flight_count() == (steps_only ? 0 : 1));
    while (d.pool.in_flight_count() != 0) d.recv_and_drop();
  }
}

TEST(resets_that_come_after_the_steps_stay_behind) {
  Driver d(as_ready_of(5, 5, 0));
  d.send_reset({3}, false);
  d.send({1, 0}, test::kGoOn);
  d.send_reset({2, 4}, false);
  CHECK(some_of(d, 2, true) == Ids{3, 1, 0});
  CHECK(d.pool.in_flight(2) == true);
  CHECK(d.pool.in_flight(4) == true);
  d.send({1}, test::kGoOn);  // there is a step again, behind them
  CHECK(some_of(d, 1, true) == Ids{2, 4, 1});
}

TEST(where_only_resets_are_in_flight_they_are_waited_for) {
  Driver d(as_ready_of(4, 4, 0));
  d.send_reset({3, 0, 1}, false);
  CHECK(some_of(d, 2, true) == Ids{3, 0});
  CHECK(some_of(d, 4, true) == Ids{1});
  CHECK(d.pool.in_flight_count() == 0);
}

TEST(who_waits_for_more_steps_than_are_in_flight_gets_these) {
  Driver d(as_ready_of(6, 6, 0));
  d.send_reset({0}, false);
  d.send({1}, test::kGoOn);
  d.send_reset({2}, false);
  d.send({3}, test::kGoOn);
  d.send_reset({4, 5}, false);
  CHECK(some_of(d, 6, true) == Ids{0, 1, 2, 3});
  CHECK(some_of(d, 6, true) == Ids{4, 5});
}

TEST(an_env_counts_as_what_it_was_sent_last) {
  DriverOptions options = as_ready_of(3, 3, 0);
  options.work = 50'000;  // too much for two in a chunk
  Driver d(options);
  for (const bool resets : {true, false, false, true, true, false}) {
    d.send_reset({1}, false);
    if (resets)
      d.send_reset({0}, false);
    else
      d.send({0}, test::kTerminate);  // after an end a step resets, and is a step nevertheless
    d.send({2}, test::kGoOn);
    CHECK(some_of(d, 1, true) == (resets ? Ids{1, 0, 2} : Ids{1, 0}));
    while (d.pool.in_flight_count() != 0) d.recv_and_drop();
  }
}

TEST(a_gather_is_no_part_of_a_wait_for_steps) {
  for (const bool gathers_first : {true, false}) {
    Driver d(as_ready_of(6, 6, 0));
    if (gathers_first) d.send_reset({5, 4}, true);
    d.send_reset({0, 3}, false);
    d.send({1}, test::kGoOn);
    if (!gathers_first) d.send_reset({5, 4}, true);
    CHECK(some_of(d, 1, true) == Ids{5, 4});
    CHECK(d.pool.gathering() == false);
    CHECK(some_of(d, 1, true) == Ids{0, 3, 1});
  }
}

// Of batches that have no room for all, nobody knows how many steps will be in one.
TEST(in_smaller_batches_rows_of_any_kind_are_waited_for) {
  Driver d(as_ready_of(4, 2, 0));
  d.send_reset({0, 1}, false);
  d.send({2, 3}, test::kGoOn);
  CHECK(some_of(d, 1, true) == Ids{0});
  CHECK(some_of(d, 2, true) == Ids{1, 2});
  CHECK(some_of(d, 2, true) == Ids{3});
}

// Who counted the last row may have seen nobody wait: the caller looks once more before it sleeps.
TEST(a_wait_for_a_step_that_is_there_does_not_sleep) {
  std::deque<SpinBudget::Licence> all_cores;  // are busy: nobody spins
  for (int i = 0; i < available_cores(); ++i) all_cores.emplace_back(SpinBudget::instance());
  Driver d(as_ready_of(3, 3, 1));
  d.send_reset({0}, false);
  d.send({1}, test::kGoOn);
  d.pool.be_content_with(1, true);
  d.wait();
  const auto from = Clock::now();
  d.pool.work_or_wait(std::chrono::seconds(20));
  CHECK((Clock::now() - from < std::chrono::seconds(20)) == true);
  d.pool.be_content_with(0);
  while (d.pool.in_flight_count() != 0) d.recv_and_drop();
}

// Steps, resets, gathers and all kinds of waits, while threads take slots.
TEST(waits_for_steps_get_them_and_lose_and_double_nothing) {
  constexpr std::int32_t kEnvs = 7;
  struct Member {
    enum { kIdle, kSteps, kResets } sent = kIdle;
    double steps = 0.0, resets = 0.0;  // that it must show
  };
  for (const std::int32_t threads : {0, 1, 3}) {
    Driver d(as_ready_of(kEnvs, kEnvs, threads));
    std::vector<Member> members(kEnvs);
    std::mt19937 random(static_cast<std::uint32_t>(threads));
    const auto count = [&](auto what) { return std::count_if(members.begin(), members.end(), what); };
    const auto settle = [&](const Batch& batch) {
      std::int32_t steps = 0;
      for (std::int32_t row = 0; row < batch.rows; ++row) {
        Member& its = members[static_cast<std::size_t>(d.ids(batch)[static_cast<std::size_t>(row)])];
        CHECK(its.sent != Member::kIdle);
        steps += its.sent == Member::kSteps;
        its.sent = Member::kIdle;
        CHECK(steps_of(batch, row) == its.steps);
        CHECK(resets_of(batch, row) == its.resets);
      }
      d.drop(batch);
      return steps;
    };
    for (int turn = 0; turn < (test::kSanitized ? 1000 : 6000) && test::failed_checks == 0; ++turn) {
      Ids stepped, reset;
      for (std::int32_t env = 0; env < kEnvs; ++env) {
        Member& its = members[static_cast<std::size_t>(env)];
        if (its.sent != Member::kIdle || random() % 2 == 0) continue;
        const bool resets = random() % 2 == 0;
        its.sent = resets ? Member::kResets : Member::kSteps;
        (resets || its.resets == 0.0 ? its.resets : its.steps) += 1.0;
        (resets ? reset : stepped).push_back(env);
      }
      const bool gathers = random() % 8 == 0 && !reset.empty(), resets_first = random() % 2 == 0;
      if (resets_first && !reset.empty()) d.send_reset(reset, gathers);
      if (!stepped.empty()) d.send(stepped, test::kGoOn);
      if (!resets_first && !reset.empty()) d.send_reset(reset, gathers);
      if (gathers) {
        const Batch gathered = d.recv_some(1 + static_cast<std::int32_t>(random() % 4), random() % 2 == 0);
        CHECK(d.ids(gathered) == reset);
        CHECK(settle(gathered) == 0);
      }
      const auto in_flight = count([](const Member& its) { return its.sent != Member::kIdle; });
      const auto steps = count([](const Member& its) { return its.sent == Member::kSteps; });
      CHECK(d.pool.in_flight_count() == in_flight);
      if (in_flight == 0) continue;
      const auto at_least = static_cast<std::int32_t>(1 + random() % 4);
      const bool steps_only = random() % 4 != 0;
      const Batch some = d.recv_some(at_least, steps_only);
      const std::int32_t come = settle(some);
      if (steps_only && steps > 0)
        CHECK(come >= std::min<std::ptrdiff_t>(at_least, steps));
      else
        CHECK(some.rows >= std::min<std::ptrdiff_t>(at_least, in_flight));
    }
  }
}

}  // namespace stepmill::pool_as_ready_test
