// Envs that block: a stuck env keeps no other one waiting while a thread sleeps, in whatever call.
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/local_pool.h"
#include "tests/check.h"
#include "tests/obedient_env.h"

namespace stepmill::blocking_test {

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t kMostEnvs = 64;

// An env whose calls block where the test says so, and are cheap otherwise. One that swears never to block has resets that
// take long.
template <bool kSwears>
class Stuck {
 public:
  static constexpr bool kNeverBlocks = kSwears;
  static std::vector<ConfigItem> configuration() { return {{"id", std::int64_t{0}}}; }
  static EnvSpec spec(const Config&) { return test::obedient_spec(); }
  explicit Stuck(const Config& config) : gate_(gates[static_cast<std::size_t>(config.integer("id"))]) {}
  void reset(Rng&, const Options&) {
    if (kSwears) spin_until(std::chrono::microseconds(500), [] { return false; });
    pass();
  }
  Outcome step(const ActionRow&, Rng&) {
    pass();
    return {};
  }
  void observe(const Row&) const {}

  struct Gate {
    std::atomic<int> closed{0}, inside{0};
  };
  static inline std::array<Gate, kMostEnvs> gates;
  static inline std::atomic<int> done{0};  // calls that are over
  static inline std::atomic<std::thread::id> stranger;  // the thread that must not step
  static inline std::atomic<int> by_stranger{0};

  static void close(std::int32_t env) { gates[static_cast<std::size_t>(env)].closed = 1; }
  static void open(std::int32_t env) {
    Gate& gate = gates[static_cast<std::size_t>(env)];
    gate.closed = 0;
    gate.closed.notify_all();
  }
  static void wait_inside(std::int32_t env) { gates[static_cast<std::size_t>(env)].inside.wait(0); }
  static void wait_done(int count) {
    for (int now; (now = done.load()) < count;) done.wait(now);
  }

 private:
  void pass() {
    if (std::this_thread::get_id() == stranger.load()) by_stranger += 1;
    if (gate_.closed != 0) {
      gate_.inside = 1;
      gate_.inside.notify_all();
      gate_.closed.wait(1);
      gate_.inside = 0;
    }
    done += 1;
    done.notify_all();
  }
  Gate& gate_;
};

struct Case {
  bool resets, async;
  std::int32_t threads;
};

std::vector<Case> cases(std::vector<std::int32_t> threads) {
  std::vector<Case> out;
  for (const bool resets : {false, true})
    for (const bool async : {false, true})
      for (const std::int32_t count : threads) out.push_back({resets, async, count});
  return out;
}

Ids range(std::int32_t first, std::int32_t last) {
  Ids out;
  for (std::int32_t env = first; env < last; ++env) out.push_back(env);
  return out;
}

// A pool of envs that it takes for cheap ones.
template <class E = Stuck<false>>
class StuckPool {
 public:
  StuckPool(std::int32_t envs, const Case& c) : case_(c) {
    std::vector<Config> configs;
    for (std::int32_t id = 0; id < envs; ++id) configs.push_back(Config({{"id", std::int64_t{id}}}));
    PoolOptions options;
    options.table.num_envs = envs;
    options.batch_size = c.async ? 1 : envs;
    options.num_threads = c.threads;
    E::stranger = std::this_thread::get_id();
    E::by_stranger = 0;
    pool = std::make_unique<LocalPool>(std::make_unique<EnvSet>(*table_of<E>("Stuck"), configs), E::spec({}), options);
    for (int round = 0; round < 20; ++round) {
      send(range(0, envs), round == 0);
      take(envs);
    }
    E::done = 0;
  }

  void send(const Ids& envs, bool resets, bool recv_follows = false) {
    if (resets)
      for (const std::int32_t env : envs) pool->table().state(env).command = SM_RESET;
    pool->send(envs, false, recv_follows);
  }
  void send(const Ids& envs) { send(envs, case_.resets); }
  // Receives so many rows, and says whose they were.
  Ids take(std::int32_t count) {
    Ids out;
    std::vector<Fault> faults;
    while (std::ssize(out) < count) {
      while (!pool->ready()) pool->work_or_wait(std::chrono::seconds(1));
      const Batch batch = pool->take_batch(faults);
      out.insert(out.end(), batch.env_id, batch.env_id + batch.rows);
      batch.store->release(batch.buffer);
    }
    return out;
  }

  std::unique_ptr<LocalPool> pool;

 private:
  const Case case_;
};

using Env = Stuck<false>;

// The caller is elsewhere: nobody but the threads can help.
TEST(what_is_sent_while_a_thread_is_stuck_goes_to_another) {
  for (const Case& c : cases({2, 3})) {
    StuckPool p(8, c);
    for (std::int32_t stuck = 0; stuck < 8; ++stuck) {
      Env::done = 0;
      Env::close(stuck);
      p.send({stuck});
      Env::wait_inside(stuck);
      int sent = 0;
      for (std::int32_t env = 0; env < 8; ++env)
        if (env != stuck) {
          p.send({env});
          Env::wait_done(++sent);
        }
      CHECK(Env::done == 7);
      if (c.async)
        for (const std::int32_t env : p.take(7)) CHECK(env != stuck);
      Env::open(stuck);
      p.take(c.async ? 1 : 8);
    }
  }
}

// Whichever it is: none of the others may be in the hands of the thread that is stuck with it.
TEST(one_of_many_that_blocks_holds_no_other_back) {
  constexpr std::int32_t kEnvs = 40;
  for (const Case& c : cases({2, 3})) {
    StuckPool p(kEnvs, c);
    for (std::int32_t stuck = 0; stuck < kEnvs; ++stuck) {
      Env::done = 0;
      Env::close(stuck);
      p.send(range(0, kEnvs));
      Env::wait_done(kEnvs - 1);
      Env::wait_inside(stuck);
      if (c.async)
        for (const std::int32_t env : p.take(kEnvs - 1)) CHECK(env != stuck);
      Env::open(stuck);
      p.take(c.async ? 1 : kEnvs);
    }
  }
}

TEST(one_thread_that_is_left_does_all_the_rest) {
  constexpr std::int32_t kEnvs = 30;
  for (const Case& c : cases({2, 4})) {
    StuckPool p(kEnvs, c);
    for (std::int32_t first = 0; first + c.threads < kEnvs; first += 7) {
      const std::int32_t stuck = c.threads - 1;
      Env::done = 0;
      for (std::int32_t env = first; env < first + stuck; ++env) Env::close(env);
      p.send(range(0, kEnvs));
      Env::wait_done(kEnvs - stuck);
      for (std::int32_t env = first; env < first + stuck; ++env) Env::wait_inside(env);
      if (c.async) p.take(kEnvs - stuck);
      for (std::int32_t env = first; env < first + stuck; ++env) Env::open(env);
      p.take(c.async ? stuck : kEnvs);
    }
  }
}

TEST(where_all_threads_are_stuck_the_first_that_is_free_goes_on) {
  for (const Case& c : cases({1, 2, 3})) {
    StuckPool p(12, c);
    for (std::int32_t free = 0; free < c.threads; ++free) {
      Env::done = 0;
      for (std::int32_t env = 0; env < c.threads; ++env) Env::close(env);
      p.send(range(0, c.threads));
      for (std::int32_t env = 0; env < c.threads; ++env) Env::wait_inside(env);
      p.send(range(c.threads, 12));
      CHECK(Env::done == 0);
      Env::open(free);
      Env::wait_done(12 - c.threads + 1);
      for (std::int32_t env = 0; env < c.threads; ++env) Env::open(env);
      p.take(12);
    }
  }
}

// The caller waits for results, and would help with envs that never block.
TEST(a_caller_that_waits_is_never_the_one_who_is_stuck) {
  for (const Case& c : cases({1, 2})) {
    if (!c.async) continue;  // a sync batch waits for all
    StuckPool p(10, c);
    const std::int32_t stuck = c.threads - 1;
    for (std::int32_t env = 0; env < stuck; ++env) Env::close(env);
    p.send(range(0, 10), c.resets, true);
    for (const std::int32_t env : p.take(10 - stuck)) CHECK(env >= stuck);
    for (std::int32_t env = 0; env < stuck; ++env) Env::open(env);
    p.take(stuck);
    CHECK(Env::by_stranger == 0);
  }
}

// Without threads the caller does it all: what is ready is not kept back by what blocks after it.
TEST(a_caller_alone_stops_where_its_batch_is_ready) {
  for (const bool resets : {false, true}) {
    StuckPool p(6, {resets, true, 0});
    Env::close(3);
    p.send(range(0, 6));
    CHECK(p.take(3) == range(0, 3));
    CHECK(p.pool->is_brief() == false);  // the interpreter lock is not kept where the next one blocks
    Env::open(3);
    CHECK(p.take(3) == range(3, 6));
  }
}

// Of envs that swear never to block, where it is known that resets take long: the open batch does not wait for one.
TEST(a_reset_that_takes_long_takes_its_slot_late) {
  using Swearer = Stuck<true>;
  StuckPool<Swearer> p(8, {false, true, 2});
  for (int round = 0; round < 3; ++round) {
    Swearer::close(0);
    p.send({0}, true);
    Swearer::wait_inside(0);
    p.send({1}, false, true);
    CHECK(p.take(1) == Ids{1});
    Swearer::open(0);
    CHECK(p.take(1) == Ids{0});
  }
}

}  // namespace stepmill::blocking_test
