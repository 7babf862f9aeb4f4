// `stepmill._native.ParcelServer`: an engine that serves another one, which has its own copy of the action table elsewhere.
//
// Parcels (core/remote/parcel.h) take the place of arrays. The engine is an ordinary one, and whoever has it may use it
// for everything else.
#pragma once

#include "bindings/engine.h"

namespace stepmill {

class ParcelServer {
 public:
  explicit ParcelServer(nanobind::object engine);

  // Starts envs as the other engine has packed them; that one has checked every value. `objects` and `options`: by env,
  // what the host passes on.
  void send(nanobind::handle parcel, nanobind::dict objects, nanobind::dict options);
  // (parcel, notes, faults): as `recv_some` of an engine, but less than `at_least`, or None, if for `patience` seconds
  // none has come; for the first one it waits ten times as long. Without `patience` it has at least so many.
  nanobind::object recv(int enough, int at_least, nanobind::handle timeout, std::optional<double> patience);
  // Envs that the other engine lends this one, which steps them by itself: from now on their states are those of the
  // parcel.
  void take_states(nanobind::handle parcel);
  // The states of envs that go back.
  nanobind::object give_states(const std::vector<std::int32_t>& envs);

 private:
  Pool& pool() const { return engine_.pool(); }
  void settle(std::span<const std::int32_t> envs);

  const nanobind::object engine_object_;
  Engine& engine_;  // the same
};

}  // namespace stepmill
