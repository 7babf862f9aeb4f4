// What Hopper and Walker2d share: all but what they call healthy.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

// `Health` has a `configuration()` of its own, is made from it, and says whether a simulation is healthy.
template <int version, class Health>
class PlanarRunner : public MujocoTask {
 public:
  static std::vector<ConfigItem> configuration() {
    std::vector<ConfigItem> keys = {{"forward_reward_weight", 1.0},
                                    {"ctrl_cost_weight", 1e-3},
                                    {"healthy_reward", 1.0},
                                    {"terminate_when_unhealthy", true},
                                    {"reset_noise_scale", 5e-3},
                                    {"exclude_current_positions_from_observation", true}};
    for (const ConfigItem& item : Health::configuration()) keys.push_back(item);
    if constexpr (version >= 5) keys.push_back({"frame_skip", std::int64_t{4}});
    return keys;
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    require_size("nq", sizes.nq, 3);
    std::vector<Leaf> info = {number("x_position"), number("x_velocity")};
    if constexpr (version >= 5) {
      info.resize(kInfoCount);
      info[kZ] = number("z_distance_from_origin");
      info[kForward] = number("reward_forward");
      info[kControl] = action_cost("reward_ctrl");
      info[kSurvive] = number("reward_survive");
    }
    return mujoco_spec(sizes.nq + sizes.nv - skipped_positions(config, 1), std::move(info), config, simulator);
  }

  PlanarRunner(const Config& config, const Config& simulator)
      : MujocoTask(simulator, frame_skip_of<version>(config, 4)),
        forward_weight_(config.real("forward_reward_weight")),
        control_weight_(config.real("ctrl_cost_weight")),
        survival_(config),
        health_(config),
        noise_(config.real("reset_noise_scale")),
        skipped_(skipped_positions(config, 1)) {}

  void reset(Rng& rng, const Options&) { reset_uniformly(rng, noise_); }

  Outcome step(const ActionRow& row, Rng&) {
    const double x_before = sim_->qpos[0];
    const float* action = simulate(row);
    x_velocity_ = (sim_->qpos[0] - x_before) / dt();
    const bool healthy = health_.holds_in(sim_);
    forward_ = forward_weight_ * x_velocity_;
    survive_ = survival_.paid(healthy);
    control_cost_ = action_cost_of(control_weight_, action, nu());
    return {(forward_ + survive_) - control_cost_, survival_.ends(healthy), false};
  }

  void observe(const Row& row) const {
    double* out = row.observation<double>();
    out = put(out, sim_->qpos + skipped_, nq() - skipped_);
    put_clipped(out, sim_->qvel, nv(), -10.0, 10.0);
    if (version < 5 && !stepped_) return;
    *row.info<double>(kX) = sim_->qpos[0];
    if constexpr (version >= 5) *row.info<double>(kZ) = sim_->qpos[1] - init_qpos_[1];
    if (!stepped_) return;
    *row.info<double>(kXVelocity) = x_velocity_;
    if constexpr (version >= 5) {
      *row.info<double>(kForward) = forward_;
      write_cost(row, kControl, -control_cost_);
      *row.info<double>(kSurvive) = survive_;
    }
  }

  static auto memory(auto& task) {
    return std::tie(task.x_velocity_, task.forward_, task.survive_, task.control_cost_);
  }

 private:
  enum { kX, kXVelocity, kZ, kForward, kControl, kSurvive, kInfoCount };

  double forward_weight_, control_weight_;
  Survival<version> survival_;
  Health health_;
  double noise_;
  std::int64_t skipped_;
  double x_velocity_ = 0.0, forward_ = 0.0, survive_ = 0.0, control_cost_ = 0.0;
};

}  // namespace stepmill
