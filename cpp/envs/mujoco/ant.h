// Ant-v4 and Ant-v5: a quadruped runs forward without falling over.
#pragma once

#include "envs/mujoco/task.h"

namespace stepmill {

template <int version>
class Ant : public MujocoTask {
 public:
  static std::vector<ConfigItem> configuration() {
    std::vector<ConfigItem> keys = {{"ctrl_cost_weight", 0.5},
                                    {"contact_cost_weight", 5e-4},
                                    {"healthy_reward", 1.0},
                                    {"terminate_when_unhealthy", true},
                                    {"healthy_z_range", Reals{0.2, 1.0}},
                                    {"contact_force_range", Reals{-1.0, 1.0}},
                                    {"reset_noise_scale", 0.1},
                                    {"exclude_current_positions_from_observation", true}};
    if constexpr (version >= 5) {
      keys.push_back({"frame_skip", std::int64_t{5}});
      keys.push_back({"forward_reward_weight", 1.0});
      keys.push_back({"include_cfrc_ext_in_observation", true});
    } else {
      keys.push_back({"use_contact_forces", false});
    }
    return keys;
  }

  static EnvSpec spec(const Config& config, const Config& simulator) {
    const MujocoSizes sizes(simulator);
    require_size("nq", sizes.nq, 3);
    const bool forces = shows_forces(config);
    std::int64_t size = sizes.nq + sizes.nv + (forces ? forces_count(sizes.nbody) : 0);
    size -= skipped_positions(config, 2);
    if constexpr (version < 5) require_observation_size(size, 29 - skipped_positions(config, 2) + (forces ? 84 : 0));
    std::vector<Leaf> info = PlaneMotion::infos(kInfoCount);
    info[kForward] = number("reward_forward");
    // Gymnasium's v4 shows the cost of contacts under this name, if there is one.
    info[kControl] = contact_hides_control(config) ? number("reward_ctrl") : action_cost("reward_ctrl");
    info[kSurvive] = number("reward_survive");
    info[kContact] = number(version >= 5 ? "reward_contact" : "forward_reward");
    return mujoco_spec(size, std::move(info), config, simulator);
  }

  Ant(const Config& config, const Config& simulator)
      : MujocoTask(simulator, frame_skip_of<version>(config, 5)),
        body_(simulator.integer("main_body")),
        forward_weight_(version >= 5 ? config.real("forward_reward_weight") : 1.0),
        control_weight_(config.real("ctrl_cost_weight")),
        contact_weight_(config.real("contact_cost_weight")),
        survival_(config),
        healthy_z_(config, "healthy_z_range"),
        force_range_(config, "contact_force_range"),
        noise_(config.real("reset_noise_scale")),
        skipped_(skipped_positions(config, 2)),
        shows_forces_(shows_forces(config)),
        contact_hides_control_(contact_hides_control(config)) {}

  void reset(Rng& rng, const Options&) { reset_with_normal_velocities(rng, noise_); }

  Outcome step(const ActionRow& row, Rng&) {
    const std::array<double, 2> before = place();
    const float* action = simulate(row);
    const bool healthy = is_healthy();
    forward_ = motion_.move(before, place(), dt()) * forward_weight_;
    survive_ = survival_.paid(healthy);
    control_cost_ = action_cost_of(control_weight_, action, nu());
    double costs = control_cost_;
    if (version >= 5 || shows_forces_) {
      contact_cost_ = contact_weight_ * numpy_sum_of<double>(0, 6 * nbody(), [this](std::int64_t i) {
        const double force = numpy_clip(sim_->cfrc_ext[i], force_range_.low, force_range_.high);
        return force * force;
      });
      costs += contact_cost_;
    }
    return {(forward_ + survive_) - costs, survival_.ends(healthy), false};
  }

  void observe(const Row& row) const {
    double* out = row.observation<double>();
    out = put(out, sim_->qpos + skipped_, nq() - skipped_);
    out = put(out, sim_->qvel, nv());
    if (shows_forces_) {
      const std::int64_t count = forces_count(nbody());
      put_clipped(out, sim_->cfrc_ext + 6 * nbody() - count, count, force_range_.low, force_range_.high);
    }
    if (version < 5 && !stepped_) return;
    const double* position = version >= 5 ? sim_->qpos : position_of(body_);
    motion_.write_place(row, position, norm(position, 2));
    if (!stepped_) return;
    motion_.write_velocity(row);
    *row.info<double>(kForward) = forward_;
    if (contact_hides_control_)
      *row.info<double>(kControl) = -contact_cost_;
    else
      write_cost(row, kControl, -control_cost_);
    *row.info<double>(kSurvive) = survive_;
    *row.info<double>(kContact) = version >= 5 ? -contact_cost_ : forward_;
  }

  static auto memory(auto& task) {
    return std::tie(task.motion_, task.forward_, task.survive_, task.control_cost_, task.contact_cost_);
  }

 private:
  enum { kForward = PlaneMotion::kInfoCount, kControl, kSurvive, kContact, kInfoCount };

  static bool shows_forces(const Config& config) {
    return config.flag(version >= 5 ? "include_cfrc_ext_in_observation" : "use_contact_forces");
  }
  static bool contact_hides_control(const Config& config) { return version < 5 && shows_forces(config); }
  // v5 leaves out the world, on which no force acts.
  static std::int64_t forces_count(std::int64_t bodies) { return 6 * (version >= 5 ? bodies - 1 : bodies); }

  std::array<double, 2> place() const { return {position_of(body_)[0], position_of(body_)[1]}; }

  bool is_healthy() const {
    const double z = sim_->qpos[2];
    return all_finite(sim_->qpos, nq()) && all_finite(sim_->qvel, nv()) && healthy_z_.low <= z &&
           z <= healthy_z_.high;
  }

  std::int64_t body_;
  double forward_weight_, control_weight_, contact_weight_;
  Survival<version> survival_;
  Range healthy_z_, force_range_;
  double noise_;
  std::int64_t skipped_;
  bool shows_forces_, contact_hides_control_;
  PlaneMotion motion_;
  double forward_ = 0.0, survive_ = 0.0, control_cost_ = 0.0, contact_cost_ = 0.0;
};

}  // namespace stepmill
