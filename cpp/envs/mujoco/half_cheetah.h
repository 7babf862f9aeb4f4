// HalfCheetah-v4 and HalfCheetah-v5: a flat robot with two legs runs forward.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

template <int version>
class HalfCheetah : public MujocoTask {
 public:
  static std::vector<ConfigItem> configuration() {
    std::vector<ConfigItem> keys = {{"forward_reward_weight", 1.0},
                                    {"ctrl_cost_weight", 0.1},
                                    {"reset_noise_scale", 0.1},
                                    {"exclude_current_positions_from_observation", true}};
    if constexpr (version >= 5) keys.push_back({"frame_skip", std::int64_t{5}});
    return keys;
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    require_size("nq", sizes.nq, 1);
    std::vector<Leaf> info(kInfoCount);
    info[kX] = number("x_position");
    info[kXVelocity] = number("x_velocity");
    info[kForward] = number(version >= 5 ? "reward_forward" : "reward_run");
    info[kControl] = action_cost("reward_ctrl");
    return mujoco_spec(sizes.nq + sizes.nv - skipped_positions(config, 1), std::move(info), config, simulator);
  }

  HalfCheetah(const Config& config, const Config& simulator)
      : MujocoTask(simulator, frame_skip_of<version>(config, 5)),
        forward_weight_(config.real("forward_reward_weight")),
        control_weight_(config.real("ctrl_cost_weight")),
        noise_(config.real("reset_noise_scale")),
        skipped_(skipped_positions(config, 1)) {}

  void reset(Rng& rng, const Options&) { reset_with_normal_velocities(rng, noise_); }

  Outcome step(const ActionRow& row, Rng&) {
    const double x_before = sim_->qpos[0];
    const float* action = simulate(row);
    x_velocity_ = (sim_->qpos[0] - x_before) / dt();
    forward_ = forward_weight_ * x_velocity_;
    control_cost_ = action_cost_of(control_weight_, action, nu());
    return {forward_ - control_cost_, false, false};
  }

  void observe(const Row& row) const {
    double* out = row.observation<double>();
    out = put(out, sim_->qpos + skipped_, nq() - skipped_);
    put(out, sim_->qvel, nv());
    if (version >= 5 || stepped_) *row.info<double>(kX) = sim_->qpos[0];
    if (!stepped_) return;
    *row.info<double>(kXVelocity) = x_velocity_;
    *row.info<double>(kForward) = forward_;
    write_cost(row, kControl, -control_cost_);
  }

  static auto memory(auto& task) { return std::tie(task.x_velocity_, task.forward_, task.control_cost_); }

 private:
  enum { kX, kXVelocity, kForward, kControl, kInfoCount };

  double forward_weight_, control_weight_, noise_;
  std::int64_t skipped_;
  double x_velocity_ = 0.0, forward_ = 0.0, control_cost_ = 0.0;
};

}  // namespace stepmill
