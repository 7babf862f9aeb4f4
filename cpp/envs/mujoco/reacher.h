// Reacher-v4 and Reacher-v5: an arm with two joints reaches for a target.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

template <int version>
class Reacher : public MujocoTask {
 public:
  static std::vector<ConfigItem> configuration() {
    if constexpr (version < 5) return {};
    return {{"reward_dist_weight", 1.0}, {"reward_control_weight", 1.0}, {"frame_skip", std::int64_t{2}}};
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    require_size("nq", sizes.nq, 2);
    require_size("nv", sizes.nv, 2);
    const std::int64_t size = 4 + (sizes.nq - 2) + 2 + kAxes;
    require_observation_size(size, version >= 5 ? 10 : 11);
    // v4 has no weight, and so the sum stays float32 with every numpy.
    Leaf control = version >= 5 ? action_cost("reward_ctrl")
                                : box<float>({}, {-kInfinity}, {kInfinity}, "reward_ctrl");
    return mujoco_spec(size, {number("reward_dist"), std::move(control)}, config, simulator);
  }

  Reacher(const Config& config, const Config& simulator)
      : MujocoTask(simulator, frame_skip_of<version>(config, 2)),
        fingertip_(simulator.integer("fingertip")),
        target_(simulator.integer("target")) {
    if constexpr (version >= 5) {
      distance_weight_ = config.real("reward_dist_weight");
      control_weight_ = config.real("reward_control_weight");
    }
  }

  void reset(Rng& rng, const Options&) {
    reset_simulation([&](double* qpos, double* qvel) {
      add_uniform(rng, 0.1, init_qpos_, qpos);
      double* goal = qpos + nq() - 2;
      do {
        goal[0] = rng.uniform(-0.2, 0.2);
        goal[1] = rng.uniform(-0.2, 0.2);
      } while (!(norm(goal, 2) < 0.2));
      add_uniform(rng, 0.005, init_qvel_, qvel);
      std::fill_n(qvel + nv() - 2, 2, 0.0);
    });
  }

  Outcome step(const ActionRow& row, Rng&) {
    if constexpr (version < 5) distance_reward_ = reward_for_distance();  // before the step, in v4
    const float* action = simulate(row);
    if constexpr (version >= 5) distance_reward_ = reward_for_distance();
    if constexpr (version >= 5)
      control_cost_ = action_cost_of(control_weight_, action, nu());
    else
      control_cost_ = static_cast<double>(numpy_sum_of_squares(action, nu()));
    return {distance_reward_ + -control_cost_, false, false};
  }

  void observe(const Row& row) const {
    double* out = row.observation<double>();
    for (int i = 0; i < 2; ++i) *out++ = std::cos(sim_->qpos[i]);
    for (int i = 0; i < 2; ++i) *out++ = std::sin(sim_->qpos[i]);
    out = put(out, sim_->qpos + 2, nq() - 2);
    out = put(out, sim_->qvel, 2);
    put(out, difference_of(fingertip_, target_).data(), kAxes);
    if (!stepped_) return;
    *row.info<double>(kDistance) = distance_reward_;
    if constexpr (version >= 5)
      write_cost(row, kControl, -control_cost_);
    else
      *row.info<float>(kControl) = static_cast<float>(-control_cost_);
  }

  static auto memory(auto& task) { return std::tie(task.distance_reward_, task.control_cost_); }

 private:
  enum { kDistance, kControl };
  static constexpr std::int64_t kAxes = version >= 5 ? 2 : 3;  // of the way to the target that are shown

  double reward_for_distance() const {
    return -norm(difference_of(fingertip_, target_).data(), 3) * distance_weight_;
  }

  std::int64_t fingertip_, target_;
  double distance_weight_ = 1.0, control_weight_ = 1.0;
  double distance_reward_ = 0.0, control_cost_ = 0.0;
};

}  // namespace stepmill
