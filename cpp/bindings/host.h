// Where the envs of a pool live, as the engine sees it.
//
// The engine (engine.h) checks input, waits and returns batches, in the same way for all hosts. A host knows how to
// reach its envs: what goes to them and comes from them besides arrays, what the caller does until rows are ready, and
// how they end. This is its native half. The classes of stepmill/hosts/host.py, which derive from the classes here, are
// the other half. `docs/why.md` says what a host has to offer.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bindings/python/forked.h"
#include "core/env/env_table.h"
#include "core/pool.h"
#include "core/memory/wait.h"

namespace stepmill {

// How long we wait before we check whether the interpreter has a signal for us: a signal handler runs this late at most.
inline constexpr auto kSignalInterval = std::chrono::milliseconds(50);

// Every wait calls this between two naps: runs signal handlers, which may raise, and ends this thread if the program
// ends.
void look_for_signals();

inline nanobind::list list_of(std::span<const std::int32_t> envs) {
  nanobind::list out;
  for (const std::int32_t env : envs) out.append(env);
  return out;
}

// What a reset asks for, checked. Nothing changes before the whole order has been checked.
struct ResetOrder {
  std::span<const std::int32_t> envs;
  std::vector<sm_reset_request> numbers;            // options of native envs: one per env, or one for all
  std::vector<nanobind::object> objects;            // options of Python envs, packed: one per env, or one for all
  std::vector<std::optional<std::uint64_t>> seeds;  // one per env, or none at all
  const std::uint8_t* mask = nullptr;               // which of the envs to reset; null: all

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
  // The table of native envs; null for Python envs.
  const sm_env_table* table() const { return table_; }
  // Whether this process was forked after the host was made: then everything belongs to the parent.
  bool forked() const { return generation_ != process_generation(); }

  // ---- before a call ----

  // Throws if the host is broken: then it can only be ended.
  virtual void check_whole() const {}

  // Whether sending, waiting and receiving may need the interpreter lock: else only what fails does.
  virtual bool needs_python() const { return true; }
  // Whether only this process writes rows, and each of them before its batch is ready.
  virtual bool writes_here() const { return false; }

  // ---- sending: to envs that are not in flight ----

  // Waits until the envs have finished everything that is not an action.
  virtual void settle(std::span<const std::int32_t>) {}
  // Passes on the parts of an env's next action that do not fit in arrays.
  virtual void give_objects(std::int32_t, nanobind::handle) {}
  // Passes on the options of a reset: for all its envs or, if it throws, for none.
  virtual void give_options(const ResetOrder&) {}

  // ---- waiting ----

  // Whether envs run while the caller does something else.
  virtual bool runs_beside_the_caller() const { return true; }
  // Whether the host needs something done in the calling thread; `attend` does it. Cheap: every wait checks it.
  virtual bool wants_attention() const { return false; }
  // For a caller in an event loop: takes what has come, without waiting. For hosts whose rows come only in this way.
  virtual void fetch() {}
  // Nobody wants the results of these envs any more, which come nevertheless: a host that can do so ends their steps.
  virtual void cancel(std::span<const std::int32_t>) {}
  // Whether rows come only while `work` is called: then also a caller who waits no time at all has to call it.
  virtual bool has_to_fetch() const { return false; }
  virtual void attend() {}
  // Tells the user of envs that have been running for very long, each once. Cheap: every long wait calls it.
  virtual void report_slow() {}
  // Whether the rest of the batch takes so little time that releasing the interpreter lock is not worth it.
  virtual bool is_brief() const { return pool_->is_brief(); }
  // Steps envs if the caller is the one who steps them, otherwise waits, until the batch is ready, the host wants
  // attention, or about `most` has passed.
  virtual void work(std::chrono::nanoseconds most);

  // ---- handing out ----

  // What the rows of a batch have besides their arrays, in the form that `finish_rows` takes; an invalid object if
  // there is nothing. May add to the faults.
  virtual nanobind::object take_notes(const Batch&, std::vector<Fault>&) { return {}; }

  // ---- the envs themselves ----

  // Adds what decides the future of each of the envs, which are idle, except for its row of the action table, and where
  // that ends. `by`: the way that the user asked for, or None. Throws if one of them cannot be saved. Returns a list with
  // what must live as long as the state of each, if there is any.
  virtual nanobind::object save(std::span<const std::int32_t> envs, nanobind::handle by, std::vector<std::byte>& to,
                    std::vector<std::size_t>& ends);
  // Gives each of the envs, which are idle, what was saved of another one: all of them or, if it throws, none.
  // Returns what a signal handler has raised meanwhile, to be raised once all is done; nearly always None.
  virtual nanobind::object load(std::span<const std::int32_t> envs, std::span<const std::span<const std::byte>> states);

  // Adds what is not in the words of the pool (`counters/pool_record.h`) to what `stats` tells.
  virtual void add_stats(nanobind::dict&) const {}

  // ---- ending ----

  // The Python class that derives from a host may have a `close` of its own: the engine calls that, and it calls the one
  // here. Afterwards there is no `pool()`. Methods that need one are called through the engine, which refuses them then.

  // Tells threads or processes to end, each after its present step.
  void ask_to_stop();
  // Waits at most so many seconds until they have ended; whether they have.
  bool wait_stopped(double most);
  // Ends what has not ended yet, and frees everything except what batches hold. Ctrl-C interrupts it; another call
  // continues. In a forked child it ends nothing.
  void close() { stop(true); }

 protected:
  Host(std::unique_ptr<Pool> pool, const sm_env_table* table)
      : pool_(std::move(pool)), table_(table), generation_(process_generation()) {}

  // For the destructors of derived classes: `close`, for as long as it takes.
  void close_at_last() { stop(false); }

  // Ends at once what would not end by itself.
  virtual void kill() {}
  // How long to wait for the end after `kill`; none: for as long as it takes.
  virtual std::optional<std::chrono::seconds> longest_wait() const { return std::nullopt; }
  // Frees everything except what batches hold.
  virtual void end() { pool_.reset(); }

 private:
  void stop(bool interruptible);

  std::unique_ptr<Pool> pool_;
  const sm_env_table* const table_;
  const std::uint32_t generation_;
};

}  // namespace stepmill
