// Pusher-v5: an arm pushes a cylinder to a goal. Gymnasium's v4 does not run with MuJoCo 3 or later.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

class Pusher : public MujocoTask {
 public:
  static std::vector<ConfigItem> configuration() {
    return {{"reward_near_weight", 0.5},
            {"reward_dist_weight", 1.0},
            {"reward_control_weight", 0.1},
            {"frame_skip", std::int64_t{5}}};
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    require_size("nq", sizes.nq, kJoints);
    require_size("nv", sizes.nv, kJoints);
    return mujoco_spec(2 * kJoints + 9, {number("reward_dist"), number("reward_near"), action_cost("reward_ctrl")},
                       config, simulator);
  }

  Pusher(const Config& config, const Config& simulator)
      : MujocoTask(simulator, config.integer("frame_skip")),
        object_(simulator.integer("object")),
        tips_(simulator.integer("tips_arm")),
        goal_(simulator.integer("goal")),
        near_weight_(config.real("reward_near_weight")),
        distance_weight_(config.real("reward_dist_weight")),
        control_weight_(config.real("reward_control_weight")) {}

  void reset(Rng& rng, const Options&) {
    reset_simulation([&](double* qpos, double* qvel) {
      put(qpos, init_qpos_.data(), nq());
      double* cylinder = qpos + nq() - 4;
      do {
        cylinder[0] = rng.uniform(-0.3, 0.0);
        cylinder[1] = rng.uniform(-0.2, 0.2);
      } while (!(norm(cylinder, 2) > 0.17));
      std::fill_n(qpos + nq() - 2, 2, 0.0);  // the goal
      add_uniform(rng, 0.005, init_qvel_, qvel);
      std::fill_n(qvel + nv() - 4, 4, 0.0);
    });
  }

  Outcome step(const ActionRow& row, Rng&) {
    const float* action = simulate(row);
    near_ = -norm(difference_of(object_, tips_).data(), 3) * near_weight_;
    distance_ = -norm(difference_of(object_, goal_).data(), 3) * distance_weight_;
    control_cost_ = action_cost_of(control_weight_, action, nu());
    return {(distance_ + -control_cost_) + near_, false, false};
  }

  void observe(const Row& row) const {
    double* out = row.observation<double>();
    out = put(out, sim_->qpos, kJoints);
    out = put(out, sim_->qvel, kJoints);
    for (const std::int64_t body : {tips_, object_, goal_}) out = put(out, position_of(body), 3);
    if (!stepped_) return;
    *row.info<double>(kDistance) = distance_;
    *row.info<double>(kNear) = near_;
    write_cost(row, kControl, -control_cost_);
  }

  static auto memory(auto& task) { return std::tie(task.near_, task.distance_, task.control_cost_); }

 private:
  enum { kDistance, kNear, kControl };
  static constexpr std::int64_t kJoints = 7;  // of the arm

  std::int64_t object_, tips_, goal_;
  double near_weight_, distance_weight_, control_weight_;
  double near_ = 0.0, distance_ = 0.0, control_cost_ = 0.0;
};

}  // namespace stepmill
