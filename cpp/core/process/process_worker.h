// The worker's side: find a queued env, step it, write its row into its slot, commit.
//
// Free of Python. The program that drives it (a Python process, a C++ test) calls, for each action: `next`, `advance`
// (or its own code, for a call), `publish`. If the envs wait for something, it has an event loop, does not `wait`, and
// may take the next env before it has published the last one: between `advance` and `publish` it does nothing else.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/action_table.h"
#include "core/memory/arena.h"
#include "core/process/fork_mark.h"
#include "core/process/outbox.h"
#include "core/process/process_layout.h"
#include "core/process/slot_ring.h"
#include "core/env_set.h"
#include "core/memory/wait.h"

namespace stepmill {

// Enough to find everything in a pool's arena.
struct ProcessPlan {
  TableOptions table;
  std::int32_t batch_size = 1;
  ProcessOptions process;
  std::uint64_t arena_bytes = 0, table_offset = 0, process_offset = 0;
};

// Which worker a process is, and which envs it has.
struct WorkerPost {
  std::int32_t worker = 0;
  std::uint32_t incarnation = 1;
  std::int32_t first_env = 0, env_count = 1;
};

class ProcessWorker {
 public:
  // `rows_event`: what wakes a caller in an event loop, see RowsEvent; -1: there is none.
  ProcessWorker(int arena, int outbox, int rows_event, const EnvSpec& spec, const ProcessPlan& plan,
                const WorkerPost& post);

  std::int32_t first_env() const { return first_; }
  std::int32_t env_count() const { return count_; }

  // Tells the pool that this worker takes actions from now on.
  void announce() { block_.ready.store(incarnation_, std::memory_order_release); }

  bool told_to_stop() const { return block_.stop.load(std::memory_order_acquire) == incarnation_; }

  // The queued env that has used the least time so far, now RUNNING; -1 if none is queued, or as many run as may. Throws
  // if its order was overwritten.
  std::int32_t next();
  // Sleeps until there may be something to do.
  void wait();

  // ---- instead of `wait`, for a program with an event loop, which a descriptor wakes ----

  // It is awake: the caller need not ring. Says that it is alive.
  void rise();
  // From now on the descriptor is written if there is something to do. False: there is something already.
  bool doze();
  // An env that had its turn with an action that the pool no longer wants, and may still be at it; -1: none.
  std::int32_t next_cancelled();
  bool is_cancelled(std::int32_t env) const {
    const std::uint32_t epoch = tables_.cancelled(env).load(std::memory_order_acquire);
    return epoch != 0 && epoch == turn(env).word.epoch;
  }
  bool is_full() const { return running_ == most_running_; }
  // The env whose code runs from now on; -1: none. And for how long it ran, between two waits. A loop that goes from one
  // env to the next is alive, however many there are.
  void show_running(std::int32_t env) {
    block_.runs.store(env + 1, std::memory_order_relaxed);
    say_alive();
  }
  void add_work(std::int32_t env, std::uint64_t ns) {
    turn(env).used_ns += ns;
    block_.busy_ns.fetch_add(ns, std::memory_order_relaxed);
  }

  // What the RUNNING env is asked.
  bool is_call(std::int32_t env) const { return turn(env).order.kind == Order::kCall; }
  bool is_reset(std::int32_t env) const { return table_.state(env).command == SM_RESET; }
  std::span<const std::byte> mail(std::int32_t env) const;  // throws if it was overwritten

  // Ends a process that an env's code has forked, and that returned from there as if it were the worker: otherwise two
  // workers would serve the same envs. It touches no shared memory and flushes no stream. To be called when an env's
  // code has returned; `publish`, `publish_call` and `reset_after_end` do so.
  void leave_if_forked() const;

  // Steps the env: afterwards the row is in this process's own memory.
  void advance(EnvSet& envs, std::int32_t env);
  // What went wrong in `advance`; empty if nothing did.
  const std::string& fault() const { return fault_; }
  std::uint32_t epoch(std::int32_t env) const { return turn(env).word.epoch; }
  // Inside `advance`, in `same_step`: the step was good and ended the episode, and now its reset runs.
  void reset_after_end(std::int32_t env);

  // Copies the row into its slot, with `note`. False if the pool has given up on the env: then nothing was written.
  bool publish(std::int32_t env, std::span<const std::byte> note);
  // Answers a call.
  bool publish_call(std::int32_t env, std::span<const std::byte> answer);

 private:
  void say_alive() {
    block_.said_alive.store(block_.asked_alive.load(std::memory_order_acquire), std::memory_order_release);
  }

  struct Turn {
    std::uint64_t used_ns = 0;  // by this env in total
    EnvWord word;               // RUNNING
    Order order;                // a copy
    Outbox::Block note, call;
  };

  bool has_loop() const { return plan_.process.has_loops(); }
  Turn& turn(std::int32_t env) { return turns_[static_cast<std::size_t>(env - first_)]; }
  const Turn& turn(std::int32_t env) const { return turns_[static_cast<std::size_t>(env - first_)]; }
  void find_queued();
  void sleep();
  void end_turn(std::int32_t env);
  bool enter_writing(std::int32_t env);

  const ForkMark mark_;
  const std::shared_ptr<Arena> arena_;
  Outbox outbox_;
  const int rows_event_;
  const EnvSpec spec_;
  const ProcessPlan plan_;
  ActionTable table_;
  ProcessTables tables_;
  SlotRing ring_;
  const std::int32_t worker_, first_, count_;
  const std::uint32_t incarnation_;
  const std::int32_t most_running_;
  WorkerBlock& block_;
  const BatchLayout slot_layout_, gather_layout_, row_layout_;

  // The stepper's own copies: what it changes while an env runs is published only with the row.
  std::vector<sm_env_state> state_;
  std::vector<sm_reset_request> reset_;
  std::vector<std::byte> last_;  // last good observations
  std::vector<void*> last_leaves_;
  sm_shared shared_{};
  std::vector<std::byte> row_;  // one row, in the layout of a batch of one
  std::byte* row_at_ = nullptr;
  Columns columns_;
  bool ended_ = false;
  std::string fault_;
  std::int32_t fault_phase_ = -1;

  std::vector<Turn> turns_;
  std::vector<std::int32_t> queued_;  // found, least used first from the end
  std::uint32_t heard_ = 0;           // the bell when they were found
  std::uint64_t turn_ended_at_ = 0;   // of the last env that had its turn since then; 0: none had
  std::int32_t running_ = 0;          // envs
  std::uint32_t cancels_seen_ = 0;
  std::vector<std::int32_t> cancelled_;  // found
  AwakeWait awake_wait_;
};

}  // namespace stepmill
