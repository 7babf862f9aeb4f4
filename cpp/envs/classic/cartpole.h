// CartPole-v0 and -v1: balance a pole on a cart. The arithmetic follows Gymnasium's env operation
// by operation, so that states are equal bit for bit (build without contraction and fast-math).
#pragma once

#include <cmath>
#include <numbers>

#include "core/env.h"
#include "envs/classic/reset_bounds.h"

namespace stepmill {

class CartPole {
 public:
  static std::vector<ConfigItem> configuration() { return {{"sutton_barto_reward", false}}; }

  static constexpr const char* kResetOptions[] = {"low", "high", nullptr};
  static void check_options(const Options& options) { reset_bounds(options, -0.05, 0.05); }

  static EnvSpec spec(const Config&) {
    const double inf = std::numeric_limits<double>::infinity();
    const double position = static_cast<float>(kPositionLimit * 2);
    const double angle = static_cast<float>(kAngleLimit * 2);
    EnvSpec spec;
    spec.observation = {box<float>({4}, {-position, -inf, -angle, -inf}, {position, inf, angle, inf})};
    spec.action = {discrete(2)};
    return spec;
  }

  explicit CartPole(const Config& config) : sutton_barto_(config.flag("sutton_barto_reward")) {}

  void reset(Rng& rng, const Options& options) {
    const auto [low, high] = reset_bounds(options, -0.05, 0.05);
    x_ = rng.uniform(low, high);
    x_dot_ = rng.uniform(low, high);
    theta_ = rng.uniform(low, high);
    theta_dot_ = rng.uniform(low, high);
  }

  Outcome step(const ActionRow& action, Rng&) {
    const double force = action.index() == 1 ? kForce : -kForce;
    const double cosine = std::cos(theta_);
    const double sine = std::sin(theta_);
    const double temp = (force + kPoleMassLength * (theta_dot_ * theta_dot_) * sine) / kTotalMass;
    const double theta_acc =
        (kGravity * sine - cosine * temp) /
        (kLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
    const double x_acc = temp - kPoleMassLength * theta_acc * cosine / kTotalMass;

    x_ = x_ + kTau * x_dot_;
    x_dot_ = x_dot_ + kTau * x_acc;
    theta_ = theta_ + kTau * theta_dot_;
    theta_dot_ = theta_dot_ + kTau * theta_acc;

    const bool fell = x_ < -kPositionLimit || x_ > kPositionLimit || theta_ < -kAngleLimit ||
                      theta_ > kAngleLimit;
    const double reward = sutton_barto_ ? (fell ? -1.0 : 0.0) : 1.0;
    return {reward, fell, false};
  }

  void observe(const Row& row) const {
    float* out = row.observation<float>();
    out[0] = static_cast<float>(x_);
    out[1] = static_cast<float>(x_dot_);
    out[2] = static_cast<float>(theta_);
    out[3] = static_cast<float>(theta_dot_);
  }

 private:
  static constexpr double kGravity = 9.8, kCartMass = 1.0, kPoleMass = 0.1;
  static constexpr double kTotalMass = kPoleMass + kCartMass;
  static constexpr double kLength = 0.5, kPoleMassLength = kPoleMass * kLength;
  static constexpr double kForce = 10.0, kTau = 0.02;
  static constexpr double kAngleLimit = 12 * 2 * std::numbers::pi / 360;
  static constexpr double kPositionLimit = 2.4;

  double x_ = 0.0, x_dot_ = 0.0, theta_ = 0.0, theta_dot_ = 0.0;
  bool sutton_barto_;
};

}  // namespace stepmill
