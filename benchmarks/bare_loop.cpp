// What envs cost by themselves: plain loops over CartPole, without a pool and without Python.
//
//     bare_loop <envs> <seconds> <loops> free|meet
//
// prints nanoseconds per step of all loops together: `step`, `reset` at the end of an episode, reward and observation
// written, one env after the other. The engine may do better than that where an env class steps many at once.
//
// Each loop is a thread. "free": each has its share of the envs and never looks at the others. "meet": they take chunks
// of the envs, one that is free takes the next, and meet at a barrier when all have been stepped, as the threads of a sync pool do.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "barrier.h"
#include "core/action_table.h"
#include "core/arena.h"
#include "core/batch_layout.h"
#include "envs/classic/cartpole.h"

using namespace stepmill;

namespace {

constexpr int kLimit = 500;
constexpr int kActionBatches = 32;
constexpr int kWarmUp = 100;  // rounds

// Random actions, drawn before the clock starts.
std::vector<std::int64_t> draw_actions(int envs) {
  Rng rng(42);
  std::vector<std::int64_t> actions(static_cast<std::size_t>(envs) * kActionBatches);
  for (auto& action : actions) action = rng.random() < 0.5 ? 0 : 1;
  return actions;
}

// Envs, with the engine's own memory of a pool's actions and of one batch, used here without the pool.
class Envs {
 public:
  explicit Envs(int count)
      : count_(count),
        table_(*arena_, spec_, options(count)),
        envs_(static_cast<std::size_t>(count), CartPole(Config(CartPole::configuration()))),
        elapsed_(static_cast<std::size_t>(count)),
        actions_(draw_actions(count)) {
    const BatchLayout layout(spec_, count, false, false);
    layout.fill(columns_, arena_->at(arena_->grow(layout.bytes(), kCacheLine)));
    for (int i = 0; i < count; ++i) {
      rngs_.emplace_back(static_cast<std::uint64_t>(i));
      envs_[static_cast<std::size_t>(i)].reset(rngs_.back(), Options(no_options_));
    }
  }

  int count() const { return count_; }

  // Steps the envs from `first` on with the actions of this round.
  void step(std::int64_t round, int first, int count) {
    const std::int64_t* from = actions_.data() + (round % kActionBatches) * count_ + first;
    std::copy(from, from + count, reinterpret_cast<std::int64_t*>(table_.action(0)) + first);
    const sm_shared& shared = table_.shared();
    for (int i = first; i < first + count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Outcome outcome = envs_[at].step(ActionRow(shared, i, 1), rngs_[at]);
      if (outcome.terminated || ++elapsed_[at] == kLimit) {
        envs_[at].reset(rngs_[at], Options(no_options_));
        elapsed_[at] = 0;
      }
      const Row row(shared, columns_.c, i, 1);
      row.set_reward(0, outcome.reward);
      envs_[at].observe(row);
    }
  }

 private:
  static TableOptions options(int envs) {
    TableOptions options;
    options.num_envs = envs;
    options.max_episode_steps = kLimit;
    return options;
  }

  const int count_;
  const sm_reset_request no_options_{};
  std::shared_ptr<Arena> arena_ = Arena::create(Arena::Kind::kPrivate);
  EnvSpec spec_ = CartPole::spec(Config{});
  ActionTable table_;
  Columns columns_;
  std::vector<CartPole> envs_;
  std::vector<Rng> rngs_;
  std::vector<int> elapsed_;
  std::vector<std::int64_t> actions_;
};

// Calls `round` (which steps every env once) until the time is over; rounds per second. `before_last` is called before
// the last one, with its number.
template <class F, class G>
double measure(int envs, double seconds, F round, G before_last) {
  std::int64_t i = 0;
  while (i < kWarmUp) round(i++);
  const int block = 1 + 20000 / envs;  // the clock is read so seldom that its cost does not show
  const auto start = Clock::now();
  const std::int64_t first = i;
  while (true) {
    for (int j = 0; j < block; ++j) round(i++);
    const double spent = std::chrono::duration<double>(Clock::now() - start).count();
    if (spent >= seconds) {
      before_last(i);
      round(i);
      return static_cast<double>(i - first) / spent;
    }
  }
}

// Steps per second of loops that each have their own envs.
double run_free(int envs, double seconds, int loops) {
  std::vector<double> rates(static_cast<std::size_t>(loops));
  Barrier start;
  const auto loop = [&](int index) {
    Envs own(envs * (index + 1) / loops - envs * index / loops);
    start.meet(static_cast<std::uint32_t>(loops));
    const auto round = [&](std::int64_t i) { own.step(i, 0, own.count()); };
    rates[static_cast<std::size_t>(index)] = own.count() * measure(own.count(), seconds, round, [](std::int64_t) {});
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < loops; ++i) threads.emplace_back(loop, i);
  loop(0);
  for (auto& thread : threads) thread.join();
  double sum = 0.0;
  for (const double rate : rates) sum += rate;
  return sum;
}

// Loops over the same envs that meet after each round.
class MeetingLoops {
 public:
  MeetingLoops(int envs, int loops) : envs_(envs), loops_(loops) {}

  // Steps per second.
  double run(double seconds) {
    std::vector<std::thread> threads;
    for (int i = 1; i < loops_; ++i)
      threads.emplace_back([this] {
        for (std::int64_t i = 0; i <= last_.load(std::memory_order_relaxed); ++i) round(i);
      });
    const double rounds = measure(envs_.count(), seconds, [this](std::int64_t i) { round(i); },
                                  [this](std::int64_t i) { last_.store(i, std::memory_order_relaxed); });
    for (auto& thread : threads) thread.join();
    return rounds * envs_.count();
  }

 private:
  void round(std::int64_t number) {
    int first = 0, count = 0;
    while (take(number, first, count)) envs_.step(number, first, count);
    barrier_.meet(static_cast<std::uint32_t>(loops_));
  }

  // The next chunk of this round, half of a fair share as in the pool. `taken_` counts on from round to round, so that
  // nobody has to set it back.
  bool take(std::int64_t number, int& first, int& count) {
    const std::int64_t begin = number * envs_.count(), end = begin + envs_.count();
    std::int64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (taken >= end) return false;
      first = static_cast<int>(taken - begin);
      const int left = static_cast<int>(end - taken);
      count = std::min(left, std::clamp(left / (2 * loops_), kLeast, kMost));
    } while (!taken_.compare_exchange_weak(taken, taken + count, std::memory_order_relaxed));
    return true;
  }

  // 1 and 12 µs of CartPole, about.
  static constexpr int kLeast = 32, kMost = 288;

  Envs envs_;
  const int loops_;
  Barrier barrier_;
  alignas(64) std::atomic<std::int64_t> taken_{0};
  // Set before the leader steps in the last round, so everybody sees it after that round's barrier.
  std::atomic<std::int64_t> last_{INT64_MAX};
};

}  // namespace

int main(int count, char** arguments) {
  const int envs = count == 5 ? std::atoi(arguments[1]) : 0;
  const double seconds = envs ? std::atof(arguments[2]) : 0;
  const int loops = envs ? std::atoi(arguments[3]) : 0;
  const bool meet = envs && std::strcmp(arguments[4], "meet") == 0;
  if (!(seconds > 0) || loops < 1 || envs < loops || (!meet && std::strcmp(arguments[4], "free") != 0)) {
    std::fprintf(stderr, "usage: bare_loop <envs> <seconds> <loops> free|meet\n");
    return 2;
  }
  const double rate = meet ? MeetingLoops(envs, loops).run(seconds) : run_free(envs, seconds, loops);
  std::printf("%.3f\n", 1e9 / rate);
}
