// CartPole-v0 and -v1: balance a pole on a cart. The arithmetic follows Gymnasium's env operation
// by operation, so that states are equal bit for bit (build without contraction and fast-math).
#pragma once

#include <cmath>
#include <functional>
#include <numbers>

#include <stepmill/env.h>
#include "envs/classic/exact_trig.h"
#include "envs/classic/reset_bounds.h"

namespace stepmill {

class CartPole {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

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
    Block<1> one;
    one.load(0, *this, action);
#ifdef STEPMILL_GPU
    exact_sin_cos(one.theta, one.sine, one.cosine, 1);
    one.move(1, DivideFused());
#else
    one.sine[0] = std::sin(theta_);
    one.cosine[0] = std::cos(theta_);
    one.move(1, std::divides<>());
#endif
    return one.store(0, *this);
  }

  // The same for many, so that vector units can do the arithmetic.
  static void step_many(Turns<CartPole>& turns) noexcept {
    Block<Turns<CartPole>::kMost> block;
    const int count = turns.size();
    for (int i = 0; i < count; ++i) block.load(i, turns.env(i), turns.action(i));
    exact_sin_cos(block.theta, block.sine, block.cosine, count);
    if (has_fast_fma())
      block.move_fused(count);
    else
      block.move(count, std::divides<>());
    for (int i = 0; i < count; ++i) turns.outcome(i) = block.store(i, turns.env(i));
  }

  void observe(const Row& row) const {
    float* out = row.observation<float>();
    out[0] = static_cast<float>(x_);
    out[1] = static_cast<float>(x_dot_);
    out[2] = static_cast<float>(theta_);
    out[3] = static_cast<float>(theta_dot_);
  }

  void picture(std::vector<double>& numbers) const { numbers.insert(numbers.end(), {x_, x_dot_, theta_, theta_dot_}); }

 private:
  static constexpr double kGravity = 9.8, kCartMass = 1.0, kPoleMass = 0.1;
  static constexpr double kTotalMass = kPoleMass + kCartMass;
  static constexpr double kLength = 0.5, kPoleMassLength = kPoleMass * kLength;
  static constexpr double kForce = 10.0, kTau = 0.02;
  static constexpr double kAngleLimit = 12 * 2 * std::numbers::pi / 360;
  static constexpr double kPositionLimit = 2.4;

  // The states of several envs, a row a variable.
  template <int kSize>
  struct Block {
    double x[kSize], x_dot[kSize], theta[kSize], theta_dot[kSize];
    double force[kSize], sine[kSize], cosine[kSize];
    std::int64_t fell[kSize];

    void load(int i, const CartPole& env, const ActionRow& action) {
      x[i] = env.x_;
      x_dot[i] = env.x_dot_;
      theta[i] = env.theta_;
      theta_dot[i] = env.theta_dot_;
      // Arithmetic, not a choice: nobody can predict the branch that a choice would be.
      force[i] = static_cast<double>(2 * action.index() - 1) * kForce;
    }

    // The equations of motion. `divide` divides by the total mass: they do it three times.
    template <class Divide>
    [[gnu::always_inline]] void move(int count, Divide divide) {
      for (int i = 0; i < count; ++i) {
        const double temp = divide(
            force[i] + kPoleMassLength * (theta_dot[i] * theta_dot[i]) * sine[i], kTotalMass);
        const double theta_acc =
            (kGravity * sine[i] - cosine[i] * temp) /
            (kLength * (4.0 / 3.0 - divide(kPoleMass * (cosine[i] * cosine[i]), kTotalMass)));
        const double x_acc = temp - divide(kPoleMassLength * theta_acc * cosine[i], kTotalMass);
        x[i] = x[i] + kTau * x_dot[i];
        x_dot[i] = x_dot[i] + kTau * x_acc;
        theta[i] = theta[i] + kTau * theta_dot[i];
        theta_dot[i] = theta_dot[i] + kTau * theta_acc;
        fell[i] = (x[i] < -kPositionLimit) | (x[i] > kPositionLimit) | (theta[i] < -kAngleLimit) |
                  (theta[i] > kAngleLimit);
      }
    }
    STEPMILL_VECTOR_TARGET void move_fused(int count) { move(count, DivideFused()); }

    Outcome store(int i, CartPole& env) const {
      env.x_ = x[i];
      env.x_dot_ = x_dot[i];
      env.theta_ = theta[i];
      env.theta_dot_ = theta_dot[i];
      const bool over = fell[i] != 0;
      return {env.sutton_barto_ ? (over ? -1.0 : 0.0) : 1.0, over, false};
    }
  };

  double x_ = 0.0, x_dot_ = 0.0, theta_ = 0.0, theta_dot_ = 0.0;
  bool sutton_barto_;
};

}  // namespace stepmill
