// CliffWalking-v1 and CliffWalkingSlippery-v1: walk along a cliff to the goal. A step off the edge
// costs 100 and leads back to the start; it does not end the episode.
#pragma once

#include <algorithm>

#include <stepmill/env.h>
#include "envs/toy/categorical.h"

namespace stepmill {

class CliffWalking {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static std::vector<ConfigItem> configuration() { return {{"is_slippery", false}}; }

  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {discrete(kRows * kColumns)};
    spec.action = {discrete(4)};
    spec.info = {box<double>({}, {0.0}, {1.0}, "prob")};
    return spec;
  }

  explicit CliffWalking(const Config& config) : is_slippery_(config.flag("is_slippery")) {}

  void reset(Rng& rng, const Options&) {
    rng.random();  // there is one start, and Gymnasium's env draws it all the same
    row_ = kRows - 1;
    column_ = 0;
    last_action_ = -1;
    probability_ = 1.0;
  }

  Outcome step(const ActionRow& action, Rng& rng) {
    const double number = rng.random();
    int direction = last_action_ = static_cast<int>(action.index());
    if (is_slippery_) {
      const int turn = slip_.draw(number);  // a quarter turn back, straight on, a quarter turn on
      direction = (direction + turn + 3) % 4;
      probability_ = slip_.probability(turn);
    }
    static constexpr int kDown[4] = {-1, 0, 1, 0}, kRight[4] = {0, 1, 0, -1};
    row_ = std::clamp(row_ + kDown[direction], 0, kRows - 1);
    column_ = std::clamp(column_ + kRight[direction], 0, kColumns - 1);

    const bool on_last_row = row_ == kRows - 1;
    if (on_last_row && column_ == kColumns - 1) return {-1.0, true, false};
    if (!on_last_row || column_ == 0) return {-1.0, false, false};
    column_ = 0;  // over the edge
    return {-100.0, false, false};
  }

  void observe(const Row& row) const {
    *row.observation<std::int64_t>() = row_ * kColumns + column_;
    *row.info<double>(0) = probability_;
  }

  void picture(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), {static_cast<double>(row_ * kColumns + column_), static_cast<double>(last_action_)});
  }

 private:
  static constexpr int kRows = 4, kColumns = 12;

  static constexpr ThreeWay slip_{1.0 / 3, 1.0 / 3, 1.0 / 3};

  bool is_slippery_;
  int row_ = kRows - 1, column_ = 0;
  int last_action_ = -1;  // only to be drawn; -1: none in this episode
  double probability_ = 1.0;
};

}  // namespace stepmill
