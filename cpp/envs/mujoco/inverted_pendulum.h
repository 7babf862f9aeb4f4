// InvertedPendulum-v4 and InvertedPendulum-v5: a cart keeps a pole upright.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

template <int version>
class InvertedPendulum : public MujocoTask {
 public:
  static std::vector<ConfigItem> configuration() {
    if constexpr (version < 5) return {};
    return {{"reset_noise_scale", 0.01}, {"frame_skip", std::int64_t{2}}};
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    require_observation_size(sizes.nq + sizes.nv, 4);
    require_size("nq", sizes.nq, 2);
    std::vector<Leaf> info;
    if constexpr (version >= 5) info = {box<std::int64_t>({}, {0.0}, {1.0}, "reward_survive")};
    return mujoco_spec(4, std::move(info), config, simulator);
  }

  InvertedPendulum(const Config& config, const Config& simulator)
      : MujocoTask(simulator, frame_skip_of<version>(config, 2)) {
    if constexpr (version >= 5) noise_ = config.real("reset_noise_scale");
  }

  void reset(Rng& rng, const Options&) { reset_uniformly(rng, noise_); }

  Outcome step(const ActionRow& row, Rng&) {
    simulate(row);
    const double angle = sim_->qpos[1];
    fell_ = !all_finite(sim_->qpos, nq()) || !all_finite(sim_->qvel, nv()) || std::abs(angle) > 0.2;
    return {version < 5 || !fell_ ? 1.0 : 0.0, fell_, false};
  }

  void observe(const Row& row) const {
    put(put(row.observation<double>(), sim_->qpos, nq()), sim_->qvel, nv());
    if constexpr (version >= 5)
      if (stepped_) *row.info<std::int64_t>(0) = fell_ ? 0 : 1;
  }

  static auto memory(auto& task) { return std::tie(task.fell_); }

 private:
  double noise_ = 0.01;
  bool fell_ = false;
};

}  // namespace stepmill
