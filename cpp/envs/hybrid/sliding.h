// Sliding-v0: the agent slides. Turning changes where the next push goes, not where it moves.
#pragma once

#include <algorithm>

#include "envs/hybrid/field.h"

namespace stepmill {

struct SlidingMotion {
  static void drive(hybrid::Agent& agent, const hybrid::HybridAction& action) {
    agent.vx = agent.vx * (1 - hybrid::kDrag * hybrid::kSeconds);
    agent.vy = agent.vy * (1 - hybrid::kDrag * hybrid::kSeconds);
    if (action.kind == hybrid::kTurn) {
      agent.turn(action.angle);
    } else if (action.kind == hybrid::kBrake) {
      set_speed(agent, hybrid::braked(agent.speed()));
    } else {
      const double push = action.power * hybrid::kAcceleration * hybrid::kSeconds;
      agent.vx = agent.vx + push * agent.cosine;
      agent.vy = agent.vy + push * agent.sine;
      set_speed(agent, std::min(agent.speed(), hybrid::kMaxSpeed));
    }
  }

 private:
  // Keeps the direction.
  static void set_speed(hybrid::Agent& agent, double speed) {
    const double length = agent.speed();
    agent.vx = length > 0 ? agent.vx * speed / length : 0.0;
    agent.vy = length > 0 ? agent.vy * speed / length : 0.0;
  }
};

using Sliding = Field<SlidingMotion>;

}  // namespace stepmill
