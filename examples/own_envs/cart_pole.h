// cart_pole.h: CartPole as an author would write it, env by env. The one that is built in steps many at once.
#pragma once
#include <cmath>
#include <limits>
#include <numbers>
#include <stepmill/env.h>

class CartPole {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static stepmill::EnvSpec spec(const stepmill::Config&) {
    const double inf = std::numeric_limits<double>::infinity();
    const double angle = static_cast<float>(24 * std::numbers::pi / 180), position = static_cast<float>(4.8);
    stepmill::EnvSpec spec;
    spec.observation = {stepmill::box<float>({4}, {-position, -inf, -angle, -inf}, {position, inf, angle, inf})};
    spec.action = {stepmill::discrete(2)};
    return spec;
  }

  explicit CartPole(const stepmill::Config&) {}

  void reset(stepmill::Rng& rng, const stepmill::Options&) {
    x_ = rng.uniform(-0.05, 0.05);
    x_dot_ = rng.uniform(-0.05, 0.05);
    theta_ = rng.uniform(-0.05, 0.05);
    theta_dot_ = rng.uniform(-0.05, 0.05);
  }

  stepmill::Outcome step(const stepmill::ActionRow& action, stepmill::Rng&) {
    const double force = action.index() == 1 ? 10.0 : -10.0;
    const double cosine = std::cos(theta_), sine = std::sin(theta_);
    const double temp = (force + 0.05 * (theta_dot_ * theta_dot_) * sine) / 1.1;
    const double theta_acc = (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / 1.1));
    const double x_acc = temp - 0.05 * theta_acc * cosine / 1.1;
    x_ += 0.02 * x_dot_;
    x_dot_ += 0.02 * x_acc;
    theta_ += 0.02 * theta_dot_;
    theta_dot_ += 0.02 * theta_acc;
    const double limit = 12 * 2 * std::numbers::pi / 360;
    return {1.0, x_ < -2.4 || x_ > 2.4 || theta_ < -limit || theta_ > limit, false};
  }

  void observe(const stepmill::Row& row) const {
    float* out = row.observation<float>();
    out[0] = static_cast<float>(x_);
    out[1] = static_cast<float>(x_dot_);
    out[2] = static_cast<float>(theta_);
    out[3] = static_cast<float>(theta_dot_);
  }

 private:
  double x_ = 0.0, x_dot_ = 0.0, theta_ = 0.0, theta_dot_ = 0.0;
};
