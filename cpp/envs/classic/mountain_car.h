// MountainCar-v0: rock an underpowered car up a hill. The arithmetic follows Gymnasium's env
// operation by operation.
#pragma once

#include <cmath>
#include <utility>

#include <stepmill/env.h>
#include "envs/numpy/scalar.h"
#include "envs/classic/reset_bounds.h"

namespace stepmill {

// A car in a valley, whatever its motor is.
class CarInValley {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static std::vector<ConfigItem> configuration() { return {{"goal_velocity", 0.0}}; }

  static constexpr const char* kResetOptions[] = {"low", "high", nullptr};
  static void check_options(const Options& options) { reset_bounds(options, -0.6, -0.4); }

  explicit CarInValley(const Config& config) : goal_velocity_(config.real("goal_velocity")) {}

  void reset(Rng& rng, const Options& options) {
    const auto [low, high] = reset_bounds(options, -0.6, -0.4);
    position_ = rng.uniform(low, high);
    velocity_ = 0.0;
  }

  void observe(const Row& row) const {
    float* out = row.observation<float>();
    out[0] = static_cast<float>(position_);
    out[1] = static_cast<float>(velocity_);
  }

 protected:
  static constexpr double kLeft = -1.2, kRight = 0.6, kMaxSpeed = 0.07, kGravity = 0.0025;

  static EnvSpec spec_with(Leaf action) {
    const double left = static_cast<float>(kLeft), right = static_cast<float>(kRight);
    const double speed = static_cast<float>(kMaxSpeed);
    EnvSpec spec;
    spec.observation = {box<float>({2}, {left, -speed}, {right, speed})};
    spec.action = {std::move(action)};
    return spec;
  }

  double position_ = 0.0, velocity_ = 0.0;
  double goal_velocity_;
};

class MountainCar : public CarInValley {
 public:
  using CarInValley::CarInValley;

  static EnvSpec spec(const Config&) { return spec_with(discrete(3)); }

  Outcome step(const ActionRow& action, Rng&) {
    const double push = static_cast<double>(action.index() - 1) * kForce;
    const double velocity = velocity_ + (push + std::cos(3 * position_) * -kGravity);
    velocity_ = numpy_clip(velocity, -kMaxSpeed, kMaxSpeed);
    position_ = numpy_clip(position_ + velocity_, kLeft, kRight);
    if (position_ == kLeft && velocity_ < 0) velocity_ = 0.0;
    return {-1.0, position_ >= kGoal && velocity_ >= goal_velocity_, false};
  }

  void picture(std::vector<double>& numbers) const { numbers.insert(numbers.end(), {position_, velocity_}); }

 private:
  static constexpr double kGoal = 0.5, kForce = 0.001;
};

}  // namespace stepmill
