// InvertedDoublePendulum-v4 and InvertedDoublePendulum-v5: a cart keeps two poles upright, one on top of the other.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

template <int version>
class InvertedDoublePendulum : public MujocoTask {
 public:
  static std::vector<ConfigItem> configuration() {
    if constexpr (version < 5) return {};
    return {{"healthy_reward", 10.0}, {"reset_noise_scale", 0.1}, {"frame_skip", std::int64_t{5}}};
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    require_size("nq", sizes.nq, 1);
    require_size("nv", sizes.nv, 3);
    require_size("nsite", sizes.nsite, 1);
    const std::int64_t size = 1 + 2 * (sizes.nq - 1) + sizes.nv + forces_count(sizes.nv);
    require_observation_size(size, version >= 5 ? 9 : 11);
    std::vector<Leaf> info;
    if constexpr (version >= 5)
      info = {number("reward_survive"), number("distance_penalty"), number("velocity_penalty")};
    return mujoco_spec(size, std::move(info), config, simulator);
  }

  InvertedDoublePendulum(const Config& config, const Config& simulator)
      : MujocoTask(simulator, frame_skip_of<version>(config, 5)) {
    if constexpr (version >= 5) {
      healthy_reward_ = config.real("healthy_reward");
      noise_ = config.real("reset_noise_scale");
    }
  }

  void reset(Rng& rng, const Options&) { reset_with_normal_velocities(rng, noise_); }

  Outcome step(const ActionRow& row, Rng&) {
    simulate(row);
    const double x = sim_->site_xpos[0], y = sim_->site_xpos[2];  // of the tip
    const double* velocity = sim_->qvel;
    const bool fell = y <= 1.0;
    survive_ = healthy_reward_ * (version >= 5 && fell ? 0.0 : 1.0);
    distance_penalty_ = 0.01 * numpy_square(x) + numpy_square(y - 2.0);
    velocity_penalty_ = 1e-3 * numpy_square(velocity[1]) + 5e-3 * numpy_square(velocity[2]);
    return {(survive_ - distance_penalty_) - velocity_penalty_, fell, false};
  }

  void observe(const Row& row) const {
    double* out = row.observation<double>();
    *out++ = sim_->qpos[0];
    for (std::int64_t i = 1; i < nq(); ++i) *out++ = std::sin(sim_->qpos[i]);
    for (std::int64_t i = 1; i < nq(); ++i) *out++ = std::cos(sim_->qpos[i]);
    out = put_clipped(out, sim_->qvel, nv(), -10.0, 10.0);
    put_clipped(out, sim_->qfrc_constraint, forces_count(nv()), -10.0, 10.0);
    if constexpr (version >= 5) {
      if (!stepped_) return;
      *row.info<double>(kSurvive) = survive_;
      *row.info<double>(kDistance) = -distance_penalty_;
      *row.info<double>(kVelocity) = -velocity_penalty_;
    }
  }

  static auto memory(auto& task) { return std::tie(task.survive_, task.distance_penalty_, task.velocity_penalty_); }

 private:
  enum { kSurvive, kDistance, kVelocity };

  // Constraint forces that are shown: v5 leaves out those on the poles, which are always zero.
  static std::int64_t forces_count(std::int64_t nv) { return version >= 5 ? 1 : nv; }

  double healthy_reward_ = 10.0, noise_ = 0.1;
  double survive_ = 0.0, distance_penalty_ = 0.0, velocity_penalty_ = 0.0;
};

}  // namespace stepmill
