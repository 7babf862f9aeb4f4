// Reads and checks what workers can write. The pool reads such memory only here. (Counts of batches and futex words are
// waited on where they are: they only tell when to look.)
//
// A buggy env may write anywhere in that memory. So nothing in it is trusted: each value is copied once, compared with
// what the pool keeps in its own process (`Asked`, and which env has which row), and passed on only if it is possible.
// An impossible value is never a result: the worker that the word, the row or the note belongs to is replaced.
// Counters, clocks and measurements are hints: any value is accepted.
//
// This does not protect against malice: an env can run code in the caller through what is unpickled there
// (docs/processes.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/process/process_layout.h"
#include "core/process/slot_ring.h"

namespace stepmill {

// The memory that a pool shares with its workers is broken, and its contents can no longer be recovered.
struct BrokenMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What the pool has last asked of an env.
struct Asked {
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;  // of the worker, as in an env word; 0: the pool answered, or no worker was asked
  std::uint64_t at = 0;           // nanoseconds of the monotonic clock
  bool is_call = false;
  bool is_reset = false;    // or counts as one; known if resets have another deadline than steps
  bool given_up = false;    // the pool has declared a fault, and is about to answer
};

class ProcessChecks {
 public:
  // Both as the pool has attached them.
  ProcessChecks(std::int32_t num_envs, const ProcessTables& tables, const SlotRing& ring)
      : num_envs_(num_envs), tables_(tables), ring_(ring) {}

  // How far the env has got with what it was asked. Nothing: this life of the worker cannot have written that word.
  std::optional<EnvWord> word(std::int32_t env, const Asked& asked) const;
  // Whether the env has finished what it was asked: it can be asked something else.
  bool is_idle(std::int32_t env, const Asked& asked) const;

  // Since when the code of a RUNNING env has been running, and for what.
  struct Run {
    std::uint64_t since;
    Activity activity;
  };
  std::optional<Run> run(std::int32_t env, const Asked& asked) const;
  // What kind of the env's code ran last. A hint, except for ProcessTables::ending: it says that there is one.
  Activity activity(std::int32_t env) const;

  // What a worker reports about a row: the phase in which the env raised (-1: it did not), and where its note is
  // (offset 0: there is none). Nothing: the report is not about the row of that action.
  std::optional<std::int32_t> fault_phase(std::int32_t env, std::uint32_t epoch) const {
    const std::int32_t phase = copy(tables_.report(env).fault_phase);
    const bool good = is_written(env, epoch) && phase >= -1 && phase <= SM_IN_OBSERVE;
    return good ? std::optional(phase) : std::nullopt;
  }
  struct Note {
    std::uint64_t offset = 0, bytes = 0, seal = 0;
  };
  std::uint64_t note_offset(std::int32_t env) const { return copy(tables_.report(env).note); }
  Note note(std::int32_t env) const;
  Note call(std::int32_t env) const;
  // Whether the row of that action was written completely. If a count says so too, we need not read the word, which
  // shares a cache line with the words of running envs.
  bool is_written(std::int32_t env, std::uint32_t epoch) const { return copy(tables_.report(env).epoch) == epoch; }
  void will_read_row(std::int32_t env) const { __builtin_prefetch(&tables_.report(env)); }
  // Which copy of the last good observation is complete.
  std::uint32_t last_good(std::int32_t env) const { return copy(tables_.report(env).last_good) & 1; }

  // Which env has taken a slot of an open batch.
  struct Slot {
    enum Kind { kFree, kSealed, kTaken, kBroken } kind;
    std::int32_t env;
    std::uint32_t epoch;
  };
  Slot slot(std::uint32_t number, std::uint32_t row) const;

  // ---- hints ----

  bool has_announced(std::int32_t worker, std::uint32_t incarnation) const {
    return tables_.worker(worker).ready.load(std::memory_order_acquire) == incarnation;
  }
  bool said_alive(std::int32_t worker, std::uint32_t number) const {
    return tables_.worker(worker).said_alive.load(std::memory_order_acquire) == number;
  }
  // The env whose code a worker with an event loop runs at this moment; -1: none, or it is unknown.
  std::int32_t runs(std::int32_t worker) const {
    const std::int32_t env = tables_.worker(worker).runs.load(std::memory_order_relaxed) - 1;
    return env < num_envs_ ? std::max(env, -1) : -1;
  }
  std::uint64_t busy_ns(std::int32_t worker) const {
    return tables_.worker(worker).busy_ns.load(std::memory_order_relaxed);
  }
  std::uint64_t steps(std::int32_t worker) const { return tables_.worker(worker).steps.load(std::memory_order_relaxed); }

 private:
  Activity activity_of(std::int32_t env, std::uint64_t begun) const;
  // Reads once: a compiler may read plain memory twice, and a worker may write in between.
  template <class T>
  static T copy(const T& value) {
    return *static_cast<const volatile T*>(&value);
  }

  const std::int32_t num_envs_;
  const ProcessTables& tables_;
  const SlotRing& ring_;
};

// Once for every row.

inline ProcessChecks::Slot ProcessChecks::slot(std::uint32_t number, std::uint32_t row) const {
  const SlotRing::Owner owner = ring_.owner(number, row);
  if (owner.env < static_cast<std::uint32_t>(num_envs_))
    return {Slot::kTaken, static_cast<std::int32_t>(owner.env), owner.epoch};
  // The word of a slot without an owner holds the number of its batch.
  const Slot::Kind kind = owner.epoch != number            ? Slot::kBroken
                          : owner.env == SlotRing::kEmpty  ? Slot::kFree
                          : owner.env == SlotRing::kSealed ? Slot::kSealed
                                                           : Slot::kBroken;
  return {kind, -1, 0};
}

}  // namespace stepmill
