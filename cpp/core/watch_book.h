// What somebody who watches a pool wants to know of every env: its return so far, its last rewards, how its episodes
// ended. Filled with every batch, in one pass over its rows; read by other threads. It never grows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/pool.h"

namespace stepmill {

class WatchBook {
 public:
  static constexpr std::size_t kLogRows = std::size_t{1} << 18;  // at least
  static constexpr std::size_t kRecent = 100;                    // episodes

  struct EnvNumbers {
    // NaN: not known, because the episode began earlier, or none has ended.
    double episode_return = std::numeric_limits<double>::quiet_NaN();
    double last_return = std::numeric_limits<double>::quiet_NaN();
    std::int64_t episodes = 0, failures = 0;
    std::int32_t elapsed = 0;
  };
  struct Episode {
    double episode_return;
    std::int32_t length;
  };
  struct Rewards {
    std::vector<float> values;       // oldest first
    std::vector<std::int32_t> ends;  // which of them ended an episode
  };
  struct Returns {
    double sum = 0.0;
    std::int64_t count = 0;
  };

  explicit WatchBook(std::int32_t num_envs)
      : envs_(static_cast<std::size_t>(num_envs)), log_(std::max(kLogRows, 4 * envs_.size())) {}

  // How long to wait before the next closer look at a result, in nanoseconds; 0: every result is looked at.
  std::atomic<std::int64_t> look_every_ns{0};

  // ---- in the thread that uses the pool ----

  void add(const Batch& batch, std::int32_t players, bool reward_is_float32, std::span<const Fault> faults) {
    const std::lock_guard lock(mutex_);
    const sm_columns& c = batch.buffer->columns.c;
    for (std::int32_t row = 0; row < batch.rows; ++row) {
      const std::int32_t env = batch.env_id[row];
      EnvNumbers& its = envs_[static_cast<std::size_t>(env)];
      const double reward = reward_is_float32 ? sum<float>(batch, row, players) : sum<double>(batch, row, players);
      const bool ended = batch.ended[row] != 0;
      its.elapsed = c.elapsed_step[row];
      its.episode_return = its.elapsed == 0 ? 0.0 : its.episode_return + reward;
      if (ended) end(its, {c.episode_return[row], c.episode_length[row]});
      log_[next_] = {env, static_cast<float>(reward), ended ? Mark::kEnd : its.elapsed == 0 ? Mark::kReset : Mark::kStep};
      next_ = next_ + 1 == log_.size() ? 0 : next_ + 1;
    }
    for (const Fault& fault : faults) envs_[static_cast<std::size_t>(fault.env)].failures += 1;
    steps_ += batch.rows;
    logged_ = std::min(logged_ + static_cast<std::size_t>(batch.rows), log_.size());
  }

  // ---- for readers ----

  bool has(std::int32_t env) const { return env >= 0 && static_cast<std::size_t>(env) < envs_.size(); }
  std::int64_t steps() const { return locked(steps_); }
  std::int64_t episodes() const { return locked(episodes_); }
  EnvNumbers numbers(std::int32_t env) const { return locked(envs_[static_cast<std::size_t>(env)]); }
  // The last episodes of all envs, in any order.
  std::vector<Episode> recent() const { return locked(recent_); }
  // Of the episodes that ended since the last call.
  Returns take_returns() {
    const std::lock_guard lock(mutex_);
    return std::exchange(new_returns_, {});
  }

  // The last rewards of each of these envs, at most so many of each. Rows of resets have none.
  std::vector<Rewards> rewards(std::span<const std::int32_t> envs, std::size_t most) const {
    const std::lock_guard lock(mutex_);
    std::vector<Rewards> out(envs.size());
    std::vector<std::int32_t> place(envs_.size(), -1);
    for (std::size_t i = 0; i < envs.size(); ++i) place[static_cast<std::size_t>(envs[i])] = static_cast<std::int32_t>(i);
    std::size_t missing = envs.size();
    for (std::size_t back = 1; back <= logged_ && missing > 0 && most > 0; ++back) {
      const Row& row = log_[(next_ + log_.size() - back) % log_.size()];
      const std::int32_t at = place[static_cast<std::size_t>(row.env)];
      if (at < 0 || row.mark == Mark::kReset) continue;
      Rewards& its = out[static_cast<std::size_t>(at)];
      if (its.values.size() == most) continue;
      if (row.mark == Mark::kEnd) its.ends.push_back(static_cast<std::int32_t>(its.values.size()));
      its.values.push_back(row.reward);
      if (its.values.size() == most) missing -= 1;
    }
    for (Rewards& its : out) {
      const auto last = static_cast<std::int32_t>(its.values.size()) - 1;
      std::reverse(its.values.begin(), its.values.end());
      std::reverse(its.ends.begin(), its.ends.end());
      for (std::int32_t& end : its.ends) end = last - end;
    }
    return out;
  }

 private:
  enum class Mark : std::int32_t { kStep, kEnd, kReset };
  struct Row {
    std::int32_t env = 0;
    float reward = 0.0f;
    Mark mark = Mark::kStep;
  };

  template <class T>
  static double sum(const Batch& batch, std::int32_t row, std::int32_t players) {
    const T* reward = static_cast<const T*>(batch.buffer->columns.c.reward) + std::int64_t{row} * players;
    if (!batch.players) return static_cast<double>(reward[0]);
    double total = 0.0;
    for (std::int32_t player = 0; player < players; ++player)
      if (batch.players[std::int64_t{row} * players + player] & SM_HAS_ROW) total += static_cast<double>(reward[player]);
    return total;
  }

  void end(EnvNumbers& its, Episode episode) {
    its.last_return = episode.episode_return;
    its.episodes += 1;
    episodes_ += 1;
    if (recent_.size() < kRecent)
      recent_.push_back(episode);
    else
      recent_[static_cast<std::size_t>(episodes_) % kRecent] = episode;
    if (!std::isfinite(episode.episode_return)) return;
    new_returns_.sum += episode.episode_return;
    new_returns_.count += 1;
  }

  template <class T>
  T locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  std::vector<EnvNumbers> envs_;
  std::vector<Row> log_;  // the last rows of all envs, in a ring
  std::size_t next_ = 0, logged_ = 0;
  std::vector<Episode> recent_;
  std::int64_t steps_ = 0, episodes_ = 0;
  Returns new_returns_;
};

}  // namespace stepmill
