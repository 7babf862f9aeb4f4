// Walker2d-v4 and Walker2d-v5: a flat robot with two legs walks forward.
#pragma once

#include "envs/mujoco/planar_runner.h"

namespace stepmill {

struct Walker2dHealth {
  Range z, angle;

  static std::vector<ConfigItem> configuration() {
    return {{"healthy_z_range", Reals{0.8, 2.0}}, {"healthy_angle_range", Reals{-1.0, 1.0}}};
  }
  explicit Walker2dHealth(const Config& config)
      : z(config, "healthy_z_range"), angle(config, "healthy_angle_range") {}

  bool holds_in(const Simulation& sim) const { return z.contains(sim->qpos[1]) && angle.contains(sim->qpos[2]); }
};

template <int version>
using Walker2d = PlanarRunner<version, Walker2dHealth>;

}  // namespace stepmill
