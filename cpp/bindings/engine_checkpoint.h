// Takes everything that decides how a pool goes on, and gives it to another one: `stepmill._native.EngineCheckpoint`.
//
// Rows that nobody has received yet are taken out of the pool, as parcels (parcel.h), while the envs are saved, and put back:
// at the places that they had, so that a batch that was partly filled still is.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "bindings/engine.h"
#include "core/remote/parcel.h"

namespace stepmill {

class EngineCheckpoint {
 public:
  // Notes of rows are kept in the form of worker processes. For hosts that have another one: `write_note(*note)` returns
  // that form of a note, and `read_note(env, bytes)` what a note has behind row and env, or a text: the message of a failure.
  EngineCheckpoint(nanobind::object engine, nanobind::object write_note, nanobind::object read_note)
      : engine_object_(std::move(engine)),
        engine_(nanobind::cast<Engine&>(engine_object_)),
        write_note_(std::move(write_note)),
        read_note_(std::move(read_note)) {}

  // Waits until every env in flight has its result. Returns (ids of the envs that were ever reset, what `EngineStates.save`
  // returns of them, the rest, a batch on its way to the caller: (result, error), or None). Nothing has changed, whatever it
  // raises.
  nanobind::object take(nanobind::handle by);

  // Gives the rest, and such a batch, to an engine that is like that one, whose envs have got their states. Raises StateError
  // if it does not fit; then the engine is of no use any more.
  void give(nanobind::handle rest, nanobind::handle on_its_way);

 private:
  // A batch that was taken, until it is put back.
  struct Taken {
    bool gather;
    std::vector<std::byte> rows;  // see AnswerRows
    nanobind::object notes;       // in the form of the host; invalid: none
    std::vector<Fault> faults;
  };

  Pool& pool() const { return engine_.pool(); }
  void wait_for_all();
  Taken take_batch();
  void put_back(Taken taken);
  nanobind::object parcel_of(const Taken& taken) const;
  Taken taken_of(bool gather, nanobind::handle parcel) const;
  nanobind::object counts() const;
  void set_counts(nanobind::handle counts);

  const nanobind::object engine_object_;
  Engine& engine_;  // the same
  const nanobind::object write_note_, read_note_;
};

}  // namespace stepmill
