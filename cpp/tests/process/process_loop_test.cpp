// A worker with an event loop, by hand and in one process: many of its envs are RUNNING at once, a descriptor wakes it.
#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "tests/check.h"
#include "tests/process/process_driver.h"

namespace stepmill::process_loop_test {

using test::Ids;
using test::Processes;

test::ProcessDriverOptions options_of(std::int32_t envs, std::int32_t most_running) {
  test::ProcessDriverOptions options = test::options_of(envs, 1, 1);
  options.most_running = most_running;
  return options;
}

struct Looped {
  explicit Looped(ProcessPool& pool, std::uint32_t life = 1)
      : outbox(Outbox::create()),
        end(eventfd(0, EFD_CLOEXEC)),
        bell(pool.bell_descriptor(0)),
        worker(pool.arena_descriptor(), outbox, pool.rows_event_descriptor(), pool.spec(), pool.plan(),
               test::post_of(pool.plan(), 0, life)),
        envs(test::steered_table(), test::steered_configs(worker.first_env(), worker.env_count(), 1),
             worker.first_env()) {
    worker.announce();
    pool.admit(0, life, getpid(), end, end, outbox, 0);
  }
  ~Looped() {
    ::close(outbox);
    ::close(end);
  }
  Ids take_all() {
    Ids out;
    for (std::int32_t env = worker.next(); env >= 0; env = worker.next()) out.push_back(env);
    return out;
  }
  void serve(std::int32_t env) {
    worker.advance(envs, env);
    CHECK(worker.publish(env, {}) == true);
  }
  // Whether the descriptor was written since the last time.
  bool was_rung() const {
    std::uint64_t count = 0;
    return read(bell, &count, sizeof count) == sizeof count;
  }
  void die() const {
    const std::uint64_t one = 1;
    (void)!write(end, &one, sizeof one);
  }

  const int outbox, end, bell;
  ProcessWorker worker;
  EnvSet envs;
};

TEST(many_run_and_no_more_than_may) {
  Processes p(options_of(5, 3), false);
  Looped hand(*p.pool);
  p.send_orders({0, 1, 2, 3, 4}, test::kGoOn);
  const Ids first = hand.take_all();
  CHECK(first.size() == 3u);
  CHECK(hand.worker.is_full() == true);
  CHECK(hand.worker.doze() == true);  // the end of one of them is what it waits for
  hand.worker.rise();
  hand.serve(first[1]);
  CHECK(hand.take_all().size() == 1u);
  p.recv_and_drop();
}

// They end in another order than they began, and every row is that of its env.
TEST(they_end_in_any_order) {
  Processes p(options_of(4, 4), false);
  Looped hand(*p.pool);
  for (int round = 0; round < 50; ++round) {
    p.send_orders({0, 1, 2, 3}, test::kGoOn);
    Ids running = hand.take_all();
    CHECK(running.size() == 4u);
    std::rotate(running.begin(), running.begin() + round % 4, running.end());
    for (const std::int32_t env : running) {
      hand.serve(env);
      const Batch batch = p.recv();
      CHECK(p.faults.empty());
      CHECK(batch.buffer->columns.c.env_id[0] == env);
      Processes::drop(batch);
    }
  }
}

TEST(who_dozes_is_rung) {
  Processes p(options_of(2, 2), false);
  Looped hand(*p.pool);
  hand.worker.rise();
  CHECK(hand.take_all().empty());
  CHECK(hand.worker.doze() == true);
  p.send_orders({0}, test::kGoOn);
  CHECK(hand.was_rung() == true);
  hand.worker.rise();
  CHECK(hand.take_all() == Ids{0});
  p.send_orders({1}, test::kGoOn);
  CHECK(hand.worker.doze() == false);  // there is something already
  CHECK(hand.take_all() == Ids{1});
  for (const std::int32_t env : {0, 1}) hand.serve(env);
  for (int i = 0; i < 2; ++i) p.recv_and_drop();
}

// Caller and loop go round without a pause. A ring that is lost is made up for by a pulse of the monitor, half a second
// later: rings that are lost as a rule take longer than a test may.
TEST(no_ring_is_lost) {
  Processes p(options_of(2, 2), false);
  Looped hand(*p.pool);
  std::thread loop([&] {
    while (!hand.worker.told_to_stop()) {
      hand.worker.rise();
      for (const std::int32_t env : hand.take_all()) hand.serve(env);
      if (!hand.worker.doze()) continue;
      pollfd one{hand.bell, POLLIN, 0};
      poll(&one, 1, -1);
      hand.was_rung();
    }
  });
  for (int round = 0; round < 20'000; ++round) {
    p.send_orders({round % 2}, test::kGoOn);
    p.recv_and_drop();
  }
  p.pool->ask_to_stop();
  loop.join();
  hand.die();
}

TEST(what_is_cancelled_is_told_once_and_no_other_action_is) {
  Processes p(options_of(3, 3), false);
  Looped hand(*p.pool);
  p.send_orders({0, 1, 2}, test::kGoOn);
  CHECK(hand.take_all().size() == 3u);
  CHECK(hand.worker.next_cancelled() == -1);
  CHECK(hand.worker.doze() == true);
  p.pool->cancel(Ids{1});
  CHECK(hand.was_rung() == true);
  hand.worker.rise();
  CHECK(hand.worker.next_cancelled() == 1);
  CHECK(hand.worker.next_cancelled() == -1);
  CHECK(hand.worker.is_cancelled(1) == true);
  CHECK(hand.worker.is_cancelled(0) == false);
  for (const std::int32_t env : {0, 1, 2}) hand.serve(env);
  for (int i = 0; i < 3; ++i) p.recv_and_drop();
  p.send_orders({1}, test::kGoOn);
  CHECK(hand.take_all() == Ids{1});
  CHECK(hand.worker.is_cancelled(1) == false);
  hand.serve(1);
  p.recv_and_drop();
}

TEST(a_death_answers_for_all_that_ran_and_for_all_that_were_queued) {
  Processes p(options_of(6, 4), false);
  Looped old(*p.pool);
  p.send_orders({0, 1, 2, 3, 4, 5}, test::kGoOn);
  const Ids running = old.take_all();
  CHECK(running.size() == 4u);
  old.serve(running[0]);
  old.die();
  p.await_loss(0);
  std::multiset<std::int32_t> answered;
  std::size_t faults = 0;
  for (int i = 0; i < 6; ++i) {
    const Batch batch = p.recv();
    answered.insert(batch.buffer->columns.c.env_id[0]);
    faults += p.faults.size();
    Processes::drop(batch);
  }
  CHECK(answered == (std::multiset<std::int32_t>{0, 1, 2, 3, 4, 5}));
  CHECK(faults == 5u);
  old.worker.advance(old.envs, running[1]);
  CHECK(old.worker.publish(running[1], {}) == false);
}

}  // namespace stepmill::process_loop_test
