// Where the envs of a pool live, as the engine sees it.
//
// The engine (engine.h) checks what comes in, waits, and hands batches out: the same for all. A host says how its envs
// are reached: what goes to them and comes from them beside arrays, how the caller spends the time until rows are there,
// and how they end. This is its native half; the classes of stepmill/pool/host.py, which derive from the classes here,
// are the other one. `docs/why.md` says what a host has to offer.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bindings/forked.h"
#include "core/env_table.h"
#include "core/pool.h"
#include "core/wait.h"

namespace stepmill {

// How long a wait goes on before it looks whether the interpreter has a signal for us. A signal in the waiting thread
// ends the wait at once; this is for one that another thread was given.
inline constexpr auto kSignalInterval = std::chrono::milliseconds(50);

// What every wait does between two naps: runs signal handlers, which may raise, and ends the thread of a program that
// ends.
void look_for_signals();

// What a reset asks of its envs, checked. Nothing is changed before it is.
struct ResetOrder {
  std::span<const std::int32_t> envs;
  std::vector<sm_reset_request> numbers;            // options of native envs: one per env, or one for all
  std::vector<nanobind::object> objects;            // options of Python envs, packed, in the same way
  std::vector<std::optional<std::uint64_t>> seeds;  // one per env, or none at all
  const std::uint8_t* mask = nullptr;               // of the envs, those to reset; null: all

  bool resets(std::size_t i) const { return !mask || mask[i]; }
  const sm_reset_request& numbers_of(std::size_t i) const { return numbers[numbers.size() == 1 ? 0 : i]; }
  const nanobind::object& object_of(std::size_t i) const { return objects[objects.size() == 1 ? 0 : i]; }
};

class Host {
 public:
  virtual ~Host() = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // The envs in flight and the batches they fill. There is none once the host has ended.
  Pool& pool() const { return *pool_; }
  bool has_ended() const { return !pool_; }
  // Of native envs; null where these are Python's.
  const sm_env_table* table() const { return table_; }
  // Whether this process was forked after the host was made: then all of it is the parent's.
  bool forked() const { return generation_ != process_generation(); }

  // ---- before a call ----

  // Throws where the host cannot go on: then all there is to do is to end it.
  virtual void check_whole() const {}

  // ---- sending: to envs that are not in flight ----

  // Waits for what the envs still do beside actions.
  virtual void settle(std::span<const std::int32_t>) {}
  // What no array holds of the next action of an env.
  virtual void give_objects(std::int32_t env, nanobind::handle objects);
  // The options of a reset, of all its envs or, where it throws, of none.
  virtual void give_options(const ResetOrder&) {}

  // ---- waiting ----

  // Whether envs run while the caller is elsewhere.
  virtual bool runs_beside_the_caller() const { return true; }
  // Whether the host has something for the caller to do, which `attend` does. Cheap; looked at in every wait.
  virtual bool wants_attention() const { return false; }
  virtual void attend() {}
  // Whether the rest of the batch takes less than giving the interpreter lock away and back is worth.
  virtual bool is_brief() const { return pool_->is_brief(); }
  // Steps envs if it is for the caller to step them, else waits, until the batch is ready, the host wants attention, or
  // about `most` has passed.
  virtual void work(std::chrono::nanoseconds most);

  // ---- handing out ----

  // What the rows of a batch have beside their arrays, as `on_rows` takes it; no object where there is nothing. May add
  // to the faults.
  virtual nanobind::object take_notes(const Batch&, std::vector<Fault>&) { return {}; }

  // ---- the envs themselves ----

  virtual void add_stats(nanobind::dict&, double /*age_s*/) const {}

  // ---- ending ----

  // Has threads or processes end, each after the step it is in.
  void ask_to_stop();
  // Whether they have, after so many seconds at most.
  bool wait_stopped(double most);
  // Ends what has not, and frees everything but what batches hold. Ctrl-C interrupts it; another call goes on with it.
  // In a forked child nothing ends.
  void close();

 protected:
  Host(std::unique_ptr<Pool> pool, const sm_env_table* table)
      : pool_(std::move(pool)), table_(table), generation_(process_generation()) {}

  // For destructors of the classes that derive from this one: `close`, for as long as it takes.
  void close_at_last();

  // Ends at once what would not end by itself.
  virtual void kill() {}
  // How long to wait for the end after that; none: for as long as it takes.
  virtual std::optional<std::chrono::seconds> longest_wait() const { return std::nullopt; }
  // Frees everything but what batches hold.
  virtual void end() { pool_.reset(); }

 private:
  void stop(bool interruptible);

  std::unique_ptr<Pool> pool_;
  const sm_env_table* const table_;
  const std::uint32_t generation_;
};

}  // namespace stepmill
