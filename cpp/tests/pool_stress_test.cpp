// Pools under load, compared row by row with envs that are stepped one at a time. Made to be run
// under the thread and the address sanitizer too.

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "core/pool.h"
#include "tests/check.h"
#include "tests/pool_driver.h"

namespace stepmill::pool_stress_test {

using test::Driver;
using test::DriverOptions;
using test::FaultRecord;
using test::Reference;
using Ids = std::vector<std::int32_t>;

// Threads that hold batches for a while, look whether they stayed as they were, and release them:
// what garbage collection on other threads does.
class Holders {
 public:
  explicit Holders(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~Holders() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void give(Batch batch, std::function<bool()> unchanged) {
    {
      std::lock_guard lock(mutex_);
      held_.push_back({std::move(batch), std::move(unchanged)});
    }
    changed_.notify_one();
  }

 private:
  struct Held {
    Batch batch;
    std::function<bool()> unchanged;
  };

  void run() {
    std::mt19937 random(7);
    while (true) {
      Held held;
      {
        std::unique_lock lock(mutex_);
        // A batch is let go only when some more came after it.
        changed_.wait(lock, [&] { return ending_ || held_.size() > kKept; });
        if (held_.empty()) return;
        const auto at = held_.begin() + static_cast<std::ptrdiff_t>(random() % held_.size());
        held = std::move(*at);
        held_.erase(at);
      }
      CHECK(held.unchanged());
      held.batch.store->release(held.batch.buffer);
    }
  }

  static constexpr std::size_t kKept = 6;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Held> held_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

struct Scenario {
  DriverOptions pool;
  int batches = 1000;
  bool faults = false;
  bool gathers = false;  // resets of chosen envs between the steps
  bool steps_only = false;  // send and recv as one, as `step` does
  std::uint32_t seed = 1;
};

// One pool and its reference side by side. Every row that comes back is checked on the spot.
class Duel {
 public:
  explicit Duel(const Scenario& s)
      : scenario_(s),
        random_(s.seed),
        driver_(s.pool),
        reference_(test::obedient_table(), test::obedient_configs(s.pool.num_envs, s.pool.work),
                   test::obedient_spec(), s.pool.table()),
        idle_(static_cast<std::size_t>(s.pool.num_envs)),
        sent_(idle_.size(), kNothing),
        holders_(2) {
    std::iota(idle_.begin(), idle_.end(), 0);
    for (std::int32_t env = 0; env < s.pool.num_envs; ++env) reference_.seed(env, static_cast<std::uint64_t>(env));
  }

  void run() {
    for (int i = 0; i < scenario_.batches && test::failed_checks == 0; ++i) {
      if (!scenario_.steps_only || driver_.pool.in_flight_count() == 0) send_some();
      if (scenario_.gathers && chance(8)) reset_some();
      while (scenario_.pool.batch_size < scenario_.pool.num_envs && chance(3)) send_some();
      receive();
    }
  }
  void finish() {
    while (driver_.pool.in_flight_count() != 0 && test::failed_checks == 0) receive();
    for (const auto order : sent_) CHECK(order == kNothing);  // every action had its result
    CHECK(driver_.pool.expected() == 0);
  }

 private:
  static constexpr std::int64_t kNothing = -1, kReset = -2;

  bool chance(std::uint32_t one_in) { return random_() % one_in == 0; }

  std::int64_t some_order() {
    if (scenario_.faults && chance(10)) return static_cast<std::int64_t>(random_() % test::kOrders);
    return chance(20) ? test::kTerminate : test::kGoOn;
  }

  // Some of the idle envs in any order, and no longer idle.
  Ids draw_envs() {
    std::shuffle(idle_.begin(), idle_.end(), random_);
    const std::size_t count = idle_.empty() ? 0 : 1 + random_() % idle_.size();
    Ids envs(idle_.end() - static_cast<std::ptrdiff_t>(count), idle_.end());
    idle_.resize(idle_.size() - count);
    return envs;
  }

  void send_some() {
    const Ids envs = draw_envs();
    if (envs.empty()) return;
    for (const std::int32_t env : envs) {
      const std::int64_t order = some_order();
      sent_[static_cast<std::size_t>(env)] = order;
      driver_.write(env, order);
    }
    driver_.pool.send(envs, false, scenario_.steps_only);
  }

  void reset_some() {
    const bool is_sync = scenario_.pool.batch_size == scenario_.pool.num_envs;
    if (is_sync && driver_.pool.in_flight_count() != 0) return;
    const Ids envs = draw_envs();
    if (envs.empty()) return;
    for (const std::int32_t env : envs) sent_[static_cast<std::size_t>(env)] = kReset;
    driver_.send_reset(envs, true);
    if (is_sync) return;
    const Batch batch = receive();
    CHECK(driver_.ids(batch) == envs);
  }

  Batch receive() {
    if (driver_.pool.in_flight_count() == 0) return {};
    const std::int32_t expected = driver_.pool.expected();
    const Batch batch = driver_.recv();
    CHECK(batch.rows == expected);
    CHECK(batch.buffer->header->done.load() == static_cast<std::uint32_t>(batch.rows));
    bool any_ended = false;
    for (std::int32_t row = 0; row < batch.rows; ++row) {
      const std::int32_t env = batch.buffer->columns.c.env_id[row];
      CHECK((env >= 0 && env < scenario_.pool.num_envs) == true);
      std::int64_t& order = sent_[static_cast<std::size_t>(env)];
      CHECK(order != kNothing);  // nothing was sent, or its result came already
      any_ended |= order == kReset ? reference_.reset(env) : reference_.step(env, order);
      CHECK((driver_.row(batch, row) == reference_.row()) == true);
      order = kNothing;
      idle_.push_back(env);
    }
    CHECK(batch.any_ended == any_ended);
    check_faults();
    hold(batch);
    return batch;
  }

  void check_faults() {
    std::vector<FaultRecord> expected = reference_.take_faults(), got;
    for (const Fault& fault : driver_.faults) got.push_back({fault.env, fault.phase, fault.message});
    const auto by_env = [](const FaultRecord& a, const FaultRecord& b) { return a.env < b.env; };
    std::sort(expected.begin(), expected.end(), by_env);
    std::sort(got.begin(), got.end(), by_env);
    CHECK((got == expected) == true);
  }

  void hold(const Batch& batch) {
    if (chance(2)) {
      driver_.drop(batch);
      return;
    }
    const auto bytes_of = [spec = driver_.pool.spec(), options = driver_.pool.options().table](const Batch& b) {
      std::string all;
      for (std::int32_t row = 0; row < b.rows; ++row)
        all += test::row_bytes(spec, options, b.buffer->columns.c, row);
      return all;
    };
    holders_.give(batch, [batch, bytes_of, before = bytes_of(batch)] { return bytes_of(batch) == before; });
  }

  const Scenario scenario_;
  std::mt19937 random_;
  Driver driver_;
  Reference reference_;
  Ids idle_;
  std::vector<std::int64_t> sent_;  // by env: the order in flight
  Holders holders_;
};

// Cheap envs are stepped by the caller, dearer ones are shared, the dearest claim their slots late.
constexpr std::int64_t kWorks[] = {1, 400, test::kSanitized ? 2'000 : 10'000};
constexpr int kBatches[] = {test::kSanitized ? 150 : 4'000, test::kSanitized ? 100 : 2'000,
                            test::kSanitized ? 15 : 60};

void run_all(bool sync, std::int32_t threads) {
  std::uint32_t seed = 0;
  for (const std::int32_t envs : {3, 16, 50})
    for (std::size_t cost = 0; cost < 3; ++cost)
      for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP}) {
        Scenario s;
        s.seed = ++seed;
        s.pool.num_envs = envs;
        s.pool.batch_size = sync ? envs : 1 + static_cast<std::int32_t>(seed * 5 % static_cast<std::uint32_t>(envs - 1));
        s.pool.num_threads = threads;
        s.pool.work = kWorks[cost];
        s.pool.autoreset = mode;
        s.pool.max_episode_steps = 30;
        s.pool.keep_last_observation = seed % 3 == 0;
        s.pool.arena = seed % 4 == 0 ? Arena::Kind::kShared : Arena::Kind::kPrivate;
        s.batches = kBatches[cost] / (envs > 16 ? 3 : 1);
        s.faults = seed % 2 == 1;
        s.gathers = true;
        s.steps_only = seed % 5 == 0;
        const test::Case here(std::to_string(envs) + " envs, " + std::to_string(threads) + " threads, scenario " +
                              std::to_string(seed));
        Duel duel(s);
        duel.run();
        duel.finish();
        if (test::failed_checks != 0) return;
      }
}

TEST(sync_pools_agree_with_the_reference) {
  for (const std::int32_t threads : {0, 1, 2, 4, 8}) run_all(true, threads);
}

TEST(async_pools_agree_with_the_reference) {
  for (const std::int32_t threads : {0, 1, 2, 4, 8}) run_all(false, threads);
}

// Few envs, many threads, one row per batch: places of the queue and of the ring are reused at once.
TEST(the_smallest_rings_agree_with_the_reference) {
  for (const std::int32_t envs : {2, 3, 4}) {
    Scenario s;
    s.pool.num_envs = envs;
    s.pool.batch_size = 1;
    s.pool.num_threads = 4;
    s.pool.work = test::kSanitized ? 1'500 : 10'000;
    s.batches = test::kSanitized ? 1'500 : 15'000;
    s.seed = static_cast<std::uint32_t>(envs);
    Duel duel(s);
    duel.run();
    duel.finish();
  }
}

// A pool ends at any moment: threads are in steps, rows are half written, batches are held.
TEST(pools_close_with_steps_in_flight) {
  for (int i = 0; i < (test::kSanitized ? 40 : 400); ++i) {
    Scenario s;
    s.pool.num_envs = 24;
    s.pool.batch_size = i % 2 ? 24 : 5;
    s.pool.num_threads = 1 + i % 8;
    s.pool.work = 2'000;
    s.batches = i % 4;
    s.faults = true;
    s.seed = static_cast<std::uint32_t>(i);
    Duel duel(s);
    duel.run();
  }
}

}  // namespace stepmill::pool_stress_test
