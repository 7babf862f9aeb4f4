#include "core/action_table.h"

#include <cstring>

namespace stepmill {

ActionTable::ActionTable(Arena& arena, const EnvSpec& spec, const TableOptions& options) {
  offset_ = arena.grow(lay_out(nullptr, spec, options), kCacheLine);
  lay_out(arena.at(offset_), spec, options);
  if (action_players_)  // a failure before the first action is one of all players
    std::memset(action_players_, 1, static_cast<std::size_t>(options.num_envs) *
                                        static_cast<std::size_t>(spec.max_num_players));
}

ActionTable::ActionTable(const Arena& arena, std::size_t offset, const EnvSpec& spec,
                         const TableOptions& options)
    : offset_(offset) {
  lay_out(arena.at(offset), spec, options);
}

std::size_t ActionTable::lay_out(std::byte* base, const EnvSpec& spec, const TableOptions& options) {
  std::size_t end = 0;
  const auto add = [&](std::int64_t row_bytes) {
    const std::size_t at = end;
    end += column_bytes(row_bytes, options.num_envs);
    return base ? base + at : nullptr;
  };
  const std::int32_t players = spec.max_num_players;
  shared_.state = reinterpret_cast<sm_env_state*>(add(sizeof(sm_env_state)));
  shared_.reset = reinterpret_cast<sm_reset_request*>(add(sizeof(sm_reset_request)));
  if (players > 1)
    action_players_ = reinterpret_cast<std::uint8_t*>(add(players));

  action_.clear();
  action_bytes_.clear();
  for (const Leaf& leaf : spec.action) {
    action_.push_back(add(leaf.row_bytes() * players));
    action_bytes_.push_back(leaf.row_bytes());
  }
  last_observation_.clear();
  observation_bytes_.clear();
  for (const Leaf& leaf : spec.observation) {
    if (options.keep_last_observation)
      last_observation_.push_back(add(leaf.row_bytes() * players));
    observation_bytes_.push_back(leaf.row_bytes());
  }
  info_bytes_.clear();
  for (const Leaf& leaf : spec.info) info_bytes_.push_back(leaf.row_bytes());

  shared_.action = action_.data();
  shared_.action_bytes = action_bytes_.data();
  shared_.action_players = action_players_;
  shared_.observation_bytes = observation_bytes_.data();
  shared_.info_bytes = info_bytes_.data();
  shared_.last_observation = options.keep_last_observation ? last_observation_.data() : nullptr;
  shared_.observation_leaves = static_cast<std::int32_t>(spec.observation.size());
  shared_.info_leaves = static_cast<std::int32_t>(spec.info.size());
  shared_.autoreset = options.autoreset;
  shared_.max_episode_steps = options.max_episode_steps;
  shared_.max_num_players = players;
  shared_.reward_is_float32 = options.reward_is_float32;
  return end;
}

}  // namespace stepmill
