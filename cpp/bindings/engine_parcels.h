// An engine that serves another one, which has its own copy of the action table elsewhere: `stepmill._native.ParcelServer`.
//
// It is given what the other one has packed (RemoteHost), and packs what its envs did: parcels instead of arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "bindings/engine.h"
#include "core/remote/parcel.h"

namespace stepmill {

// What goes with the rows of an answer: the notes of a host and failures, as enclosures of a parcel.
class AnswerMail {
 public:
  // `write_note(*note)` returns the bytes of a note; None: notes are (row, env, bytes).
  AnswerMail(nanobind::handle notes, std::span<const Fault> faults, const nanobind::object& write_note);
  std::span<const Enclosure> enclosures() const { return enclosures_; }

 private:
  std::vector<nanobind::object> written_;
  std::vector<std::vector<std::byte>> faults_;
  std::vector<Enclosure> enclosures_;
};

class ParcelServer {
 public:
  // Mail and notes pass as they are if workers read and write them. For envs of this process: `read_mail(env, bytes)`
  // returns what the host passes on to the env, and `write_note(*note)` the bytes of what the host has noted.
  ParcelServer(nanobind::object engine, nanobind::object read_mail, nanobind::object write_note);

  // Starts the envs of an order, which may be none, and returns an answer with the rows that are ready. It waits `quick`
  // seconds for all envs that are at work, then until no more than the order's `spare` are left. With `patience` it gives
  // that up if no row has come for this many seconds (for the first one: ten times as many): then the answer has fewer
  // rows, or none. Raises if no env is at work: nothing would ever come.
  nanobind::object exchange(nanobind::handle order, double quick, std::optional<double> patience);

  // Envs that the other engine lends this one: from now on their states are those of the parcel.
  void take_states(nanobind::handle states);
  // The states of envs that go back.
  nanobind::object give_states(const std::vector<std::int32_t>& envs);

 private:
  Pool& pool() const { return engine_.pool(); }
  void refuse_in_flight(std::span<const std::int32_t> envs) const;
  std::int32_t start(nanobind::handle order);
  void pass_on(const Enclosure& mail);
  nanobind::object answer();

  const nanobind::object engine_object_;
  Engine& engine_;  // the same
  const nanobind::object read_mail_, write_note_;
};

}  // namespace stepmill
