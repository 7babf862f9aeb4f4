// Hopper-v4 and Hopper-v5: a flat robot with one leg hops forward.
#pragma once

#include "envs/mujoco/planar_runner.h"

namespace stepmill {

struct HopperHealth {
  Range state, z, angle;

  static std::vector<ConfigItem> configuration() {
    return {{"healthy_state_range", Reals{-100.0, 100.0}},
            {"healthy_z_range", Reals{0.7, kInfinity}},
            {"healthy_angle_range", Reals{-0.2, 0.2}}};
  }
  explicit HopperHealth(const Config& config)
      : state(config, "healthy_state_range"),
        z(config, "healthy_z_range"),
        angle(config, "healthy_angle_range") {}

  // `state` is about all positions but x and z, and all velocities.
  bool holds_in(const Simulation& sim) const {
    const auto fits = [this](double x) { return state.contains(x); };
    return std::all_of(sim->qpos + 2, sim->qpos + sim.sizes.nq, fits) &&
           std::all_of(sim->qvel, sim->qvel + sim.sizes.nv, fits) && z.contains(sim->qpos[1]) &&
           angle.contains(sim->qpos[2]);
  }
};

template <int version>
using Hopper = PlanarRunner<version, HopperHealth>;

}  // namespace stepmill
