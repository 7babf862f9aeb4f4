// Who is in the envs of a pool: what their last rows have shown, and so which actions they expect next.
//
// A player has a number in its env, from 0 to max_num_players - 1. The players of one kind have the same spaces; in the
// columns of such a space they take one row each, in the order of their numbers: a player's rank.
#pragma once

#include <cstdint>
#include <vector>

#include "core/env/env_table.h"
#include "core/env/spec.h"

namespace stepmill {

class Players {
 public:
  Players(const EnvSpec& spec, std::int32_t num_envs)
      : most(spec.max_num_players),
        shown_(most > 1 ? static_cast<std::size_t>(num_envs) * static_cast<std::size_t>(most) : 0, kUnknown) {
    kinds_.resize(1);
    for (std::int32_t player = 0; player < most; ++player) {
      const auto kind = spec.player_kinds.empty() ? 0 : static_cast<std::size_t>(spec.player_kinds[at(player)]);
      if (kind >= kinds_.size()) kinds_.resize(kind + 1);
      places_.push_back({static_cast<std::int32_t>(kind), static_cast<std::int32_t>(kinds_[kind].size())});
      kinds_[kind].push_back(player);
    }
    differ_ = !spec.player_kinds.empty();
  }

  struct Place {
    std::int32_t kind, rank;
  };
  bool are_many() const { return most > 1; }
  // Whether their spaces differ: then values are dicts by kind.
  bool differ() const { return differ_; }
  std::size_t kinds() const { return kinds_.size(); }
  // The numbers of the players of a kind.
  const std::vector<std::int32_t>& of_kind(std::size_t kind) const { return kinds_[kind]; }
  Place place(std::int32_t player) const { return places_[at(player)]; }

  // Takes what a row shows of the players of an env, as bits of sm_player_flag.
  void show(std::int32_t env, std::int32_t player, std::uint8_t flags) { shown_[index(env, player)] = flags; }
  // Whether the last row of an env shows a player. Before its first row, all of them may be there.
  bool has_row(std::int32_t env, std::int32_t player) const { return (shown_[index(env, player)] & SM_HAS_ROW) != 0; }
  // Whether the next action must have one of this player.
  bool acts(std::int32_t env, std::int32_t player) const { return shown_[index(env, player)] == SM_HAS_ROW; }

  const std::int32_t most;

 private:
  // The first action only resets: nobody must act.
  static constexpr std::uint8_t kUnknown = SM_HAS_ROW | SM_PLAYER_TERMINATED;

  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::size_t index(std::int32_t env, std::int32_t player) const { return at(env) * at(most) + at(player); }

  std::vector<std::uint8_t> shown_;
  std::vector<std::vector<std::int32_t>> kinds_;
  std::vector<Place> places_;
  bool differ_ = false;
};

}  // namespace stepmill
