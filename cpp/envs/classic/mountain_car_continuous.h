// MountainCarContinuous-v0: the car of mountain_car.h with a motor of any strength.
//
// Gymnasium's env keeps its state as float64 after a reset and as float32 after each step, and
// numpy 2 then computes the next step in float32. So `move` is written once for both types.
#pragma once

#include <cmath>

#include <stepmill/env.h>
#include "envs/classic/mountain_car.h"
#include "envs/numpy/float32.h"
#include "envs/numpy/scalar.h"

namespace stepmill {

class MountainCarContinuous : public CarInValley {
 public:
  using CarInValley::CarInValley;

  static EnvSpec spec(const Config&) { return spec_with(box<float>({1}, {-1.0}, {1.0})); }

  void reset(Rng& rng, const Options& options) {
    CarInValley::reset(rng, options);
    has_moved_ = false;
  }

  Outcome step(const ActionRow& action, Rng&) {
    const float effort = *action.get<float>();
    const bool at_goal =
        has_moved_ && scalars_keep_float32() ? move<float>(effort) : move<double>(effort);
    has_moved_ = true;
    const double cost = numpy_square(static_cast<double>(effort)) * 0.1;
    return {(at_goal ? 100.0 : 0.0) - cost, at_goal, false};
  }

  void picture(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), {position_, velocity_, has_moved_ ? 1.0 : 0.0});  // the last one tells the type
  }

 private:
  static constexpr double kGoal = 0.45, kPower = 0.0015;

  // Drives one step, computing in Real, and tells whether the goal was reached.
  template <class Real>
  bool move(float effort) {
    const Real left = static_cast<Real>(kLeft), right = static_cast<Real>(kRight);
    Real position = static_cast<Real>(position_);
    const double slope = kGravity * std::cos(static_cast<double>(3 * position));
    Real velocity = static_cast<Real>(velocity_) + static_cast<Real>(acceleration(effort, slope));

    // A clipped velocity is a Python float from here on, and compares as float64.
    double limit = 0.0;
    if (velocity > static_cast<Real>(kMaxSpeed)) limit = kMaxSpeed;
    if (velocity < static_cast<Real>(-kMaxSpeed)) limit = -kMaxSpeed;
    const bool clipped = limit != 0.0;
    if (clipped) velocity = static_cast<Real>(limit);

    position = numpy_clip<Real>(position + velocity, left, right);
    if (position == left && velocity < 0) velocity = 0;

    const bool fast_enough = clipped ? limit >= goal_velocity_
                                     : velocity >= static_cast<Real>(goal_velocity_);
    const bool at_goal = position >= static_cast<Real>(kGoal) && fast_enough;
    position_ = static_cast<float>(position);
    velocity_ = static_cast<float>(velocity);
    return at_goal;
  }

  // An effort inside the bounds is a float32 scalar; one that was clipped is a Python float.
  static double acceleration(float effort, double slope) {
    if (effort < -1.0F) return -kPower - slope;
    if (effort > 1.0F) return kPower - slope;
    if (!scalars_keep_float32()) return effort * kPower - slope;
    const float push = effort * static_cast<float>(kPower);
    return push - static_cast<float>(slope);
  }

  bool has_moved_ = false;  // then position and velocity are values that float32 holds
};

}  // namespace stepmill
