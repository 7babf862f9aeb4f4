#include "core/local_pool.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <thread>

#include "tests/check.h"
#include "tests/pool_driver.h"

namespace stepmill::pool_test {

using test::all_of;
using test::async_of;
using test::Driver;
using test::DriverOptions;
using test::Ids;
using test::steps_of;
using test::sync_of;

template <class E>
std::unique_ptr<EnvSet> envs_of(const char* name, std::int32_t count) {
  return std::make_unique<EnvSet>(*table_of<E>(name), std::vector<Config>(static_cast<std::size_t>(count)));
}

TEST(a_sync_batch_has_the_order_it_was_sent_in) {
  for (const std::int32_t threads : {0, 1, 3}) {
    Driver d(sync_of(5, threads));
    CHECK(d.pool.expected() == 0);
    d.send({3, 1, 4, 0, 2}, test::kGoOn);
    CHECK(d.pool.in_flight_count() == 5);
    CHECK(d.pool.in_flight(3) == true);
    const Batch batch = d.recv();
    CHECK(d.ids(batch) == Ids{3, 1, 4, 0, 2});
    CHECK(d.pool.in_flight_count() == 0);
    CHECK(d.pool.in_flight(3) == false);
    d.drop(batch);
  }
}

TEST(sync_sends_add_up_to_one_batch) {
  Driver d(sync_of(5));
  d.send({3}, test::kGoOn);
  d.send({1, 4}, test::kGoOn);
  const Batch batch = d.recv();
  CHECK(d.ids(batch) == Ids{3, 1, 4});
  d.drop(batch);
}

// All envs in the order of their ids are queued another way than some of them, or in another order.
TEST(sends_of_all_and_of_some_follow_each_other) {
  constexpr std::int32_t kEnvs = 200;
  Driver d(sync_of(kEnvs, 2));
  const Ids every = all_of(kEnvs);
  Ids backwards(every.rbegin(), every.rend());
  double steps = 0;
  for (int round = 0; round < 60; ++round) {
    const Ids& sent = round % 5 == 3 ? backwards : every;
    d.send(sent, test::kGoOn);
    Batch batch = d.recv();
    CHECK(d.ids(batch) == sent);
    if (round > 0) steps += 1;  // the first action stands for a reset
    for (std::int32_t row = 0; row < kEnvs; ++row) CHECK(steps_of(batch, row) == steps);
    d.drop(batch);
    if (round % 7 != 0) continue;
    for (const std::int32_t env : {3, 77}) {
      d.send({env}, test::kGoOn);
      batch = d.recv();
      CHECK(d.ids(batch) == Ids{env});
      d.drop(batch);
    }
    Ids others;
    for (const std::int32_t env : every)
      if (env != 3 && env != 77) others.push_back(env);
    d.send(others, test::kGoOn);
    batch = d.recv();
    CHECK(d.ids(batch) == others);
    d.drop(batch);
    steps += 1;
  }
}

struct Quick : test::Obedient {
  static constexpr bool kNeverBlocks = true;
  using Obedient::Obedient;
};

TEST(threads_do_pieces_between_two_batches) {
  constexpr std::int32_t kEnvs = 512;
  const DriverOptions o = sync_of(kEnvs, 4);
  LocalPool pool(std::make_unique<EnvSet>(*table_of<Quick>("Quick"), test::obedient_configs(kEnvs, 100)),
                 test::obedient_spec(), o.pool());
  const Ids every = all_of(kEnvs);
  struct Actions {
    std::int64_t* table;
    static void write(void* context, std::uint32_t piece) {
      auto* first = static_cast<Actions*>(context)->table + piece * 32;
      std::fill(first, first + 32, test::kGoOn);
    }
  } actions{reinterpret_cast<std::int64_t*>(pool.table().action(0))};
  std::vector<Fault> faults;
  for (int round = 0; round < 50; ++round) {
    for (std::int32_t i = 0; i < kEnvs; ++i) actions.table[i] = test::kThrowInStep;  // unless it is overwritten
    pool.do_pieces(kEnvs / 32, Actions::write, &actions);
    pool.send(every, false, true);
    while (!pool.ready()) pool.work_or_wait(std::chrono::seconds(20));
    const Batch batch = pool.take_batch(faults);
    for (std::int32_t row = 0; row < kEnvs; ++row) CHECK(steps_of(batch, row) == round);
    batch.store->release(batch.buffer);
  }
  CHECK(faults.empty() == true);
}

TEST(an_async_batch_holds_any_envs_each_once) {
  for (const std::int64_t work : {1, 3000})
    for (const std::int32_t threads : {0, 1, 3}) {
      Driver d(async_of(10, 4, threads, work));
      d.send(all_of(10), test::kGoOn);
      Ids seen;
      for (const std::int32_t rows : {4, 4, 2}) {  // what is left fills no batch, and comes as it is
        const Batch batch = d.recv();
        CHECK(batch.rows == rows);
        for (const std::int32_t id : d.ids(batch)) seen.push_back(id);
        d.drop(batch);
      }
      std::sort(seen.begin(), seen.end());
      CHECK(seen == all_of(10));
      CHECK(d.pool.in_flight_count() == 0);
      d.send({7}, test::kGoOn);  // the short batch before left a clean ring
      const Batch batch = d.recv();
      CHECK(d.ids(batch) == Ids{7});
      CHECK(steps_of(batch, 0) == 1.0);
      d.drop(batch);
    }
}

TEST(a_gather_comes_first_and_in_its_order) {
  for (const std::int64_t work : {1, 3000}) {
    Driver d(async_of(8, 3, 2, work));
    d.send({0, 1, 2, 3, 4}, test::kGoOn);
    CHECK(d.pool.gathering() == false);
    d.send_reset({7, 5, 6}, true);
    CHECK(d.pool.gathering() == true);
    const Batch gathered = d.recv();
    CHECK(d.ids(gathered) == Ids{7, 5, 6});
    CHECK(d.pool.gathering() == false);
    CHECK(d.pool.in_flight_count() == 5);
    const Batch full = d.recv(), rest = d.recv();
    CHECK(full.rows == 3);
    CHECK(rest.rows == 2);
    for (const Batch& batch : {gathered, full, rest}) d.drop(batch);
  }
}

// Waits for all rows, takes them, and puts them back.
void take_and_put_back(Driver& d) {
  {
    Pool::LookAhead ahead(d.pool);
    do d.wait();
    while (ahead.go_on());
  }
  struct Taken {
    Batch batch;
    bool gather;
  };
  std::vector<Taken> taken;
  while (d.pool.in_flight_count() != 0) {
    CHECK(d.pool.ready());
    const bool gather = d.pool.gathering();
    taken.push_back({d.recv(), gather});
  }
  for (const auto& [batch, gather] : taken) {
    d.pool.put_back(d.ids(batch), gather, batch.store->layout(),
                    reinterpret_cast<const std::byte*>(batch.buffer->header));
    d.drop(batch);
  }
}

TEST(rows_that_are_put_back_keep_their_places) {
  for (const std::int64_t work : {1, 3000})
    for (const std::int32_t threads : {0, 2}) {
      Driver d(async_of(10, 4, threads, work));
      d.send({0, 1, 2, 3, 4}, test::kGoOn);
      d.send_reset({7, 5, 6}, true);
      for (int round = 0; round < 3; ++round) take_and_put_back(d);
      CHECK(d.pool.in_flight_count() == 8);
      d.send({9, 8}, test::kGoOn);
      const Batch gathered = d.recv(), full = d.recv(), rest = d.recv();
      CHECK(d.ids(gathered) == Ids{7, 5, 6});
      CHECK(full.rows == 4);
      CHECK(rest.rows == 3);  // the one that was put back, and the two that were sent later
      Ids ids = d.ids(full);
      for (const std::int32_t id : d.ids(rest)) ids.push_back(id);
      CHECK(ids[4] < 5);
      std::sort(ids.begin(), ids.end());
      CHECK(ids == Ids{0, 1, 2, 3, 4, 8, 9});
      CHECK(test::resets_of(full, 0) == 1.0);
      for (const Batch& batch : {gathered, full, rest}) d.drop(batch);
    }
}

TEST(rows_that_are_put_back_come_before_later_ones_in_a_sync_batch) {
  Driver d(sync_of(5));
  d.send({3, 1}, test::kGoOn);
  take_and_put_back(d);
  d.send({4, 0}, test::kGoOn);
  const Batch batch = d.recv();
  CHECK(d.ids(batch) == Ids{3, 1, 4, 0});
  d.drop(batch);
}

TEST(what_was_handed_out_stays_as_it_was) {
  Driver d(sync_of(6));
  std::vector<Batch> held;
  std::vector<std::string> rows;
  for (int i = 0; i < 40; ++i) {
    d.send(all_of(6), test::kGoOn);
    held.push_back(d.recv());
    for (std::int32_t row = 0; row < 6; ++row) rows.push_back(d.row(held.back(), row));
  }
  CHECK(d.pool.batches_held() == 40);
  for (std::size_t i = 0; i < rows.size(); ++i)
    CHECK(d.row(held[i / 6], static_cast<std::int32_t>(i % 6)) == rows[i]);
  for (const Batch& batch : held) d.drop(batch);
  CHECK(d.pool.batches_held() == 0);
}

TEST(faults_come_with_the_batch_of_their_row) {
  for (const std::int64_t work : {1, 3000}) {
    Driver d(async_of(6, 2, 2, work));
    d.send(all_of(6), test::kGoOn);
    for (int i = 0; i < 3; ++i) d.recv_and_drop();
    for (std::int32_t env = 0; env < 6; ++env) d.write(env, env % 2 ? test::kThrowInStep : test::kGoOn);
    d.pool.send(all_of(6), false, false);
    for (int i = 0; i < 3; ++i) {
      const Batch batch = d.recv();
      Ids failed, reported;
      for (const std::int32_t id : d.ids(batch))
        if (id % 2) failed.push_back(id);
      for (const Fault& fault : d.faults) {
        reported.push_back(fault.env);
        CHECK(fault.phase == SM_IN_STEP);
        CHECK(fault.episode == 1);
        CHECK(fault.failures == 1);
        CHECK(fault.message == "ordered to fail in step");
      }
      std::sort(failed.begin(), failed.end());
      std::sort(reported.begin(), reported.end());
      CHECK(reported == failed);
      d.drop(batch);
    }
  }
}

TEST(any_ended_says_whether_an_episode_did) {
  Driver d(sync_of(4));
  d.send(all_of(4), test::kGoOn);
  d.recv_and_drop();
  d.send(all_of(4), test::kGoOn);
  Batch batch = d.recv();
  CHECK(batch.any_ended == false);
  d.drop(batch);
  d.write(2, test::kTerminate);
  d.pool.send(all_of(4), false, false);
  batch = d.recv();
  CHECK(batch.any_ended == true);
  CHECK(batch.buffer->columns.c.ended[2] == 1);
  d.drop(batch);
}

TEST(an_env_that_cannot_be_built_is_an_error) {
  struct Broken {
    static EnvSpec spec(const Config&) { return test::obedient_spec(); }
    explicit Broken(const Config&) { throw std::runtime_error("no such game"); }
    void reset(Rng&, const Options&) {}
    Outcome step(const ActionRow&, Rng&) { return {}; }
    void observe(const Row&) const {}
  };
  try {
    LocalPool pool(envs_of<Broken>("Broken", 2), test::obedient_spec(), sync_of(2).pool());
    CHECK(false);
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "the constructor of env 0 failed: no such game");
  }
}

// ---- what must not go wrong ----

// Each row is 128 GiB that nobody touches, so a pool runs out of addresses after a few batches.
class Huge {
 public:
  static EnvSpec spec(const Config&) {
    EnvSpec spec = test::obedient_spec();
    spec.observation = {box<double>({std::int64_t{1} << 34}, {0.0}, {1.0})};
    spec.info = {};
    return spec;
  }
  explicit Huge(const Config&) {}
  void reset(Rng&, const Options&) {}
  Outcome step(const ActionRow&, Rng&) { return {}; }
  void observe(const Row& row) const { *row.observation<double>() = 1.0; }
};

// A send that finds no memory changes nothing: what is in flight comes back, and no more is awaited.
TEST(a_send_without_memory_changes_nothing) {
  for (const std::int32_t batch_size : {1, 2}) {
    LocalPool pool(envs_of<Huge>("Huge", 2), Huge::spec({}), async_of(2, batch_size, 0).pool());
    std::vector<Batch> held;
    std::vector<Fault> faults;
    bool refused = false;
    for (int i = 0; i < 16 && !refused; ++i) {
      const Ids ids{i % 2};
      try {
        pool.send(ids, false, false);
      } catch (const std::bad_alloc&) {
        refused = true;
        CHECK(pool.in_flight_count() == 0);
        CHECK(pool.in_flight(ids[0]) == false);
        break;
      }
      while (!pool.ready()) pool.work_or_wait(std::chrono::milliseconds(1));
      held.push_back(pool.take_batch(faults));
    }
    CHECK(refused);
    if (held.empty()) return;  // a machine that does not overcommit
    held.back().store->release(held.back().buffer);
    held.pop_back();
    const Ids ids{1};
    pool.send(ids, false, false);
    CHECK(pool.expected() == 1);
    while (!pool.ready()) pool.work_or_wait(std::chrono::milliseconds(1));
    held.push_back(pool.take_batch(faults));
    CHECK(held.back().rows == 1);
    for (const Batch& batch : held) batch.store->release(batch.buffer);
  }
}

// An env whose steps take as long as the action says, in microseconds of a core.
class Busy {
 public:
  static EnvSpec spec(const Config&) { return test::obedient_spec(); }
  explicit Busy(const Config&) {}
  void reset(Rng&, const Options&) {}
  Outcome step(const ActionRow& action, Rng&) {
    spin_until(std::chrono::microseconds(action.index()), [] { return false; });
    return {};
  }
  void observe(const Row&) const {}
};

// Envs that were cheap when they were queued and turn out slow: the caller, who called no thread
// because it meant to step them itself, must not leave them lying.
TEST(envs_that_turn_slow_are_stepped_all_the_same) {
  constexpr std::int32_t kEnvs = 16;
  LocalPool pool(envs_of<Busy>("Busy", kEnvs), Busy::spec({}), sync_of(kEnvs, 1).pool());
  std::vector<Fault> faults;
  for (const std::int64_t microseconds : {0, 20, 20, 20, 20, 20, 20, 5000}) {
    for (std::int32_t env = 0; env < kEnvs; ++env)
      reinterpret_cast<std::int64_t*>(pool.table().action(0))[env] = microseconds;
    pool.send(all_of(kEnvs), false, true);
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (!pool.ready() && Clock::now() < end) pool.work_or_wait(std::chrono::milliseconds(5));
    CHECK(pool.ready());
    if (!pool.ready()) return;
    const Batch batch = pool.take_batch(faults);
    batch.store->release(batch.buffer);
  }
}

// An env that stays in its step, or in its reset, until the test lets it go.
class Gated {
 public:
  static inline std::atomic<int> entered{0}, open{0}, resets_too{0};

  static EnvSpec spec(const Config&) { return test::obedient_spec(); }
  explicit Gated(const Config&) {}
  void reset(Rng&, const Options&) {
    if (resets_too != 0) pass_gate();
  }
  Outcome step(const ActionRow& action, Rng&) {
    if (action.index() == 0)
      spin_until(std::chrono::milliseconds(1), [] { return false; });
    else
      pass_gate();
    return {};
  }
  void observe(const Row&) const {}

  static void pass_gate() {
    entered += 1;
    entered.notify_all();
    open.wait(0);
  }
  static void close_gate() { entered = open = resets_too = 0; }
  static void open_gate() {
    open = 1;
    open.notify_all();
  }
};

struct GatedPool {
  GatedPool(std::int32_t envs, std::int32_t batch, std::int32_t threads, bool as_ready = false)
      : pool(std::make_unique<LocalPool>(envs_of<Gated>("Gated", envs), Gated::spec({}),
                                         options_of(envs, batch, threads, as_ready))) {
    Gated::close_gate();
    // A reset, and steps that show the pool how slow they are: it leaves them to its threads then.
    do {
      send(all_of(envs), 0);
      while (pool->in_flight_count() != 0) drop(recv());
    } while (pool->step_cost_ns() < 300'000);
  }
  void send(const Ids& envs, std::int64_t action) {
    for (const std::int32_t env : envs) reinterpret_cast<std::int64_t*>(pool->table().action(0))[env] = action;
    pool->send(envs, false, false);
  }
  Batch recv() {
    while (!pool->ready()) pool->work_or_wait(std::chrono::milliseconds(50));
    std::vector<Fault> faults;
    return pool->take_batch(faults);
  }
  static void drop(const Batch& batch) { batch.store->release(batch.buffer); }
  static PoolOptions options_of(std::int32_t envs, std::int32_t batch, std::int32_t threads, bool as_ready) {
    DriverOptions options = async_of(envs, batch, threads);
    options.as_ready = as_ready;
    return options.pool();
  }

  std::unique_ptr<LocalPool> pool;
};

// While slow envs wait for a free thread the caller sleeps: it neither steps nor spins on them.
TEST(the_caller_sleeps_while_slow_envs_wait_for_a_thread) {
  GatedPool g(3, 1, 1);
  g.send({0, 1, 2}, 1);
  Gated::entered.wait(0);
  for (int i = 0; i < 5; ++i) {
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    g.pool->work_or_wait(std::chrono::milliseconds(10));
    getrusage(RUSAGE_THREAD, &after);
    CHECK(after.ru_nvcsw >= before.ru_nvcsw + 1);
  }
  CHECK(Gated::entered == 1);
  Gated::open_gate();
  for (int i = 0; i < 3; ++i) GatedPool::drop(g.recv());
}

TEST(a_batch_is_ready_before_its_slowest_env) {
  GatedPool g(3, 2, 3);
  g.send({0}, 1);
  Gated::entered.wait(0);
  g.send({1, 2}, 0);
  const Batch batch = g.recv();  // without env 0, which is still in its step
  CHECK(batch.rows == 2);
  for (int row = 0; row < 2; ++row) CHECK(batch.buffer->columns.c.env_id[row] != 0);
  GatedPool::drop(batch);
  Gated::open_gate();
  GatedPool::drop(g.recv());
}

TEST(a_wait_for_steps_is_over_before_a_slow_reset) {
  GatedPool g(3, 3, 2, true);
  Gated::resets_too = 1;
  g.pool->table().state(0).command = SM_RESET;
  g.pool->send(Ids{0}, false, false);
  Gated::entered.wait(0);
  g.send({1, 2}, 0);
  g.pool->be_content_with(2, true);
  while (!g.pool->ready()) g.pool->work_or_wait(std::chrono::milliseconds(50));
  g.pool->be_content_with(0);
  g.pool->seal_early();
  const Batch batch = g.recv();
  CHECK(batch.rows == 2);
  for (int row = 0; row < 2; ++row) CHECK(batch.buffer->columns.c.env_id[row] != 0);
  GatedPool::drop(batch);
  CHECK(g.pool->in_flight(0) == true);
  Gated::open_gate();
  GatedPool::drop(g.recv());
}

// Only what the caller holds may stay when a pool ends with envs in flight.
TEST(a_pool_that_ends_lets_go_of_its_buffers) {
  for (const std::int32_t batch_size : {1, 3}) {
    GatedPool g(3, batch_size, 2);
    g.send({0}, 0);
    const Batch held = g.recv();
    g.send({0, 1, 2}, 1);
    Gated::entered.wait(0);
    g.pool->ask_to_stop();
    Gated::open_gate();
    g.pool.reset();
    CHECK(held.store->held() == 1);
    CHECK(held.buffer->columns.c.env_id[0] == 0);
    GatedPool::drop(held);
  }
}

TEST(a_pool_without_threads_to_start_goes_on_alone) {
  pthread_attr_t usual, huge;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
  pthread_setattr_default_np(&huge);
  for (const std::int64_t microseconds : {20, 500}) {
    LocalPool pool(envs_of<Busy>("Busy", 8), Busy::spec({}), sync_of(8, 2).pool());
    std::vector<Fault> faults;
    for (int i = 0; i < 4; ++i) {
      for (std::int32_t env = 0; env < 8; ++env)
        reinterpret_cast<std::int64_t*>(pool.table().action(0))[env] = microseconds;
      pool.send(all_of(8), false, false);
      while (!pool.ready()) pool.work_or_wait(std::chrono::milliseconds(5));
      const Batch batch = pool.take_batch(faults);
      CHECK(batch.rows == 8);
      batch.store->release(batch.buffer);
    }
    CHECK(pool.threads_started() == 0);
  }
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

}  // namespace stepmill::pool_test
