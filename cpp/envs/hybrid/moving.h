// Moving-v0: the agent moves where it faces. Only its speed has inertia.
#pragma once

#include <algorithm>

#include "envs/hybrid/field.h"

namespace stepmill {

struct MovingMotion {
  static void drive(hybrid::Agent& agent, const hybrid::HybridAction& action) {
    double speed = agent.speed();
    if (action.kind == hybrid::kAccelerate)
      speed = std::min(speed + action.power * hybrid::kAcceleration * hybrid::kSeconds, hybrid::kMaxSpeed);
    else if (action.kind == hybrid::kTurn)
      agent.turn(action.angle);
    else
      speed = hybrid::braked(speed);
    agent.vx = speed * agent.cosine;
    agent.vy = speed * agent.sine;
  }
};

using Moving = Field<MovingMotion>;

}  // namespace stepmill
