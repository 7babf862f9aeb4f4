// What Humanoid and HumanoidStandup share: their observation, and the costs of control and of hitting the ground.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

// Positions, velocities, and in v5 on request: inertias, velocities and forces of bodies, and forces of actuators.
template <int version>
class HumanoidObservation {
 public:
  static void add_keys(std::vector<ConfigItem>& keys) {
    keys.push_back({"exclude_current_positions_from_observation", true});
    if constexpr (version < 5) return;
    for (const char* name : {"include_cinert_in_observation", "include_cvel_in_observation",
                             "include_qfrc_actuator_in_observation", "include_cfrc_ext_in_observation"})
      keys.push_back({name, true});
  }

  // All that there is.
  HumanoidObservation() = default;

  explicit HumanoidObservation(const Config& config) : skipped_(skipped_positions(config, 2)) {
    if constexpr (version < 5) return;
    inertias_ = config.flag("include_cinert_in_observation");
    velocities_ = config.flag("include_cvel_in_observation");
    actuators_ = config.flag("include_qfrc_actuator_in_observation");
    forces_ = config.flag("include_cfrc_ext_in_observation");
  }

  std::int64_t size(const MujocoSizes& sizes) const {
    require_size("nq", sizes.nq, 3);
    if (actuators_) require_size("nv", sizes.nv, kFirstActuator);
    const std::int64_t bodies = sizes.nbody - kFirstBody;
    return sizes.nq - skipped_ + sizes.nv + (inertias_ ? 10 * bodies : 0) + (velocities_ ? 6 * bodies : 0) +
           (actuators_ ? sizes.nv - kFirstActuator : 0) + (forces_ ? 6 * bodies : 0);
  }

  void write(double* out, const Simulation& sim) const {
    const std::int64_t bodies = sim.sizes.nbody - kFirstBody;
    out = put(out, sim->qpos + skipped_, sim.sizes.nq - skipped_);
    out = put(out, sim->qvel, sim.sizes.nv);
    if (inertias_) out = put(out, sim->cinert + 10 * kFirstBody, 10 * bodies);
    if (velocities_) out = put(out, sim->cvel + 6 * kFirstBody, 6 * bodies);
    if (actuators_) out = put(out, sim->qfrc_actuator + kFirstActuator, sim.sizes.nv - kFirstActuator);
    if (forces_) put(out, sim->cfrc_ext + 6 * kFirstBody, 6 * bodies);
  }

 private:
  // v5 leaves out what is always zero: the world, and the forces of actuators on the free joint.
  static constexpr std::int64_t kFirstBody = version >= 5 ? 1 : 0, kFirstActuator = version >= 5 ? 6 : 0;

  std::int64_t skipped_ = 2;
  bool inertias_ = true, velocities_ = true, actuators_ = true, forces_ = true;
};

class HumanoidTask : public MujocoTask {
 protected:
  using MujocoTask::MujocoTask;

  double control_cost_of(double weight) const { return weight * numpy_sum_of_squares(sim_->ctrl, nu()); }
  double impact_cost_of(double weight, const Range& range) const {
    return numpy_clip(weight * numpy_sum_of_squares(sim_->cfrc_ext, 6 * nbody()), range.low, range.high);
  }

  void write_tendons(const Row& row, int length, int velocity) const {
    put(row.info<double>(length), sim_->ten_length, sim_.sizes.ntendon);
    put(row.info<double>(velocity), sim_->ten_velocity, sim_.sizes.ntendon);
  }
};

}  // namespace stepmill
