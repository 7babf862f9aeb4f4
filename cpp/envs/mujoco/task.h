// What Gymnasium's MuJoCo tasks share: the simulation, resets with noise, and the terms of rewards.
//
// The arithmetic follows Gymnasium's operation by operation, and numpy's order of summation. What comes from the
// float32 action stays float32 if numpy keeps it so.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <stepmill/env.h>
#include "envs/mujoco/simulation.h"
#include "envs/numpy/float32.h"
#include "envs/numpy/scalar.h"
#include "envs/numpy/sums.h"

namespace stepmill {

// ---- describing ----------------------------------------------------------------------------------

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The leaf of an info value that Gymnasium computes in float64.
inline Leaf number(std::string name) { return box<double>({}, {-kInfinity}, {kInfinity}, std::move(name)); }

// The leaf of an info value that comes from the float32 action: written with `write_cost`.
inline Leaf action_cost(std::string name) {
  if (scalars_keep_float32()) return box<float>({}, {-kInfinity}, {kInfinity}, std::move(name));
  return number(std::move(name));
}

// The leaf of an array in the infos.
inline Leaf numbers(std::int64_t count, std::string name) {
  return box<double>({count}, {-kInfinity}, {kInfinity}, std::move(name));
}

// Refuses values that every task refuses, where it has such keys.
inline void check_arguments(const Config& config) {
  for (const ConfigItem& item : config.items()) {
    if (item.key == "frame_skip") {
      const std::int64_t frames = config.integer("frame_skip");
      constexpr int kMost = std::numeric_limits<int>::max();  // MuJoCo's own bindings count with an int
      if (frames < 1 || frames > kMost)
        throw std::invalid_argument("frame_skip: expected at least 1 and at most " + std::to_string(kMost) + ", got " +
                                    std::to_string(frames));
    }
    if (item.key != "reset_noise_scale") continue;
    const double scale = config.real("reset_noise_scale");
    if (!(scale >= 0.0) || !std::isfinite(2.0 * scale)) {
      char shown[32];  // no stream: writing a double to one crashed beside MuJoCo 4.0 on x86-64
      std::snprintf(shown, sizeof shown, "%g", scale);
      throw std::invalid_argument("reset_noise_scale: expected a number from 0 to 8.9e307, got " + std::string(shown));
    }
  }
}

inline EnvSpec mujoco_spec(std::int64_t observation_size, std::vector<Leaf> info, const Config& config,
                           const Config& simulator) {
  check_arguments(config);
  EnvSpec spec;
  spec.observation = {box<double>({observation_size}, {-kInfinity}, {kInfinity})};
  spec.action = {box<float>({simulator.integer("nu")}, simulator.reals("ctrl_low"), simulator.reals("ctrl_high"))};
  spec.info = std::move(info);
  return spec;
}

// Refuses a model in which a task would read what is not there.
inline void require_size(const char* what, std::int64_t size, std::int64_t least) {
  if (size < least)
    throw std::invalid_argument("xml_file: the model has " + std::string(what) + "=" + std::to_string(size) +
                                ", and this env reads at least " + std::to_string(least));
}
// Refuses a model that gives observations of another size than the env promises.
inline void require_observation_size(std::int64_t size, std::int64_t expected) {
  if (size != expected)
    throw std::invalid_argument("xml_file: the model gives observations of " + std::to_string(size) +
                                " numbers, and those of this env have " + std::to_string(expected));
}

// ---- reading the configuration ---------------------------------------------------------------------

// Steps of the simulation per step of the env, which v5 lets the user choose.
template <int version>
std::int64_t frame_skip_of(const Config& config, std::int64_t otherwise) {
  if constexpr (version >= 5) return config.integer("frame_skip");
  return otherwise;
}

// How many of the first positions (x, or x and y) an observation leaves out.
inline std::int64_t skipped_positions(const Config& config, std::int64_t count) {
  return config.flag("exclude_current_positions_from_observation") ? count : 0;
}

struct Range {
  double low, high;

  Range(double from, double to) : low(from), high(to) {}
  Range(const Config& config, const char* key) : Range(config.reals(key).at(0), config.reals(key).at(1)) {}
  bool contains(double x) const { return low < x && x < high; }
};

// ---- writing -------------------------------------------------------------------------------------

inline double* put(double* out, const double* from, std::int64_t count) {
  std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(double));
  return out + count;
}
inline double* put_clipped(double* out, const double* from, std::int64_t count, double low, double high) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = numpy_clip(from[i], low, high);
  return out + count;
}

inline void write_cost(const Row& row, int leaf, double value) {
  if (scalars_keep_float32())
    *row.info<float>(leaf) = static_cast<float>(value);  // it is one
  else
    *row.info<double>(leaf) = value;
}

// ---- terms of rewards ------------------------------------------------------------------------------

// weight * np.sum(np.square(action))
inline double action_cost_of(double weight, const float* action, std::int64_t count) {
  const float sum = numpy_sum_of_squares(action, count);
  if (scalars_keep_float32()) return static_cast<double>(static_cast<float>(weight) * sum);
  return weight * static_cast<double>(sum);
}

// The reward for being healthy, and the end of those who are not. v4 also pays in the step that ends the episode.
template <int version>
struct Survival {
  double reward;
  bool required;

  explicit Survival(const Config& config)
      : reward(config.real("healthy_reward")), required(config.flag("terminate_when_unhealthy")) {}
  double paid(bool healthy) const { return (healthy || (version < 5 && required) ? 1.0 : 0.0) * reward; }
  bool ends(bool healthy) const { return !healthy && required; }
};

// The first infos of Ant, Humanoid and Swimmer: where they are in the plane, how far from the origin, and how fast.
class PlaneMotion {
 public:
  enum { kX, kY, kDistance, kXVelocity, kYVelocity, kInfoCount };

  // These leaves, and room for the task's own, `count` in all.
  static std::vector<Leaf> infos(std::size_t count) {
    std::vector<Leaf> info = {number("x_position"), number("y_position"), number("distance_from_origin"),
                              number("x_velocity"), number("y_velocity")};
    info.resize(count);
    return info;
  }

  // A step of `dt` seconds from one place to another. Returns the velocity forward.
  double move(const std::array<double, 2>& before, const std::array<double, 2>& after, double dt) {
    x_velocity_ = (after[0] - before[0]) / dt;
    y_velocity_ = (after[1] - before[1]) / dt;
    return x_velocity_;
  }

  void write_place(const Row& row, const double* place, double distance) const {
    *row.info<double>(kX) = place[0];
    *row.info<double>(kY) = place[1];
    *row.info<double>(kDistance) = distance;
  }
  void write_velocity(const Row& row) const {
    *row.info<double>(kXVelocity) = x_velocity_;
    *row.info<double>(kYVelocity) = y_velocity_;
  }

 private:
  double x_velocity_ = 0.0, y_velocity_ = 0.0;
};

inline bool all_finite(const double* x, std::int64_t count) {
  return std::all_of(x, x + count, [](double value) { return std::isfinite(value); });
}

// ---- a task ----------------------------------------------------------------------------------------

class MujocoTask {
 public:
  static constexpr bool kNeverBlocks = true;

  // Another model or data from the next reset on.
  void connect(const Config& simulator) { sim_.connect(simulator); }

 protected:
  MujocoTask(const Config& simulator, std::int64_t frame_skip)
      : sim_(simulator),
        fused_dot_(simulator.flag("fused_dot")),
        frame_skip_(frame_skip),
        init_qpos_(sim_->qpos, sim_->qpos + nq()),
        init_qvel_(sim_->qvel, sim_->qvel + nv()) {}

  std::int64_t nq() const { return sim_.sizes.nq; }
  std::int64_t nv() const { return sim_.sizes.nv; }
  std::int64_t nu() const { return sim_.sizes.nu; }
  std::int64_t nbody() const { return sim_.sizes.nbody; }

  // Seconds of one step.
  double dt() const { return sim_->timestep * static_cast<double>(frame_skip_); }

  // Starts an episode from a state that `place(qpos, qvel)` writes into the arrays it is given.
  template <class Place>
  void reset_simulation(Place place) {
    sim_.reset();
    place(sim_->qpos, sim_->qvel);
    sim_.forward();
    stepped_ = false;
  }

  // Starts from the model's own state, plus noise on every position and velocity.
  void reset_uniformly(Rng& rng, double scale) {
    reset_simulation([&](double* qpos, double* qvel) {
      add_uniform(rng, scale, init_qpos_, qpos);
      add_uniform(rng, scale, init_qvel_, qvel);
    });
  }
  void reset_with_normal_velocities(Rng& rng, double scale) {
    reset_simulation([&](double* qpos, double* qvel) {
      add_uniform(rng, scale, init_qpos_, qpos);
      add_normal(rng, scale, init_qvel_, qvel);
    });
  }

  const float* simulate(const ActionRow& action) {
    const float* values = action.get<float>();
    sim_.step(values, frame_skip_);
    stepped_ = true;
    return values;
  }

  // init + uniform noise. All of `qpos` is drawn before `qvel`.
  void add_uniform(Rng& rng, double scale, const std::vector<double>& init, double* out) const {
    for (std::size_t i = 0; i < init.size(); ++i) out[i] = init[i] + rng.uniform(-scale, scale);
  }
  void add_normal(Rng& rng, double scale, const std::vector<double>& init, double* out) const {
    for (std::size_t i = 0; i < init.size(); ++i) out[i] = init[i] + scale * rng.normal();
  }

  double norm(const double* x, std::int64_t count) const { return numpy_norm(fused_dot_, x, count); }
  const double* position_of(std::int64_t body) const { return sim_->xpos + 3 * body; }
  std::array<double, 3> difference_of(std::int64_t body, std::int64_t other) const {
    const double *a = position_of(body), *b = position_of(other);
    return {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
  }

  Simulation sim_;
  bool fused_dot_;
  std::int64_t frame_skip_;
  std::vector<double> init_qpos_, init_qvel_;
  bool stepped_ = false;  // in this episode: Gymnasium's resets have fewer info keys than its steps
};

// A task that can be saved. `Task::memory(task)` names all members of its own that a step changes.
template <class Task>
class SavedTask : public Task {
 public:
  using Task::Task;

  void save(Writer& to) const {
    std::apply([&](const auto&... members) { to.put(this->stepped_, members...); }, Task::memory(*this));
    this->sim_.save(to);
  }
  void load(Reader& from) {
    std::apply([&](auto&... members) { from.take(this->stepped_, members...); }, Task::memory(*this));
    this->sim_.load(from);
  }
};

}  // namespace stepmill
