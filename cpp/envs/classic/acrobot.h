// Acrobot-v1: swing a two-link arm up by a motor at its elbow. The arithmetic follows Gymnasium's
// env operation by operation; factors that are 1 (masses, lengths, inertias) are left out, which
// changes no result.
#pragma once

#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include <stepmill/env.h>
#include "envs/numpy/float32.h"
#include "envs/numpy/scalar.h"
#include "envs/classic/reset_bounds.h"

namespace stepmill {

class Acrobot {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static constexpr const char* kResetOptions[] = {"low", "high", nullptr};
  static void check_options(const Options& options) { reset_bounds(options, -0.1, 0.1); }

  static EnvSpec spec(const Config&) {
    const double first = static_cast<float>(kMaxSpeed1), second = static_cast<float>(kMaxSpeed2);
    EnvSpec spec;
    spec.observation = {box<float>({6}, {-1, -1, -1, -1, -first, -second},
                                   {1, 1, 1, 1, first, second})};
    spec.action = {discrete(3)};
    return spec;
  }

  explicit Acrobot(const Config&) {}

  void reset(Rng& rng, const Options& options) {
    const auto [low, high] = reset_bounds(options, -0.1, 0.1);
    for (double& value : state_) value = static_cast<float>(rng.uniform(low, high));
    has_moved_ = false;
    look();
  }

  Outcome step(const ActionRow& action, Rng&) {
    const double torque = static_cast<double>(action.index() - 1);
    state_ = integrate(torque);
    state_[0] = wrapped(state_[0]);
    state_[1] = wrapped(state_[1]);
    state_[2] = numpy_clip(state_[2], -kMaxSpeed1, kMaxSpeed1);
    state_[3] = numpy_clip(state_[3], -kMaxSpeed2, kMaxSpeed2);
    has_moved_ = true;
    look();
    const bool high_enough = -cosine_[0] - std::cos(state_[1] + state_[0]) > 1.0;
    return {high_enough ? 0.0 : -1.0, high_enough, false};
  }

  void observe(const Row& row) const {
    float* out = row.observation<float>();
    for (int joint = 0; joint < 2; ++joint) {
      // The state of a reset is float32, and so are numpy's cos and sin of it.
      const float angle = static_cast<float>(state_[joint]);
      out[2 * joint] = has_moved_ ? static_cast<float>(cosine_[joint]) : numpy_cos(angle);
      out[2 * joint + 1] = has_moved_ ? static_cast<float>(sine_[joint]) : numpy_sin(angle);
    }
    out[4] = static_cast<float>(state_[2]);
    out[5] = static_cast<float>(state_[3]);
  }

  void picture(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), state_.begin(), state_.end());
    numbers.push_back(has_moved_ ? 1.0 : 0.0);  // tells the type of the state
  }

 private:
  using State = std::array<double, 4>;  // two angles, two angular velocities

  static constexpr double kPi = std::numbers::pi;
  static constexpr double kMaxSpeed1 = 4 * kPi, kMaxSpeed2 = 9 * kPi;
  static constexpr double kTimeStep = 0.2, kGravity = 9.8;
  static constexpr double kCentre = 0.5;  // of mass, along each link

  // The equations of motion, in the form of Sutton and Barto's book; sin2 and cos2 are theta2's.
  static State derivative(const State& s, double torque, double sin2, double cos2) {
    const auto [theta1, theta2, speed1, speed2] = s;
    const double d1 = 0.25 + (1.25 + cos2) + 1.0 + 1.0;
    const double d2 = 0.25 + kCentre * cos2 + 1.0;
    const double phi2 = kCentre * kGravity * std::cos(theta1 + theta2 - kPi / 2.0);
    const double phi1 = -kCentre * numpy_square(speed2) * sin2 - speed2 * speed1 * sin2 +
                        1.5 * kGravity * std::cos(theta1 - kPi / 2) + phi2;
    const double acceleration2 =
        (torque + d2 / d1 * phi1 - kCentre * numpy_square(speed1) * sin2 - phi2) /
        (1.25 - numpy_square(d2) / d1);
    const double acceleration1 = -(d2 * acceleration2 + phi1) / d1;
    return {speed1, speed2, acceleration1, acceleration2};
  }

  // One step of fourth-order Runge-Kutta.
  State integrate(double torque) const {
    const State& start = state_;
    const auto from_start = [&](double step, const State& slope) {
      State at;
      for (int i = 0; i < 4; ++i) at[i] = start[i] + step * slope[i];
      return at;
    };
    const auto slope_at = [&](const State& at) {
      return derivative(at, torque, std::sin(at[1]), std::cos(at[1]));
    };
    const State k1 = derivative(start, torque, sine_[1], cosine_[1]);
    const State k2 = slope_at(from_start(kTimeStep / 2.0, k1));
    const State k3 = slope_at(from_start(kTimeStep / 2.0, k2));
    const State k4 = slope_at(from_start(kTimeStep, k3));
    State sum;
    for (int i = 0; i < 4; ++i) sum[i] = k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i];
    return from_start(kTimeStep / 6.0, sum);
  }

  // Into [-pi, pi] one turn at a time, as the rounding of Gymnasium's env wants it. Reset options
  // can start an arm so fast that this would take forever.
  static double wrapped(double angle) {
    if (!(std::abs(angle) < 1e8))
      throw std::runtime_error("the arm turned beyond what can be wrapped: reset it with smaller "
                               "bounds than these options gave");
    while (angle > kPi) angle = angle - 2 * kPi;
    while (angle < -kPi) angle = angle + 2 * kPi;
    return angle;
  }

  // These are observed now, decide the end, and begin the next step: computed once for all.
  void look() {
    for (int joint = 0; joint < 2; ++joint) {
      cosine_[joint] = std::cos(state_[joint]);
      sine_[joint] = std::sin(state_[joint]);
    }
  }

  State state_{};
  double cosine_[2] = {1.0, 1.0}, sine_[2] = {0.0, 0.0};
  bool has_moved_ = false;
};

}  // namespace stepmill
