// HumanoidStandup-v4 and HumanoidStandup-v5: a robot with arms and legs, lying on the ground, gets up.
#pragma once

#include "envs/mujoco/humanoid_body.h"

namespace stepmill {

template <int version>
class HumanoidStandup : public HumanoidTask {
 public:
  static std::vector<ConfigItem> configuration() {
    if constexpr (version < 5) return {};
    std::vector<ConfigItem> keys = {{"uph_cost_weight", 1.0},  // Gymnasium takes it and does not use it
                                    {"ctrl_cost_weight", 0.1},
                                    {"impact_cost_weight", 0.5e-6},
                                    {"impact_cost_range", Reals{-kInfinity, 10.0}},
                                    {"reset_noise_scale", 1e-2},
                                    {"frame_skip", std::int64_t{5}}};
    HumanoidObservation<version>::add_keys(keys);
    return keys;
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    std::vector<Leaf> info = {number("reward_linup"), number("reward_quadctrl"), number("reward_impact")};
    if constexpr (version >= 5) {
      info.resize(kInfoCount);
      info[kX] = number("x_position");
      info[kY] = number("y_position");
      info[kZ] = number("z_distance_from_origin");
      info[kTendonLength] = numbers(sizes.ntendon, "tendon_length");
      info[kTendonVelocity] = numbers(sizes.ntendon, "tendon_velocity");
    }
    return mujoco_spec(observation_of(config).size(sizes), std::move(info), config, simulator);
  }

  HumanoidStandup(const Config& config, const Config& simulator)
      : HumanoidTask(simulator, frame_skip_of<version>(config, 5)), observation_(observation_of(config)) {
    if constexpr (version >= 5) {
      control_weight_ = config.real("ctrl_cost_weight");
      impact_weight_ = config.real("impact_cost_weight");
      impact_range_ = Range(config, "impact_cost_range");
      noise_ = config.real("reset_noise_scale");
    }
  }

  void reset(Rng& rng, const Options&) { reset_uniformly(rng, noise_); }

  Outcome step(const ActionRow& row, Rng&) {
    simulate(row);
    up_ = sim_->qpos[2] / sim_->timestep;
    control_cost_ = control_cost_of(control_weight_);
    impact_cost_ = impact_cost_of(impact_weight_, impact_range_);
    return {up_ - control_cost_ - impact_cost_ + 1.0, false, false};
  }

  void observe(const Row& row) const {
    observation_.write(row.observation<double>(), sim_);
    if constexpr (version >= 5) {
      *row.info<double>(kX) = sim_->qpos[0];
      *row.info<double>(kY) = sim_->qpos[1];
      *row.info<double>(kZ) = sim_->qpos[2] - init_qpos_[2];
      write_tendons(row, kTendonLength, kTendonVelocity);
    }
    if (!stepped_) return;
    *row.info<double>(kUp) = up_;
    *row.info<double>(kControl) = -control_cost_;
    *row.info<double>(kImpact) = -impact_cost_;
  }

  static auto memory(auto& task) { return std::tie(task.up_, task.control_cost_, task.impact_cost_); }

 private:
  enum { kUp, kControl, kImpact, kX, kY, kZ, kTendonLength, kTendonVelocity, kInfoCount };

  static HumanoidObservation<version> observation_of(const Config& config) {
    if constexpr (version >= 5) return HumanoidObservation<version>(config);
    return {};
  }

  double control_weight_ = 0.1, impact_weight_ = 0.5e-6, noise_ = 0.01;
  Range impact_range_{-kInfinity, 10.0};
  HumanoidObservation<version> observation_;
  double up_ = 0.0, control_cost_ = 0.0, impact_cost_ = 0.0;
};

}  // namespace stepmill
