// The columns of the last received batch that memory safety depends on (`Batch`): copies that no worker can change.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pool.h"

namespace stepmill {

class ReceivedRows {
 public:
  ReceivedRows(std::int32_t num_envs, std::int32_t max_num_players)
      : max_players_(max_num_players),
        env_(static_cast<std::size_t>(num_envs)),
        players_(max_num_players > 1 ? static_cast<std::size_t>(num_envs) * static_cast<std::size_t>(max_num_players) : 0),
        terminated_(static_cast<std::size_t>(num_envs)),
        truncated_(static_cast<std::size_t>(num_envs)),
        ended_(static_cast<std::size_t>(num_envs)) {}

  std::int32_t env(std::int32_t row) const { return env_[static_cast<std::size_t>(row)]; }
  void set_env(std::int32_t row, std::int32_t env) { env_[static_cast<std::size_t>(row)] = env; }

  // Copies the flags, and makes the batch refer to the copies of everything.
  void put_into(Batch& batch) {
    const sm_columns& c = batch.buffer->columns.c;
    copy_flags(c.terminated, terminated_.data(), batch.rows);
    copy_flags(c.truncated, truncated_.data(), batch.rows);
    batch.any_ended = copy_flags(c.ended, ended_.data(), batch.rows);  // as the rows say
    batch.env_id = env_.data();
    if (c.players) {
      for (std::int32_t row = 0; row < batch.rows; ++row) copy_players(c, row);
      batch.players = players_.data();
    }
    batch.terminated = terminated_.data();
    batch.truncated = truncated_.data();
    batch.ended = ended_.data();
  }

  // Turns a row into a failure, after `columns` were.
  void spoil(const sm_columns& columns, std::int32_t row) {
    const auto r = static_cast<std::size_t>(row);
    if (columns.players) copy_players(columns, row);
    terminated_[r] = ended_[r] = 0;
    truncated_[r] = 1;
  }

 private:
  // Copies the flags of a row's players, without bits that mean nothing.
  void copy_players(const sm_columns& columns, std::int32_t row) {
    constexpr int kAll = SM_HAS_ROW | SM_PLAYER_TERMINATED | SM_PLAYER_TRUNCATED;
    const auto first = static_cast<std::size_t>(row) * static_cast<std::size_t>(max_players_);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(max_players_); ++i)
      players_[i] = static_cast<std::uint8_t>(columns.players[i] & kAll);
  }
  // Copies flags as 0 and 1, whatever they were. Returns whether any is set.
  static bool copy_flags(const std::uint8_t* __restrict from, std::uint8_t* __restrict to, std::int32_t count) {
    std::uint8_t any = 0;
    for (std::int32_t i = 0; i < count; ++i) any |= to[i] = from[i] != 0;
    return any != 0;
  }

  const std::int32_t max_players_;
  // By row.
  std::vector<std::int32_t> env_;
  std::vector<std::uint8_t> players_;
  std::vector<std::uint8_t> terminated_, truncated_, ended_;
};

}  // namespace stepmill
