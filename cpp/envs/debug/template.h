// The env to copy: a walk down a corridor, with a comment at every decision an author takes.
//
//     | . . . x . . . E |      each player stands on a tile; the exit E is the last one
//
// With many players one more enters at every step.
//
// To make it yours: rename the class, change what follows, and add one line to envs/catalogue.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include <stepmill/env.h>

namespace stepmill {

class Template {
 public:
  // The methods below only compute, and not for long, so the calling thread may run them itself, many envs one after the
  // other. Leave this out in an env that may wait for something, or whose resets take long.
  static constexpr bool kNeverBlocks = true;

  // Members are numbers and arrays of them, and none is a pointer or a reference: a copy of the memory is a copy of the
  // env, so that `pool.save` works. An env with a vector or a pointer has `save` and `load` instead, see env.h.
  static constexpr bool kPlainMemory = true;

  // Configuration: what `make("Template-v0", length=20)` may set, each key with its default. The
  // default also fixes the type: bool, std::int64_t, double, std::string or Reals. Leave this out
  // if there is nothing to set.
  static std::vector<ConfigItem> configuration() {
    return {{"length", std::int64_t{10}}, {"slip", 0.1}, {"max_num_players", std::int64_t{1}}};
  }

  // Reset options: what `reset(options={"start": 3})` may give for one episode. Numbers only, read
  // by their position in this list.
  static constexpr const char* kResetOptions[] = {"start", nullptr};

  // Runs before a reset is queued, so a bad value is the caller's error and no env sees it. Say
  // what was expected and what came. It knows no configuration: what depends on `length` must
  // wait for `reset`, where throwing costs the episode.
  static void check_options(const Options& options) {
    if (!(options.get(0, 0.0) >= 0.0))
      throw std::invalid_argument("reset option start: expected a number >= 0, got " +
                                  std::to_string(options.get(0, 0.0)));
  }

  // Many players: `make(..., max_num_players=3)` arrives as the configuration key of that name. Each
  // has rows of its own in observation, action and reward, and the env writes the rewards itself.
  // Leave this out in an env of one player: the engine then takes `Outcome::reward`.
  static constexpr bool kManyPlayers = true;

  // The arrays, from the configuration alone: `make_spec` calls this without building an env. It is
  // also the place to refuse a configuration.
  static EnvSpec spec(const Config& config) {
    const std::int64_t length = config.integer("length"), players = config.integer("max_num_players");
    if (length < 2 || length > kLongest)
      throw std::invalid_argument("length: expected 2 to " + std::to_string(kLongest) + ", got " +
                                  std::to_string(length));
    if (players < 1 || players > kMostPlayers)
      throw std::invalid_argument("max_num_players: expected 1 to " + std::to_string(kMostPlayers) +
                                  ", got " + std::to_string(players));
    EnvSpec spec;
    // What one player sees: its tile, and how far ahead of it the leader is.
    spec.observation = {box<float>({2}, {0.0}, {static_cast<double>(length - 1)})};
    spec.action = {discrete(2)};  // back, forward
    // The keys in `info` that the env may have: one value per env, whatever the number of players.
    spec.info = {box<std::int32_t>({}, {0.0}, {static_cast<double>(length - 1)}, "to_exit")};
    spec.max_num_players = static_cast<std::int32_t>(players);
    return spec;
  }

  // Load what is heavy here. From now on an env should not allocate: keep sizes fixed.
  explicit Template(const Config& config)
      : exit_(static_cast<int>(config.integer("length")) - 1),
        players_(static_cast<int>(config.integer("max_num_players"))),
        slip_(config.real("slip")) {}

  // Begins an episode. All chance comes from `rng`, which the engine seeds and keeps: then the same
  // seed gives the same episodes on any number of threads.
  void reset(Rng&, const Options& options) {
    const int start = static_cast<int>(std::min(options.get(0, 0.0), exit_ - 1.0));
    tile_.fill(start);
    entered_ = 1;
  }

  // Computes; writes nothing yet. Time limit and autoreset are the engine's work: only say when the
  // env itself is over.
  Outcome step(const ActionRow& action, Rng& rng) {
    double sum = 0.0;
    for (int player = 0; player < entered_; ++player) {
      const bool slipped = rng.random() < slip_;  // drawn always, so that draws do not shift
      const bool acts = action.acts(player) && !slipped;
      const bool forward = acts && *action.get<std::int64_t>(0, player) == 1;
      const int move = !acts ? 0 : forward ? 1 : -1;
      tile_[player] = std::clamp(tile_[player] + move, 0, exit_);
      reward_[player] = tile_[player] == exit_ ? 1.0 : -0.01;
      sum += reward_[player];
    }
    if (entered_ < players_) reward_[entered_++] = 0.0;  // who enters has earned nothing yet
    // The reward here is what the engine adds up to `episode_return`.
    return {sum, leader() == exit_, false};
  }

  // Writes every element of the observation, and of each info that it asks for: rows are recycled and
  // hold old values. Called after `reset` and after `step`, and twice at an end under same_step, so it
  // must change nothing.
  void observe(const Row& row) const {
    // Who is here may differ from step to step. players.h, beside this file, shows players that leave, too.
    for (int player = entered_; player < players_; ++player) row.set_presence(player, Presence::kAbsent);
    for (int player = 0; player < entered_; ++player) {
      float* out = row.observation<float>(0, player);
      out[0] = static_cast<float>(tile_[player]);
      out[1] = static_cast<float>(leader() - tile_[player]);
      row.set_reward(player, reward_[player]);  // the engine ignores this after a reset
    }
    // Asking gives the row this key. Leave it out in rows that should not have it, such as those of resets.
    *row.info<std::int32_t>(0) = exit_ - leader();
  }

  // The numbers that a drawing shows, for the Python class that draws (docs/adding-an-env.md). Called while the env is
  // idle, and rarely, so it may allocate. Leave this out in an env that nothing draws.
  void picture(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), tile_.begin(), tile_.begin() + entered_);
  }

 private:
  static constexpr int kMostPlayers = 8, kLongest = 1000000;

  int leader() const { return *std::max_element(tile_.begin(), tile_.begin() + entered_); }

  int exit_, players_, entered_ = 1;
  double slip_;
  std::array<int, kMostPlayers> tile_{};
  std::array<double, kMostPlayers> reward_{};
};

}  // namespace stepmill
