// Swimmer-v4 and Swimmer-v5: a chain of three links swims forward.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

template <int version>
class Swimmer : public MujocoTask {
 public:
  static std::vector<ConfigItem> configuration() {
    std::vector<ConfigItem> keys = {{"forward_reward_weight", 1.0},
                                    {"ctrl_cost_weight", 1e-4},
                                    {"reset_noise_scale", 0.1},
                                    {"exclude_current_positions_from_observation", true}};
    if constexpr (version >= 5) keys.push_back({"frame_skip", std::int64_t{4}});
    return keys;
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    require_size("nq", sizes.nq, 2);
    std::vector<Leaf> info = PlaneMotion::infos(kInfoCount);
    info[kForward] = number(version >= 5 ? "reward_forward" : "reward_fwd");
    info[kControl] = action_cost("reward_ctrl");
    if constexpr (version < 5) info.push_back(number("forward_reward"));
    return mujoco_spec(sizes.nq + sizes.nv - skipped_positions(config, 2), std::move(info), config, simulator);
  }

  Swimmer(const Config& config, const Config& simulator)
      : MujocoTask(simulator, frame_skip_of<version>(config, 4)),
        forward_weight_(config.real("forward_reward_weight")),
        control_weight_(config.real("ctrl_cost_weight")),
        noise_(config.real("reset_noise_scale")),
        skipped_(skipped_positions(config, 2)) {}

  void reset(Rng& rng, const Options&) { reset_uniformly(rng, noise_); }

  Outcome step(const ActionRow& row, Rng&) {
    const std::array<double, 2> before = place();
    const float* action = simulate(row);
    forward_ = forward_weight_ * motion_.move(before, place(), dt());
    control_cost_ = action_cost_of(control_weight_, action, nu());
    return {forward_ - control_cost_, false, false};
  }

  void observe(const Row& row) const {
    double* out = row.observation<double>();
    out = put(out, sim_->qpos + skipped_, nq() - skipped_);
    put(out, sim_->qvel, nv());
    if (version < 5 && !stepped_) return;
    motion_.write_place(row, sim_->qpos, norm(sim_->qpos, 2));
    if (!stepped_) return;
    motion_.write_velocity(row);
    *row.info<double>(kForward) = forward_;
    write_cost(row, kControl, -control_cost_);
    if constexpr (version < 5) *row.info<double>(kForwardAgain) = forward_;
  }

  static auto memory(auto& task) { return std::tie(task.motion_, task.forward_, task.control_cost_); }

 private:
  enum { kForward = PlaneMotion::kInfoCount, kControl, kInfoCount, kForwardAgain = kInfoCount };

  std::array<double, 2> place() const { return {sim_->qpos[0], sim_->qpos[1]}; }

  double forward_weight_, control_weight_, noise_;
  std::int64_t skipped_;
  PlaneMotion motion_;
  double forward_ = 0.0, control_cost_ = 0.0;
};

}  // namespace stepmill
