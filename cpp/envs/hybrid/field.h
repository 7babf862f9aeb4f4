// What Moving-v0 and Sliding-v0 share: accelerate with a power, turn by an angle, or brake, and stop in the target.
//
// The Python envs in stepmill/zoo/hybrid describe the world and are equal to these bit for bit: both compute with
// doubles, operation by operation in the same order. A motion class says how the agent moves:
//
//     struct Motion {
//       static void drive(Agent&, const HybridAction&);  // turns the heading, changes the velocity
//     };
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include <stepmill/env.h>

namespace stepmill {

namespace hybrid {

inline constexpr double kSeconds = 0.1;  // of one step
inline constexpr double kAcceleration = 1.0, kDeceleration = 2.0, kMaxSpeed = 1.0, kDrag = 0.5;
inline constexpr double kMaxTurn = std::numbers::pi / 2;
inline constexpr double kRest = 1e-9;  // what rounding leaves of a speed that should be 0

// Not std::hypot: its last bit depends on the library, and CPython has its own.
inline double length(double x, double y) { return std::sqrt(x * x + y * y); }

inline double braked(double speed) {
  const double left = speed - kDeceleration * kSeconds;
  return left > kRest ? left : 0.0;
}

enum Kind : std::int64_t { kAccelerate, kTurn, kBrake };

// A power or an angle outside its bounds counts as the bound.
struct HybridAction {
  std::int64_t kind;
  double power, angle;
};

struct Agent {
  double x, y, vx, vy, heading;
  double sine, cosine;  // of the heading: they change only when it turns

  double speed() const { return length(vx, vy); }
  void head(double angle) {
    heading = angle;
    sine = std::sin(angle);
    cosine = std::cos(angle);
  }
  void turn(double angle) { head(heading + angle * kMaxTurn); }
};

}  // namespace hybrid

template <class Motion>
class Field {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static std::vector<ConfigItem> configuration() {
    return {{"action_form", std::string("tuple")},
            {"time_limit", std::int64_t{200}},
            {"target_radius", 0.1},
            {"penalty", 0.001}};
  }

  static EnvSpec spec(const Config& config) {
    check(config);
    const double reach = static_cast<float>(1 + hybrid::kMaxSpeed * hybrid::kSeconds);
    const double far = static_cast<float>(hybrid::length(2 + hybrid::kSeconds, 2 + hybrid::kSeconds));
    const double speed = hybrid::kMaxSpeed;
    EnvSpec spec;
    spec.observation = {box<float>({11}, {-reach, -reach, -speed, -speed, -1, -1, -1, -1, 0, 0, 0},
                                   {reach, reach, speed, speed, 1, 1, 1, 1, far, 1, 1})};
    if (is_dict(config)) {  // in the order of Gymnasium's Dict, which sorts its keys
      spec.action_tree = Tree::kDict;
      spec.action = {box<float>({2}, {0.0, -1.0}, {1.0, 1.0}, "action_args"), discrete(3, "action_type")};
    } else {
      spec.action_tree = Tree::kTuple;
      spec.action = {discrete(3, "0"), box<float>({1}, {0.0}, {1.0}, "1"), box<float>({1}, {-1.0}, {1.0}, "2")};
    }
    spec.info = {box<bool>({}, {0.0}, {1.0}, "is_success")};
    return spec;
  }

  explicit Field(const Config& config)
      : is_dict_(is_dict(config)),
        time_limit_(config.integer("time_limit")),
        radius_(config.real("target_radius")),
        penalty_(config.real("penalty")) {}

  void reset(Rng& rng, const Options&) {
    const double inside = 1 - radius_;
    target_x_ = rng.uniform(-inside, inside);
    target_y_ = rng.uniform(-inside, inside);
    const double heading = rng.uniform(-std::numbers::pi, std::numbers::pi);
    do {  // until it is clear of the target
      agent_.x = rng.uniform(-0.9, 0.9);
      agent_.y = rng.uniform(-0.9, 0.9);
    } while (!(to_target() > 2 * radius_));
    agent_.vx = agent_.vy = 0.0;
    agent_.head(heading);
    steps_ = 0;
    action_ = {kNone, 0.0, 0.0};
    look();
    remember();
  }

  Outcome step(const ActionRow& row, Rng&) {
    action_ = read(row);
    const double before = distance_;
    Motion::drive(agent_, action_);
    agent_.x = agent_.x + agent_.vx * hybrid::kSeconds;
    agent_.y = agent_.y + agent_.vy * hybrid::kSeconds;
    steps_ += 1;
    look();
    remember();
    const double earned = before - distance_ - penalty_ + succeeded_ - outside_;
    return {earned, succeeded_ || outside_, steps_ >= time_limit_};
  }

  void observe(const Row& row) const {
    float* out = row.observation<float>();
    const double time_left = 1 - static_cast<double>(steps_) / static_cast<double>(time_limit_);
    const double numbers[] = {agent_.x, agent_.y,  agent_.vx, agent_.vy, agent_.sine, agent_.cosine,
                              target_x_, target_y_, distance_, inside() ? 1.0 : 0.0, time_left};
    for (int i = 0; i < 11; ++i) out[i] = static_cast<float>(numbers[i]);
    *row.info<bool>(0) = succeeded_;
  }

  // The rules, the world, the last action, and the latest positions, the oldest first.
  void picture(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), {static_cast<double>(time_limit_), radius_, penalty_, target_x_, target_y_,
                                   agent_.heading, agent_.vx, agent_.vy, static_cast<double>(steps_),
                                   static_cast<double>(action_.kind), action_.power, action_.angle});
    for (std::int64_t i = std::max<std::int64_t>(0, steps_ + 1 - kTrail); i <= steps_; ++i) {
      numbers.push_back(trail_[static_cast<std::size_t>(i % kTrail)].x);
      numbers.push_back(trail_[static_cast<std::size_t>(i % kTrail)].y);
    }
  }

 private:
  static constexpr std::int64_t kNone = -1;   // the kind of the action before the first step
  static constexpr std::int64_t kTrail = 60;  // positions that a picture shows
  struct Point {
    double x, y;
  };

  static bool is_dict(const Config& config) { return config.text("action_form") == "dict"; }

  static void check(const Config& config) {
    const std::string& form = config.text("action_form");
    if (form != "tuple" && form != "dict")
      throw std::invalid_argument("action_form: expected one of 'tuple', 'dict', got '" + form + "'");
    const std::int64_t limit = config.integer("time_limit");
    if (limit < 1)
      throw std::invalid_argument("time_limit: expected a whole number >= 1, got " + std::to_string(limit));
    const auto within = [&](const char* key, double low, double high, const char* expected) {
      const double value = config.real(key);
      if (!(value >= low && value <= high))
        throw std::invalid_argument(std::string(key) + ": expected a finite number " + expected + ", got " +
                                    std::to_string(value));
    };
    within("target_radius", 0.01, 0.5, ">= 0.01 and <= 0.5");
    within("penalty", 0.0, 1.0, ">= 0 and <= 1");
  }

  hybrid::HybridAction read(const ActionRow& row) const {
    const float* arguments = is_dict_ ? row.get<float>(0) : nullptr;
    const double power = is_dict_ ? arguments[0] : *row.get<float>(1);
    const double angle = is_dict_ ? arguments[1] : *row.get<float>(2);
    if (!std::isfinite(power) || !std::isfinite(angle))
      throw std::invalid_argument("action: expected a power and an angle, two finite numbers, got " +
                                  std::to_string(power) + " and " + std::to_string(angle));
    return {*row.get<std::int64_t>(is_dict_ ? 1 : 0), bounded(power, 0.0, 1.0), bounded(angle, -1.0, 1.0)};
  }

  static double bounded(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

  double to_target() const { return hybrid::length(agent_.x - target_x_, agent_.y - target_y_); }
  bool inside() const { return distance_ <= radius_; }

  // What the reward, the ends and the observation depend on.
  void look() {
    distance_ = to_target();
    succeeded_ = inside() && agent_.vx == 0.0 && agent_.vy == 0.0;
    outside_ = std::max(std::abs(agent_.x), std::abs(agent_.y)) > 1;
  }

  void remember() {
#ifndef STEPMILL_GPU  // nobody draws there, and what is not touched costs nothing
    trail_[static_cast<std::size_t>(steps_ % kTrail)] = {agent_.x, agent_.y};
#endif
  }

  bool is_dict_;
  bool succeeded_ = false, outside_ = false;
  std::int64_t time_limit_, steps_ = 0;
  double radius_, penalty_;
  double target_x_ = 0.0, target_y_ = 0.0, distance_ = 0.0;
  hybrid::Agent agent_{};
  hybrid::HybridAction action_{kNone, 0.0, 0.0};  // the last one, only to be drawn
  std::array<Point, kTrail> trail_{};             // only to be drawn
};

}  // namespace stepmill
