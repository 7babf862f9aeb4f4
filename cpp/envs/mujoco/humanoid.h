// Humanoid-v4 and Humanoid-v5: a robot with arms and legs walks forward without falling over.
#pragma once

#include "envs/mujoco/humanoid_body.h"

namespace stepmill {

template <int version>
class Humanoid : public HumanoidTask {
 public:
  static std::vector<ConfigItem> configuration() {
    std::vector<ConfigItem> keys = {{"forward_reward_weight", 1.25},   {"ctrl_cost_weight", 0.1},
                                    {"healthy_reward", 5.0},           {"terminate_when_unhealthy", true},
                                    {"healthy_z_range", Reals{1.0, 2.0}}, {"reset_noise_scale", 1e-2}};
    HumanoidObservation<version>::add_keys(keys);
    if constexpr (version >= 5) {
      keys.push_back({"frame_skip", std::int64_t{5}});
      keys.push_back({"contact_cost_weight", 5e-7});
      keys.push_back({"contact_cost_range", Reals{-kInfinity, 10.0}});
    }
    return keys;
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    std::vector<Leaf> info = PlaneMotion::infos(kInfoCount);
    info[kForward] = number(version >= 5 ? "reward_forward" : "reward_linvel");
    info[kControl] = number(version >= 5 ? "reward_ctrl" : "reward_quadctrl");
    info[kSurvive] = number(version >= 5 ? "reward_survive" : "reward_alive");
    // Gymnasium's v4 has the forward reward under two names.
    info[kContact] = number(version >= 5 ? "reward_contact" : "forward_reward");
    if constexpr (version >= 5) {
      info.push_back(numbers(sizes.ntendon, "tendon_length"));
      info.push_back(numbers(sizes.ntendon, "tendon_velocity"));
    }
    return mujoco_spec(HumanoidObservation<version>(config).size(sizes), std::move(info), config, simulator);
  }

  Humanoid(const Config& config, const Config& simulator)
      : HumanoidTask(simulator, frame_skip_of<version>(config, 5)),
        fused_mass_center_(simulator.flag("fused_mass_center")),
        forward_weight_(config.real("forward_reward_weight")),
        control_weight_(config.real("ctrl_cost_weight")),
        survival_(config),
        healthy_z_(config, "healthy_z_range"),
        noise_(config.real("reset_noise_scale")),
        observation_(config) {
    if constexpr (version >= 5) {
      contact_weight_ = config.real("contact_cost_weight");
      contact_range_ = Range(config, "contact_cost_range");
    }
  }

  void reset(Rng& rng, const Options&) { reset_uniformly(rng, noise_); }

  Outcome step(const ActionRow& row, Rng&) {
    const std::array<double, 2> before = mass_center();
    simulate(row);
    center_ = mass_center();
    const bool healthy = healthy_z_.contains(sim_->qpos[2]);
    forward_ = forward_weight_ * motion_.move(before, center_, dt());
    survive_ = survival_.paid(healthy);
    control_cost_ = control_cost_of(control_weight_);
    double costs = control_cost_;
    if constexpr (version >= 5) {
      contact_cost_ = impact_cost_of(contact_weight_, contact_range_);
      costs += contact_cost_;
    }
    return {(forward_ + survive_) - costs, survival_.ends(healthy), false};
  }

  void observe(const Row& row) const {
    observation_.write(row.observation<double>(), sim_);
    if (version < 5 && !stepped_) return;
    const double* position = version >= 5 ? sim_->qpos : center_.data();
    motion_.write_place(row, position, norm(position, 2));
    if constexpr (version >= 5) write_tendons(row, kTendonLength, kTendonVelocity);
    if (!stepped_) return;
    motion_.write_velocity(row);
    *row.info<double>(kForward) = forward_;
    *row.info<double>(kControl) = -control_cost_;
    *row.info<double>(kSurvive) = survive_;
    *row.info<double>(kContact) = version >= 5 ? -contact_cost_ : forward_;
  }

  static auto memory(auto& task) {
    return std::tie(task.center_, task.motion_, task.forward_, task.survive_, task.control_cost_, task.contact_cost_);
  }

 private:
  enum {
    kForward = PlaneMotion::kInfoCount, kControl, kSurvive, kContact, kInfoCount,
    kTendonLength = kInfoCount, kTendonVelocity
  };

  // x and y of the centre of mass of all bodies.
  std::array<double, 2> mass_center() const {
    const double total = numpy_sum(sim_->body_mass, nbody());
    const auto mean = [&](int axis) {
      return sum_of_products(fused_mass_center_, sim_->body_mass, 1, sim_->xipos + axis, 3, nbody()) / total;
    };
    return {mean(0), mean(1)};
  }

  bool fused_mass_center_;
  double forward_weight_, control_weight_, contact_weight_ = 0.0;
  Survival<version> survival_;
  Range healthy_z_, contact_range_{0.0, 0.0};
  double noise_;
  HumanoidObservation<version> observation_;
  std::array<double, 2> center_{};
  PlaneMotion motion_;
  double forward_ = 0.0, survive_ = 0.0, control_cost_ = 0.0, contact_cost_ = 0.0;
};

}  // namespace stepmill
