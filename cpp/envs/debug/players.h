// The env of many players to copy: tag on a ring, in which players leave and join in the middle of an episode. template.h
// has the comments on what all envs have in common; those here are about players.
//
//     . . a . . . T . b .      T tags whoever is on its tile after a move; the ring closes at its ends
//
// The player with the lowest number is the tagger. A player that is tagged leaves, and so does one that has stayed long
// enough; now and then a new one enters. The episode is over when nobody is left.
#pragma once

#include <array>
#include <stdexcept>
#include <string>

#include <stepmill/env.h>

namespace stepmill {

class TemplatePlayers {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  // Each player has rows of its own in observation, action and reward, and the env writes the rewards itself.
  static constexpr bool kManyPlayers = true;

  // `make(..., max_num_players=6)` arrives as the key of that name.
  static std::vector<ConfigItem> configuration() {
    return {{"tiles", std::int64_t{12}},
            {"stay", std::int64_t{30}},  // steps after which a player leaves by itself
            {"join", 0.2},               // how likely a new player enters in a step
            {"max_num_players", std::int64_t{4}}};
  }

  static EnvSpec spec(const Config& config) {
    check(config, "tiles", 2, 1000000);
    check(config, "stay", 1, 1000000);
    check(config, "max_num_players", 1, kMostPlayers);
    const auto tiles = static_cast<double>(config.integer("tiles")), far = tiles / 2;
    const auto players = static_cast<double>(config.integer("max_num_players"));
    EnvSpec spec;
    // What one player sees: its tile, the way to the tagger (negative: to the left), whether it is the tagger, and how
    // many players there are.
    spec.observation = {box<float>({4}, {0.0, -far, 0.0, 0.0}, {tiles - 1, far, 1.0, players})};
    spec.action = {discrete(3)};  // stay, left, right
    spec.info = {box<std::int32_t>({}, {0.0}, {1e9}, "tags")};  // one per env, not one per player
    spec.max_num_players = static_cast<std::int32_t>(config.integer("max_num_players"));
    return spec;
  }

  explicit TemplatePlayers(const Config& config)
      : tiles_(static_cast<int>(config.integer("tiles"))),
        stay_(static_cast<int>(config.integer("stay"))),
        most_(static_cast<int>(config.integer("max_num_players"))),
        join_(config.real("join")) {}

  void reset(Rng& rng, const Options&) {
    player_.fill({});
    for (int i = 0; i < (most_ + 1) / 2; ++i) enter(player_[i], rng);
    tags_ = 0;
  }

  Outcome step(const ActionRow& action, Rng& rng) {
    for (int i = 0; i < most_; ++i) {
      Player& one = player_[i];
      // A player that left has had its last row. From now on a new one can have its number.
      if (one.presence != Presence::kHere) one.presence = Presence::kAbsent;
      // The engine sees to it that whoever is here has sent an action. Players keep their numbers, so it is theirs.
      else move(one, *action.get<std::int64_t>(0, i));
    }
    tag();
    const bool cut_off = send_away();
    // Drawn in every step, so that draws do not shift.
    if (rng.random() < join_) let_one_in(rng);

    double sum = 0.0;
    for (int i = 0; i < most_; ++i)
      if (player_[i].presence != Presence::kAbsent) sum += player_[i].reward;
    const bool over = count() == 0;
    return {sum, over && !cut_off, over && cut_off};
  }

  // Says who is here. The rows of players that are absent are not in the batch, so nothing need be written there.
  void observe(const Row& row) const {
    const int tagger = first(Presence::kHere), here = count();
    for (int i = 0; i < most_; ++i) {
      const Player& one = player_[i];
      row.set_presence(i, one.presence);
      if (one.presence == Presence::kAbsent) continue;
      float* out = row.observation<float>(0, i);
      out[0] = static_cast<float>(one.tile);
      out[1] = static_cast<float>(tagger < 0 ? 0 : way(one.tile, player_[tagger].tile));
      out[2] = static_cast<float>(i == tagger);
      out[3] = static_cast<float>(here);
      row.set_reward(i, one.reward);  // the engine ignores this after a reset
    }
    *row.info<std::int32_t>(0) = tags_;
  }

 private:
  static constexpr int kMostPlayers = 32;

  struct Player {
    int tile = 0, steps = 0;
    double reward = 0.0;  // of the last step
    Presence presence = Presence::kAbsent;
  };

  static void check(const Config& config, const char* key, std::int64_t low, std::int64_t high) {
    const std::int64_t value = config.integer(key);
    if (value < low || value > high)
      throw std::invalid_argument(std::string(key) + ": expected " + std::to_string(low) + " to " +
                                  std::to_string(high) + ", got " + std::to_string(value));
  }

  // The lowest number that is present in this way; -1 if none is.
  int first(Presence presence) const {
    for (int i = 0; i < most_; ++i)
      if (player_[i].presence == presence) return i;
    return -1;
  }
  int count() const {
    int here = 0;
    for (int i = 0; i < most_; ++i) here += player_[i].presence == Presence::kHere;
    return here;
  }
  int way(int from, int to) const {
    const int right = (to - from + tiles_) % tiles_;
    return 2 * right > tiles_ ? right - tiles_ : right;
  }

  void enter(Player& one, Rng& rng) const {
    one = {static_cast<int>(rng.integers(0, tiles_)), 0, 0.0, Presence::kHere};
  }
  void let_one_in(Rng& rng) {
    const int free = first(Presence::kAbsent);
    if (free >= 0) enter(player_[free], rng);
  }

  void move(Player& one, std::int64_t action) const {
    one.tile = (one.tile + (action == 1 ? tiles_ - 1 : action == 2 ? 1 : 0)) % tiles_;
    one.steps += 1;
    one.reward = 0.1;
  }

  void tag() {
    const int tagger = first(Presence::kHere);
    for (int i = tagger + 1; tagger >= 0 && i < most_; ++i) {
      Player& one = player_[i];
      if (one.presence != Presence::kHere || one.tile != player_[tagger].tile) continue;
      one.presence = Presence::kTerminated;  // shown once more, with the reward of this step
      one.reward = -1.0;
      player_[tagger].reward += 1.0;
      tags_ += 1;
    }
  }

  // Players that have stayed long enough. Whether there are any.
  bool send_away() {
    bool any = false;
    for (int i = 0; i < most_; ++i) {
      Player& one = player_[i];
      if (one.presence != Presence::kHere || one.steps < stay_) continue;
      one.presence = Presence::kTruncated;
      any = true;
    }
    return any;
  }

  int tiles_, stay_, most_;
  double join_;
  std::array<Player, kMostPlayers> player_{};
  int tags_ = 0;
};

}  // namespace stepmill
