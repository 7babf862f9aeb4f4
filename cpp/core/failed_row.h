// The row of an env that has no step to show. Only this file writes such rows, wherever the env ran; but for a thread of a
// GPU that fails, which has lost what it would call this with (`gpu/kernel.h`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/env/env_table.h"

namespace stepmill {

// Takes all infos from rows: they have those that their envs write from now on. `present`: a column of such flags.
inline void clear_infos(const sm_shared& shared, std::uint8_t* present, std::int64_t first, std::int64_t count) {
  if (shared.info_leaves == 0) return;
  std::memset(present + first * shared.info_leaves, 0, static_cast<std::size_t>(count * shared.info_leaves));
}

// The players that a row has if its env says nothing.
inline void show_all_players(const sm_shared& shared, const sm_columns& columns, std::int64_t row) {
  if (!columns.players) return;
  const auto players = static_cast<std::size_t>(shared.max_num_players);
  std::memset(columns.players + static_cast<std::size_t>(row) * players, SM_HAS_ROW, players);
}

// The fixed columns: no reward, no end, no infos.
inline void write_row_without_step(const sm_shared& shared, const sm_columns& columns, std::int64_t row,
                                   std::int32_t env, std::int32_t elapsed, bool truncated) {
  columns.env_id[row] = env;
  columns.elapsed_step[row] = elapsed;
  columns.terminated[row] = false;
  columns.truncated[row] = truncated;
  columns.ended[row] = false;
  columns.episode_return[row] = 0.0;
  columns.episode_length[row] = 0;
  clear_infos(shared, columns.info_present, row, 1);
  show_all_players(shared, columns, row);
  const std::int64_t first = row * shared.max_num_players;
  for (std::int64_t i = first; i < first + shared.max_num_players; ++i) {
    if (shared.reward_is_float32)
      static_cast<float*>(columns.reward)[i] = 0.0f;
    else
      static_cast<double*>(columns.reward)[i] = 0.0;
  }
}

// A failure fills its row like any result: truncated, with the last good observation of the players that have acted.
// `last(leaf)` says where that observation is, for all players; null if none is kept: then the observation is zeros. The
// row has none of the env's infos. Reads nothing else that another process could write.
template <class Last>
void write_failed_row(const sm_shared& shared, const sm_columns& columns, std::int64_t row, std::int32_t env,
                      std::int32_t elapsed, Last last) {
  write_row_without_step(shared, columns, row, env, elapsed, true);
  if (columns.players)
    for (std::int32_t player = 0; player < shared.max_num_players; ++player)
      columns.players[row * shared.max_num_players + player] =
          shared.action_players[std::int64_t{env} * shared.max_num_players + player] ? SM_HAS_ROW : 0;
  for (int leaf = 0; leaf < shared.observation_leaves; ++leaf) {
    const std::int64_t bytes = shared.observation_bytes[leaf] * shared.max_num_players;
    std::byte* to = static_cast<std::byte*>(columns.observation[leaf]) + row * bytes;
    if (const void* from = last(leaf))
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    else
      std::memset(to, 0, static_cast<std::size_t>(bytes));
  }
}

// With `same_step`: the row of a good end whose reset failed shows what the end showed.
inline void show_end(const sm_shared& shared, const sm_columns& columns, std::int64_t row) {
  const auto copy = [row](void* to, const void* from, std::int64_t bytes) {
    std::memcpy(static_cast<std::byte*>(to) + row * bytes, static_cast<const std::byte*>(from) + row * bytes,
                static_cast<std::size_t>(bytes));
  };
  for (int leaf = 0; leaf < shared.observation_leaves; ++leaf)
    copy(columns.observation[leaf], columns.final_observation[leaf],
         shared.observation_bytes[leaf] * shared.max_num_players);
  for (int leaf = 0; leaf < shared.info_leaves; ++leaf)
    copy(columns.info[leaf], columns.final_info[leaf], shared.info_bytes[leaf]);
  if (shared.info_leaves) copy(columns.info_present, columns.final_info_present, shared.info_leaves);
}

}  // namespace stepmill
