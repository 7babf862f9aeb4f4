// FrozenLake-v1 and FrozenLake8x8-v1: cross a frozen lake without falling into a hole. On slippery
// ice a step goes where it was meant to only some of the time, and sideways otherwise.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <stepmill/env.h>
#include "envs/toy/categorical.h"
#include "envs/toy/lake_map.h"

namespace stepmill {

class FrozenLake {
 public:
  static constexpr bool kNeverBlocks = true;

#ifndef STEPMILL_GPU
  static std::vector<ConfigItem> configuration() {
    return {{"desc", std::string()},         // rows joined by newlines; empty: take map_name
            {"map_name", std::string("4x4")},  // empty: a random map
            {"is_slippery", true},
            {"success_rate", 1.0 / 3.0},
            {"reward_schedule", Reals{1.0, 0.0, 0.0}}};  // for goal, hole, ice
  }

  static EnvSpec spec(const Config& config) {
    const std::string text = map_text(config);
    std::int64_t states = kRandomLakeSize * kRandomLakeSize;
    if (!text.empty()) states = static_cast<std::int64_t>(parse_lake(text).tiles.size());
    if (config.reals("reward_schedule").size() != 3)
      throw std::invalid_argument("reward_schedule: expected 3 numbers (goal, hole, ice), got " +
                                  std::to_string(config.reals("reward_schedule").size()));
    EnvSpec spec;
    spec.observation = {discrete(states)};
    spec.action = {discrete(4)};
    spec.info = {box<double>({}, {0.0}, {1.0}, "prob")};
    return spec;
  }

  explicit FrozenLake(const Config& config)
      : map_(map_of(config)),
        map_is_random_(map_text(config).empty()),
        slip_(slips(config)),
        is_slippery_(config.flag("is_slippery")),
        goal_reward_(config.reals("reward_schedule").at(0)),
        hole_reward_(config.reals("reward_schedule").at(1)),
        ice_reward_(config.reals("reward_schedule").at(2)) {}

  // For a GPU, see <stepmill/env.h>.
  const std::shared_ptr<const LakeMap>& reads() const { return map_; }
#endif

  void reset(Rng& rng, const Options&) {
    state_ = map_->draw_start(rng.random());
    last_action_ = -1;
    probability_ = 1.0;
  }

  Outcome step(const ActionRow& action, Rng& rng) {
    const double number = rng.random();  // drawn on any ice
    int direction = last_action_ = static_cast<int>(action.index());
    if (is_slippery_) {
      const int turn = slip_.draw(number);  // a quarter turn back, straight on, a quarter turn on
      direction = (direction + turn + 3) % 4;
      probability_ = slip_.probability(turn);
    }
    state_ = map_->neighbour(state_, direction);
    switch (map_->tile(state_)) {
      case 'G': return {goal_reward_, true, false};
      case 'H': return {hole_reward_, true, false};
      default: return {ice_reward_, false, false};
    }
  }

  void observe(const Row& row) const {
    *row.observation<std::int64_t>() = state_;
    *row.info<double>(0) = probability_;
  }

#ifndef STEPMILL_GPU
  // The map too: a random one is known only here.
  void picture(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), {static_cast<double>(state_), static_cast<double>(last_action_),
                                   static_cast<double>(map_->columns())});
    for (const char tile : map_->tiles()) numbers.push_back(static_cast<unsigned char>(tile));
  }

  // A random map too, for the same reason. Any other is that of the configuration.
  void save(Writer& to) const {
    to.put(state_, last_action_, probability_);
    if (map_is_random_) to.put(map_->columns(), map_->tiles());
  }
  void load(Reader& from) {
    from.take(state_, last_action_, probability_);
    LakeText lake{map_->tiles(), 0, map_->columns()};
    if (map_is_random_) from.take(lake.columns, lake.tiles);
    const auto tiles = std::ssize(lake.tiles);
    if (lake.columns < 1 || tiles % lake.columns != 0 || state_ < 0 || state_ >= tiles)
      throw std::runtime_error("a state that is not on its map");
    if (lake.tiles == map_->tiles() && lake.columns == map_->columns()) return;
    lake.rows = static_cast<std::int32_t>(tiles) / lake.columns;
    map_ = LakeMap::make(lake);
  }
#endif

 private:
#ifndef STEPMILL_GPU
  // The text of the map; empty where it is drawn at random.
  static std::string map_text(const Config& config) {
    const std::string& name = config.text("map_name");
    if (!config.text("desc").empty()) return config.text("desc");
    if (name.empty()) return "";
    if (name == "4x4") return "SFFF\nFHFH\nFFFH\nHFFG";
    if (name == "8x8")
      return "SFFFFFFF\nFFFFFFFF\nFFFHFFFF\nFFFFFHFF\nFFFHFFFF\nFHHFFFHF\nFHFFHFHF\nFFFHFFFG";
    throw std::invalid_argument(
        "map_name: expected '4x4', '8x8' or nothing for a random map, got '" + name + "'");
  }

  static std::shared_ptr<const LakeMap> map_of(const Config& config) {
    const std::string text = map_text(config);
    return text.empty() ? LakeMap::make(random_lake()) : shared_lake(text);
  }

  static ThreeWay slips(const Config& config) {
    const double success = config.real("success_rate");
    const double sideways = (1.0 - success) / 2.0;
    return {sideways, success, sideways};
  }
#endif

  std::shared_ptr<const LakeMap> map_;
  bool map_is_random_;
  ThreeWay slip_;
  bool is_slippery_;
  double goal_reward_, hole_reward_, ice_reward_;
  std::int32_t state_ = 0;
  int last_action_ = -1;  // only to be drawn; -1: none in this episode
  double probability_ = 1.0;
};

}  // namespace stepmill
