// Saves envs and gives them saved states: `stepmill._native.EngineStates`.
//
// A state is the env's row of the action table (autoreset, episode, what its next reset is given), and behind it what the
// host has saved of the env. What it is of is written in Python (stepmill/values/saved_states.py), which has checked that.
#pragma once

#include <nanobind/nanobind.h>

#include "bindings/engine.h"

namespace stepmill {

class EngineStates {
 public:
  explicit EngineStates(nanobind::object engine)
      : engine_object_(std::move(engine)), engine_(nanobind::cast<Engine&>(engine_object_)) {}

  // The states of envs, none of which may be in flight; None: of all. One buffer, an array with the first and the last
  // byte of each, and what must live as long as each of them, or None. `by`: the way that the user asked for, or None.
  nanobind::object save(nanobind::handle env_id, nanobind::handle by);
  // Gives each env the state between two bytes of the buffer, and returns what `reset` returns: what the saved env showed
  // last. If it refuses, nothing has changed. `kept`: what has to live until then.
  nanobind::object restore(nanobind::handle buffer, nanobind::handle bounds, nanobind::handle env_id,
                           nanobind::handle kept);
  // The same without waiting: what the saved envs showed last comes as the results of these envs.
  void send_restore(nanobind::handle buffer, nanobind::handle bounds, nanobind::handle env_id, nanobind::handle kept);

  // The same as `save`, for a caller that is inside the engine already. These envs were reset.
  nanobind::object save_idle(std::span<const std::int32_t> envs, nanobind::handle by);

 private:
  void queue_restore(nanobind::handle buffer, nanobind::handle bounds, nanobind::handle env_id, bool gather);
  std::span<const std::int32_t> read_idle(nanobind::handle env_id);

  const nanobind::object engine_object_;
  Engine& engine_;  // the same
};

}  // namespace stepmill
