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
  // How many rows the log has for each env, within limits, but always several batches.
  static constexpr std::size_t kRowsPerEnv = 512, kFewestRows = 1 << 12, kMostRows = 1 << 18;
  static constexpr std::size_t kRecent = 100;  // episodes

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
      : envs_(static_cast<std::size_t>(num_envs)),
        log_(std::max(std::clamp(kRowsPerEnv * envs_.size(), kFewestRows, kMostRows), 4 * envs_.size())) {}

  // How long to wait before the next closer look at a result, in nanoseconds; 0: every result is looked at.
  std::atomic<std::int64_t> look_every_ns{0};

  // ---- in the thread that uses the pool ----

  void add(const Batch& batch, std::int32_t players, bool reward_is_float32, std::span<const Fault> faults) {
    const std::lock_guard lock(mutex_);
    if (reward_is_float32)
      add_rows(batch, RewardsOf<float>{batch, players});
    else
      add_rows(batch, RewardsOf<double>{batch, players});
    for (const Fault& fault : faults) envs_[static_cast<std::size_t>(fault.env)].failures += 1;
    logged_ = std::min(logged_ + static_cast<std::size_t>(batch.rows), log_.size());
  }

  // ---- for readers ----

  bool has(std::int32_t env) const { return env >= 0 && static_cast<std::size_t>(env) < envs_.size(); }
  EnvNumbers numbers(std::int32_t env) const { return locked(envs_[static_cast<std::size_t>(env)]); }
  // The last episodes of all envs, in any order.
  std::vector<Episode> recent() const { return locked(recent_); }
  // Of the episodes that ended since the last call.
  Returns take_returns() {
    const std::lock_guard lock(mutex_);
    return std::exchange(new_returns_, {});
  }

  // The last rewards of each of these envs, at most `most` of each. Rows of resets have none.
  std::vector<Rewards> rewards(std::span<const std::int32_t> envs, std::size_t most) const {
    const std::lock_guard lock(mutex_);
    std::vector<Rewards> out(envs.size());
    std::vector<std::int32_t> place(envs_.size(), -1);
    for (std::size_t i = 0; i < envs.size(); ++i) place[static_cast<std::size_t>(envs[i])] = static_cast<std::int32_t>(i);
    std::size_t missing = envs.size();
    for (std::size_t back = 1; back <= logged_ && missing > 0 && most > 0; ++back) {
      const Row& row = log_[(next_ + log_.size() - back) % log_.size()];
      const std::int32_t at = place[row.env];
      if (at < 0 || row.mark == kReset) continue;
      Rewards& its = out[static_cast<std::size_t>(at)];
      if (its.values.size() == most) continue;
      if (row.mark == kEnd) its.ends.push_back(static_cast<std::int32_t>(its.values.size()));
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
  enum Mark : std::uint32_t { kStep, kEnd, kReset };
  static constexpr std::uint32_t kMostEnvs = (1u << 30) - 1;
  struct Row {  // small: most of the time goes into bringing the log into the cache
    std::uint32_t env : 30 = 0, mark : 2 = kStep;
    float reward = 0.0f;
  };

  // The reward of a row: that of its env, or the sum of its players'.
  template <class T>
  struct RewardsOf {
    RewardsOf(const Batch& batch, std::int32_t most)
        : reward(static_cast<const T*>(batch.buffer->columns.c.reward)), flags(batch.players), players(most) {}

    double operator[](std::int32_t row) const {
      if (!flags) return static_cast<double>(reward[row]);
      double total = 0.0;
      const std::int64_t first = std::int64_t{row} * players;
      for (std::int64_t at = first; at < first + players; ++at)
        if (flags[at] & SM_HAS_ROW) total += static_cast<double>(reward[at]);
      return total;
    }

    const T* reward;
    const std::uint8_t* flags;
    std::int32_t players;
  };

  // The members are copied into variables: the compiler cannot know that the rows that it writes are not these.
  template <class R>
  void add_rows(const Batch& batch, R rewards) {
    const sm_columns& c = batch.buffer->columns.c;
    const std::int32_t *const ids = batch.env_id, *const elapsed_steps = c.elapsed_step;
    const std::uint8_t* const ends = batch.ended;
    EnvNumbers* const envs = envs_.data();
    Row* const log = log_.data();
    const std::size_t size = log_.size();
    std::size_t next = next_;
    for (std::int32_t row = 0; row < batch.rows; ++row) {
      const double reward = rewards[row];
      const std::int32_t elapsed = elapsed_steps[row];
      EnvNumbers& its = envs[ids[row]];
      its.elapsed = elapsed;
      its.episode_return = elapsed == 0 ? 0.0 : its.episode_return + reward;
      Mark mark = elapsed == 0 ? kReset : kStep;
      if (ends[row] != 0) [[unlikely]] {
        end(its, {c.episode_return[row], c.episode_length[row]});
        mark = kEnd;
      }
      log[next] = {static_cast<std::uint32_t>(ids[row]) & kMostEnvs, mark, static_cast<float>(reward)};
      next = next + 1 == size ? 0 : next + 1;
    }
    next_ = next;
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
  std::int64_t episodes_ = 0;
  Returns new_returns_;
};

}  // namespace stepmill
