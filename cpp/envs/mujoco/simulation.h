// One simulation of MuJoCo, by its addresses: a model, a data, and the arrays in them that tasks read.
//
// MuJoCo's Python package made all of it, and the Python half of the family (`stepmill/zoo/mujoco`) says where it is.
// Arrays that move while MuJoCo runs (contacts, constraints) are not among them.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include <stepmill/env.h>
#include "envs/mujoco/library.h"

namespace stepmill {

// What depends on the model alone: enough to describe an env.
struct MujocoSizes {
  std::int64_t nq, nv, nu, nbody, nsite, ntendon;

  explicit MujocoSizes(const Config& simulator)
      : nq(simulator.integer("nq")),
        nv(simulator.integer("nv")),
        nu(simulator.integer("nu")),
        nbody(simulator.integer("nbody")),
        nsite(simulator.integer("nsite")),
        ntendon(simulator.integer("ntendon")) {}
};

class Simulation {
 public:
  // MuJoCo's names.
  struct Arrays {
    double *qpos, *qvel, *ctrl, *xpos, *xipos, *site_xpos, *cinert, *cvel, *cfrc_ext, *qfrc_actuator,
        *qfrc_constraint, *ten_length, *ten_velocity, *body_mass;
    double timestep;
  };

  explicit Simulation(const Config& simulator)
      : sizes(simulator), library_(&MujocoLibrary::of(simulator.text("bindings"))), next_(read(simulator)) {
    take_up();
  }

  // Another model or data, of the same sizes, from the next reset on.
  void connect(const Config& simulator) { next_ = read(simulator); }

  void reset() {
    if (next_) take_up();
    library_->reset_data(model_, data_);
  }
  void forward() { library_->forward(model_, data_); }
  void step(const float* action, std::int64_t frames) {
    for (std::int64_t i = 0; i < sizes.nu; ++i) arrays_.ctrl[i] = static_cast<double>(action[i]);
    library_->step(model_, data_, frames);
  }

  const MujocoSizes sizes;
  const Arrays& operator*() const { return arrays_; }
  const Arrays* operator->() const { return &arrays_; }

 private:
  struct Connection {
    const void* model;
    void* data;
    std::int64_t* model_in_use;  // where Python reads the address of the model that we use, so that it can free others
    Arrays arrays;
  };

  static Connection read(const Config& simulator) {
    const auto address = [&](const char* key) { return reinterpret_cast<void*>(simulator.integer(key)); };
    const auto array = [&](const char* key) { return static_cast<double*>(address(key)); };
    return {address("model"), address("data"), static_cast<std::int64_t*>(address("model_in_use")),
            {array("qpos"), array("qvel"), array("ctrl"), array("xpos"), array("xipos"), array("site_xpos"),
             array("cinert"), array("cvel"), array("cfrc_ext"), array("qfrc_actuator"), array("qfrc_constraint"),
             array("ten_length"), array("ten_velocity"), array("body_mass"), simulator.real("timestep")}};
  }

  void take_up() {
    model_ = next_->model;
    data_ = next_->data;
    arrays_ = next_->arrays;
    *next_->model_in_use = reinterpret_cast<std::int64_t>(model_);
    next_.reset();
  }

  const MujocoLibrary* library_;
  std::optional<Connection> next_;
  const void* model_ = nullptr;
  void* data_ = nullptr;
  Arrays arrays_{};
};

}  // namespace stepmill
