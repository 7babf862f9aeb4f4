// Serves callers who each have one env and wait in an event loop: `stepmill._native.EngineSessions`.
//
// What they ask is put down, env by env, and checked at once, so that an error is that of its owner. `exchange` starts all
// of it and takes every row that is ready, and never waits. `watch` then says whether the loop may sleep: the pool's
// RowsEvent wakes it. Who waits for which row, and what is allowed when, is decided in Python
// (stepmill/views/session.py).
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "bindings/engine.h"

namespace stepmill {

class EngineSessions {
 public:
  explicit EngineSessions(nanobind::object engine)
      : engine_object_(std::move(engine)), engine_(nanobind::cast<Engine&>(engine_object_)) {}

  // From now on the engine returns rows as they are ready, in the form of the gymnasium view. Every other call that sends
  // or receives first calls `owner.make_way(its name)`, which raises, or calls `end`. Nothing may be in flight.
  void begin(nanobind::object owner);
  // Waits for everything in flight and drops it.
  void end();
  bool has_begun() const { return engine_.sessions_.is_valid(); }
  std::int32_t num_envs() const { return static_cast<std::int32_t>(engine_.all_envs_.size()); }
  // The descriptor that becomes readable.
  int event() const { return engine_.host_.has_ended() ? -1 : pool().rows_event().descriptor(); }

  // For an idle env, whose action is without the axis of the envs. `batch`: the same action with that axis, for spaces
  // with parts that are no arrays; otherwise None.
  void put_action(std::int32_t env, nanobind::handle action, nanobind::handle batch);
  void put_reset(std::int32_t env, nanobind::handle seed, nanobind::handle options);
  // Whether something was put down for it, or is in flight.
  bool is_asked(std::int32_t env) const;

  // Starts what was put down and, where envs step in the caller, steps some. Returns what is ready: (the result, the error
  // that would be raised with it or None); None if there is nothing. `rung`: the event was; `doubtful`: looks more closely.
  nanobind::object exchange(bool rung, bool doubtful);
  // Whether the event will be rung for the next row. False: `exchange` has something to do already.
  bool watch();
  // Nobody wants the row any more that is in flight. It comes all the same.
  void cancel(std::int32_t env);

  // For the garbage collector: the owner refers to us, and the engine to the owner.
  int traverse(visitproc visit, void* arg) const;
  void clear_references() {}

 private:
  Pool& pool() const { return engine_.pool(); }
  void check_put(std::int32_t env) const;
  void put(std::int32_t env, std::vector<std::int32_t>& among);
  void start(std::vector<std::int32_t>& envs);
  void step_here();
  bool has_row();

  const nanobind::object engine_object_;
  Engine& engine_;  // the same
  std::vector<std::int32_t> steps_, resets_;  // what was put down
  std::vector<std::uint8_t> is_put_;          // by env
  nanobind::object show_step_, show_reset_;   // what the engine showed before
  bool shows_players_ = false;
};

}  // namespace stepmill
