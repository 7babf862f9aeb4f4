// Plain loops over native envs, on one thread or several, without a pool and without Python.
//
// Each loop is a thread. Free ones have their share of the envs each and never look at the others. Those that meet take
// chunks of the envs, one that is free takes the next, and meet at a barrier when all have been stepped, as the threads
// of a sync pool do.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "barrier.h"
#include "core/action_table.h"
#include "core/memory/arena.h"
#include "core/memory/batch_layout.h"
#include "core/env/env.h"

namespace stepmill::bench {

inline constexpr int kActionBatches = 32;

// How the envs of a loop are made.
template <class E>
struct Recipe {
  EnvSpec spec;
  std::function<void(int index, std::optional<E>& out)> make;
  int limit;                        // steps of an episode
  std::vector<std::byte> actions;   // kActionBatches times one row per env
  int least_chunk, most_chunk;      // envs that a loop takes at once, if loops meet
};

// The envs from `first` to `last` - 1, with the engine's own memory of a pool's actions and of one batch, used here
// without the pool.
template <class E>
class Envs {
 public:
  Envs(const Recipe<E>& recipe, int all, int first, int last)
      : recipe_(recipe),
        all_(all),
        first_(first),
        count_(last - first),
        action_bytes_(static_cast<std::size_t>(recipe.spec.action[0].row_bytes())),
        table_(*arena_, recipe.spec, options(count_, recipe.limit)),
        envs_(std::make_unique<std::optional<E>[]>(static_cast<std::size_t>(count_))),
        elapsed_(static_cast<std::size_t>(count_)) {
    const BatchLayout layout(recipe.spec, count_, false, false);
    layout.fill(columns_, arena_->at(arena_->grow(layout.bytes(), kCacheLine)));
    for (int i = 0; i < count_; ++i) {
      std::optional<E>& env = envs_[static_cast<std::size_t>(i)];
      recipe.make(first + i, env);
      rngs_.emplace_back(static_cast<std::uint64_t>(first + i));
      env->reset(rngs_.back(), Options(no_options_));
    }
  }

  int count() const { return count_; }

  // Steps `count` envs from `first` on with the actions of this round.
  void step(std::int64_t round, int first, int count) {
    const std::byte* from =
        recipe_.actions.data() + static_cast<std::size_t>((round % kActionBatches) * all_ + first_ + first) * action_bytes_;
    std::copy(from, from + static_cast<std::size_t>(count) * action_bytes_,
              static_cast<std::byte*>(static_cast<void*>(table_.action(0))) + static_cast<std::size_t>(first) * action_bytes_);
    const sm_shared& shared = table_.shared();
    for (int i = first; i < first + count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Row row(shared, columns_.c, i, 1);
      // After an end, the next row is a reset, as in a pool with its default of autoreset.
      if (elapsed_[at] == recipe_.limit) {
        envs_[at]->reset(rngs_[at], Options(no_options_));
        elapsed_[at] = 0;
        row.set_reward(0, 0.0);
      } else {
        const Outcome outcome = envs_[at]->step(ActionRow(shared, i, 1), rngs_[at]);
        elapsed_[at] = outcome.terminated ? recipe_.limit : elapsed_[at] + 1;
        row.set_reward(0, outcome.reward);
      }
      envs_[at]->observe(row);
    }
  }

 private:
  static TableOptions options(int envs, int limit) {
    TableOptions options;
    options.num_envs = envs;
    options.max_episode_steps = limit;
    return options;
  }

  const Recipe<E>& recipe_;
  const int all_, first_, count_;
  const std::size_t action_bytes_;
  const sm_reset_request no_options_{};
  std::shared_ptr<Arena> arena_ = Arena::create(Arena::Kind::kPrivate);
  ActionTable table_;
  Columns columns_;
  std::unique_ptr<std::optional<E>[]> envs_;
  std::vector<Rng> rngs_;
  std::vector<int> elapsed_;
};

// Calls `round` (which steps every env once) until the time is over; rounds per second. `before_last` is called before
// the last one, with its number. The clock is read every `block` rounds, so seldom that its cost does not show.
template <class F, class G>
double measure(int block, double seconds, F round, G before_last) {
  std::int64_t i = 0;
  while (i < block) round(i++);  // a warm-up
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
template <class E>
double run_free(const Recipe<E>& recipe, int envs, int block, double seconds, int loops) {
  std::vector<double> rates(static_cast<std::size_t>(loops));
  Barrier start;
  const auto loop = [&](int index) {
    Envs<E> own(recipe, envs, envs * index / loops, envs * (index + 1) / loops);
    start.meet(static_cast<std::uint32_t>(loops));
    const auto round = [&](std::int64_t i) { own.step(i, 0, own.count()); };
    rates[static_cast<std::size_t>(index)] = own.count() * measure(block, seconds, round, [](std::int64_t) {});
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
template <class E>
class MeetingLoops {
 public:
  MeetingLoops(const Recipe<E>& recipe, int envs, int block, int loops)
      : recipe_(recipe), envs_(recipe, envs, 0, envs), block_(block), loops_(loops) {}

  // Steps per second.
  double run(double seconds) {
    std::vector<std::thread> threads;
    for (int i = 1; i < loops_; ++i)
      threads.emplace_back([this] {
        for (std::int64_t number = 0; number <= last_.load(std::memory_order_relaxed); ++number) round(number);
      });
    const double rounds = measure(block_, seconds, [this](std::int64_t number) { round(number); },
                                  [this](std::int64_t number) { last_.store(number, std::memory_order_relaxed); });
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
      count = std::min(left, std::clamp(left / (2 * loops_), recipe_.least_chunk, recipe_.most_chunk));
    } while (!taken_.compare_exchange_weak(taken, taken + count, std::memory_order_relaxed));
    return true;
  }

  const Recipe<E>& recipe_;
  Envs<E> envs_;
  const int block_, loops_;
  Barrier barrier_;
  alignas(64) std::atomic<std::int64_t> taken_{0};
  // Set before the leader steps in the last round, so everybody sees it after that round's barrier.
  std::atomic<std::int64_t> last_{INT64_MAX};
};

template <class E>
double steps_per_second(const Recipe<E>& recipe, int envs, int block, double seconds, int loops, bool meet) {
  return meet ? MeetingLoops<E>(recipe, envs, block, loops).run(seconds)
              : run_free(recipe, envs, block, seconds, loops);
}

}  // namespace stepmill::bench
