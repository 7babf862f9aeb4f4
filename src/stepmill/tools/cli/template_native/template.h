// A walk to a goal on a square board. It is there to be replaced by an env of your own.
//
// All of it is here: seeds, autoreset, time limits, threads, statistics and checks of actions are the engine's work.
// `stepmill.get_include()` is the folder of the header below, for your editor.
#pragma once

#include <algorithm>

#include <stepmill/env.h>

using namespace stepmill;

class Template {
 public:
  static constexpr bool kNeverBlocks = true;  // reset, step and observe only compute, and never for long
  static constexpr bool kPlainMemory = true;  // no member is a pointer or a container: a copy of them is a copy of the env

  // What make(..., size=8) may set, with defaults.
  static std::vector<ConfigItem> configuration() { return {{"size", std::int64_t{5}}}; }

  static EnvSpec spec(const Config& config) {
    if (config.integer("size") < 2)
      throw std::invalid_argument("size: expected at least 2, got " + std::to_string(config.integer("size")));
    EnvSpec spec;
    spec.observation = {box<float>({4}, {0.0}, {1.0})};  // x and y of the walker, then of the goal
    spec.action = {discrete(4)};                         // right, down, left, up
    return spec;
  }

  explicit Template(const Config& config) : size_(config.integer("size")) {}

  // Begins an episode. All random numbers come from `rng`: then the same seed gives the same episodes.
  void reset(Rng& rng, const Options&) {
    x_ = rng.integers(0, size_);
    y_ = rng.integers(0, size_);
    do {
      goal_x_ = rng.integers(0, size_);
      goal_y_ = rng.integers(0, size_);
    } while (is_there());
  }

  // If something is wrong, throw a std::exception: it is the error of this env, and the others go on.
  Outcome step(const ActionRow& action, Rng&) {
    constexpr std::int64_t dx[] = {1, 0, -1, 0}, dy[] = {0, 1, 0, -1};
    x_ = std::clamp<std::int64_t>(x_ + dx[action.index()], 0, size_ - 1);
    y_ = std::clamp<std::int64_t>(y_ + dy[action.index()], 0, size_ - 1);
    return {is_there() ? 1.0 : -0.01, is_there(), false};  // reward, terminated, truncated
  }

  // Writes every element, and changes nothing.
  void observe(const Row& row) const {
    float* out = row.observation<float>();
    const std::int64_t shown[] = {x_, y_, goal_x_, goal_y_};
    for (int i = 0; i < 4; ++i) out[i] = static_cast<float>(static_cast<double>(shown[i]) / static_cast<double>(size_ - 1));
  }

 private:
  bool is_there() const { return x_ == goal_x_ && y_ == goal_y_; }

  std::int64_t size_, x_ = 0, y_ = 0, goal_x_ = 0, goal_y_ = 0;
};
