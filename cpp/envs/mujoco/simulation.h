// One simulation of MuJoCo, by its addresses: a model, a data, and the arrays in them that tasks read.
//
// MuJoCo's Python package made all of it, and the Python half of the family (`stepmill/zoo/mujoco`) says where it is.
// Arrays that move while MuJoCo runs (contacts, constraints) are not among them: each step computes them anew before it
// reads them. All others are in one piece of memory, which is what is saved.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

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

  // Another model or data, of the same sizes, from the next reset on, or for the state that is loaded next.
  void connect(const Config& simulator) { next_ = read(simulator); }

  void reset() {
    if (next_) take_up();
    library_->reset_data(model_, data_);
    is_sound_ = true;
  }
  void forward() {
    guarded([&] { library_->forward(model_, data_); });
  }
  void step(const float* action, std::int64_t frames) {
    for (std::int64_t i = 0; i < sizes.nu; ++i) arrays_.ctrl[i] = static_cast<double>(action[i]);
    guarded([&] { library_->step(model_, data_, frames); });
  }

  void save(Writer& to) const {
    to.put(memory_.bytes(), library_->time_of(model_, data_));
    for (const Memory::Piece& piece : memory_.pieces) to.put_array(piece.first, piece.bytes);
  }
  // The last part of a state. It is checked before anything changes.
  void load(Reader& from) {
    std::size_t bytes = 0;
    double time = 0.0;
    from.take(bytes, time);
    if (bytes != memory_.bytes() || from.left() != bytes)
      throw std::runtime_error("a simulation of " + std::to_string(from.left()) + " bytes, and here it has " +
                               std::to_string(memory_.bytes()));
    if (next_) take_up();
    if (!is_sound_) library_->reset_data(model_, data_);
    is_sound_ = true;
    for (const Memory::Piece& piece : memory_.pieces) from.take_array(piece.first, piece.bytes);
    library_->finish_copy(model_, data_, time);
    notes_->has_foreign_contacts = 1;
  }

  const MujocoSizes sizes;
  const Arrays& operator*() const { return arrays_; }
  const Arrays* operator->() const { return &arrays_; }

 private:
  // The arrays of a data. Among them are addresses of what plugins keep, which belong to that data alone.
  struct Memory {
    struct Piece {
      std::byte* first;
      std::size_t bytes;
    };
    Piece pieces[2];  // before these addresses, and after

    std::size_t bytes() const { return pieces[0].bytes + pieces[1].bytes; }
  };
  // What Python reads: the address of the model that we use, so that it can free others, and whether the contacts are not
  // those of the arrays, because these were loaded: only pictures show them between two steps.
  struct Notes {
    std::int64_t model_in_use, has_foreign_contacts;
  };
  struct Connection {
    const void* model;
    void* data;
    Notes* notes;
    Arrays arrays;
    Memory memory;
  };

  static Connection read(const Config& simulator) {
    const auto address = [&](const char* key) { return reinterpret_cast<void*>(simulator.integer(key)); };
    const auto array = [&](const char* key) { return static_cast<double*>(address(key)); };
    const auto piece = [&](const char* key, const char* bytes) {
      return Memory::Piece{static_cast<std::byte*>(address(key)), static_cast<std::size_t>(simulator.integer(bytes))};
    };
    return {address("model"), address("data"), static_cast<Notes*>(address("notes")),
            {array("qpos"), array("qvel"), array("ctrl"), array("xpos"), array("xipos"), array("site_xpos"),
             array("cinert"), array("cvel"), array("cfrc_ext"), array("qfrc_actuator"), array("qfrc_constraint"),
             array("ten_length"), array("ten_velocity"), array("body_mass"), simulator.real("timestep")},
            {{piece("memory", "memory_bytes"), piece("memory_after_plugins", "memory_after_plugins_bytes")}}};
  }

  // Calls MuJoCo, after whose errors only a reset mends the data.
  template <class Call>
  void guarded(Call call) {
    is_sound_ = false;
    call();
    is_sound_ = true;
    notes_->has_foreign_contacts = 0;
  }

  void take_up() {
    model_ = next_->model;
    data_ = next_->data;
    arrays_ = next_->arrays;
    memory_ = next_->memory;
    notes_ = next_->notes;
    notes_->model_in_use = reinterpret_cast<std::int64_t>(model_);
    next_.reset();
  }

  const MujocoLibrary* library_;
  std::optional<Connection> next_;
  const void* model_ = nullptr;
  void* data_ = nullptr;
  Arrays arrays_{};
  Memory memory_{};
  Notes* notes_ = nullptr;
  bool is_sound_ = true;
};

}  // namespace stepmill
