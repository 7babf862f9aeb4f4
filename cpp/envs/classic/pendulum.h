// Pendulum-v1: swing a pendulum up and hold it there. The arithmetic follows Gymnasium's env
// operation by operation; what comes from the float32 action stays float32 where numpy keeps it so.
#pragma once

#include <cmath>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <string>

#include <stepmill/env.h>
#include "envs/numpy/float32.h"
#include "envs/numpy/scalar.h"
#include "envs/classic/reset_bounds.h"

namespace stepmill {

class Pendulum {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static std::vector<ConfigItem> configuration() { return {{"g", 10.0}}; }

  // The largest initial angle and angular velocity.
  static constexpr const char* kResetOptions[] = {"x_init", "y_init", nullptr};
  static void check_options(const Options& options) {
    for (int i = 0; i < 2; ++i) {
      const double bound = options.get(i, 1.0);
      if (!(bound >= 0.0) || !std::isfinite(2.0 * bound))
        throw std::invalid_argument(std::string("reset option ") + kResetOptions[i] +
                                    ": expected a finite number >= 0, got " + shown(bound));
    }
  }

  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {box<float>({3}, {-1.0, -1.0, -kMaxSpeed}, {1.0, 1.0, kMaxSpeed})};
    spec.action = {box<float>({1}, {-kMaxTorque}, {kMaxTorque})};
    return spec;
  }

  explicit Pendulum(const Config& config) : gravity_term_(3 * config.real("g") / 2.0) {}

  void reset(Rng& rng, const Options& options) {
    const double angle = options.get(0, std::numbers::pi);
    const double speed = options.get(1, 1.0);
    theta_ = rng.uniform(-angle, angle);
    theta_dot_ = rng.uniform(-speed, speed);
    torque_.reset();
    look();
  }

  Outcome step(const ActionRow& action, Rng&) {
    const float torque = numpy_clip<float>(*action.get<float>(), -kMaxTorque, kMaxTorque);
    torque_ = torque;
    double torque_cost, torque_push;
    if (scalars_keep_float32()) {
      torque_cost = 0.001F * numpy_square(torque);
      torque_push = 3.0F * torque;
    } else {
      torque_cost = 0.001 * numpy_square(static_cast<double>(torque));
      torque_push = 3.0 * static_cast<double>(torque);
    }

    const double cost =
        numpy_square(normalized(theta_)) + 0.1 * numpy_square(theta_dot_) + torque_cost;
    const double speed = theta_dot_ + (gravity_term_ * sine_ + torque_push) * kTimeStep;
    theta_dot_ = numpy_clip(speed, -kMaxSpeed, kMaxSpeed);
    theta_ = theta_ + theta_dot_ * kTimeStep;
    look();
    return {-cost, false, false};
  }

  void observe(const Row& row) const {
    float* out = row.observation<float>();
    out[0] = static_cast<float>(cosine_);
    out[1] = static_cast<float>(sine_);
    out[2] = static_cast<float>(theta_dot_);
  }

  void picture(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), {theta_, theta_dot_});
    if (torque_) numbers.push_back(*torque_);
  }

 private:
  static constexpr double kMaxSpeed = 8.0, kMaxTorque = 2.0, kTimeStep = 0.05;

  static double normalized(double angle) {
    return numpy_remainder(angle + std::numbers::pi, 2 * std::numbers::pi) - std::numbers::pi;
  }

  // The sine is observed now and drives the next step: computed once for both.
  void look() {
    cosine_ = std::cos(theta_);
    sine_ = std::sin(theta_);
  }

  double theta_ = 0.0, theta_dot_ = 0.0;
  double cosine_ = 1.0, sine_ = 0.0;
  double gravity_term_;
  std::optional<float> torque_;  // of the last step, only to be drawn
};

}  // namespace stepmill
