// What a process pool keeps about every env in its own memory (what it was asked, where its row goes, what came with
// it), and what it does with these books in place of a worker that is gone: every action gets its row.
//
// Two threads use them, the caller and the monitor. Both hold `mutex` for every call, unless a comment says otherwise.
// The thread that holds it also owns the words of envs that no worker has at the moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/action_table.h"
#include "core/memory/arena.h"
#include "core/memory/batch_layout.h"
#include "core/memory/buffer_store.h"
#include "core/process/descriptor.h"
#include "core/fault_log.h"
#include "core/process/inbox.h"
#include "core/process/mailbox.h"
#include "core/pool.h"
#include "core/process/process_checks.h"
#include "core/process/process_layout.h"
#include "core/process/slot_ring.h"
#include "core/process/worker_roster.h"

namespace stepmill {

class ProcessBooks {
 public:
  // The parts of the pool that the books are about. They outlive the books.
  struct Parts {
    const EnvSpec& spec;
    const PoolOptions& options;
    const Arena& arena;
    const BatchLayout &ring_layout, &assigned_layout;  // of batches that fill slot by slot, and with assigned rows
    const std::vector<Buffer*>& ring_buffers;          // by batch number modulo their count
    const std::vector<std::uint8_t>& resetting;        // by env
    const std::vector<std::uint32_t>& former_lives;    // by env, see `Pool::lives`
    ActionTable& table;
    FaultLog& faults;
    const ProcessTables& tables;
    SlotRing& ring;
    const ProcessChecks& checks;
    const RowsEvent& rows_event;
  };
  ProcessBooks(const Parts& parts, std::span<const std::int32_t> first_envs, std::vector<std::uint64_t> seeds,
               int obituaries, std::span<WorkerRecord> shown);

  using Lock = WorkerRoster::Lock;
  mutable std::mutex mutex;

  // ---- what is known ----

  // Where the row of an env's last action goes, and what happened to it.
  struct Seat {
    Buffer* buffer = nullptr;  // null: a slot of the open batch
    std::int32_t row = -1;
    std::uint32_t epoch = 0;
    bool is_reset = false;       // or counts as one; known if the env has failed before
    bool in_flight = false;      // the row has not been received yet
    bool answered_here = false;  // the pool wrote the row, not a worker
  };
  // A question to an env, until its answer is taken.
  struct Call {
    bool is_open = false;
    std::optional<Fault> fault;  // why there is no answer
    Mailbox mail;
  };

  Asked& asked(std::int32_t env) { return asked_[static_cast<std::size_t>(env)]; }
  const Asked& asked(std::int32_t env) const { return asked_[static_cast<std::size_t>(env)]; }
  Seat& seat(std::int32_t env) { return seats_[static_cast<std::size_t>(env)]; }
  const Seat& seat(std::int32_t env) const { return seats_[static_cast<std::size_t>(env)]; }
  Call& call(std::int32_t env) { return calls_[static_cast<std::size_t>(env)]; }
  // Consecutive failures, without a good step between them.
  std::int32_t& failures(std::int32_t env) { return failures_[static_cast<std::size_t>(env)]; }
  // The last seed that the env was given.
  std::uint64_t& seed(std::int32_t env) { return seeds_[static_cast<std::size_t>(env)]; }
  // How often the env's worker was replaced: the first life has number 1.
  std::uint32_t lives_here(std::int32_t env) const { return roster.crew_of(env).next - 2; }
  // Whether the caller waits for what the env was last asked.
  bool is_awaited(std::int32_t env) {
    return asked(env).is_call ? call(env).is_open : seat(env).in_flight;
  }
  // Whether the env is lost: the life of its worker that built it is gone. What the pool answered instead has no life,
  // so the loss is reported only once.
  bool is_lost(std::int32_t env) {
    return asked(env).incarnation != 0 && asked(env).incarnation != roster.crew_of(env).life.number;
  }

  WorkerRoster roster;
  Inbox inbox;
  bool stopping = false;
  // The open batches of the ring. Written by the caller, which may read them without the lock.
  std::uint32_t first_open = 0, end_open = 0;

  // ---- answering for a worker ----

  // Gives up a worker's life: answers for those of its envs whose rows it cannot be writing.
  void retire(std::int32_t worker, const Fault& reason, bool start_again = true);
  // After its end is certain: answers for the rest, and removes the life.
  void bury(std::int32_t worker, std::uint32_t number);
  // The envs of a worker, which are idle, live in its present life, whatever became of the one before.
  void entrust(std::int32_t worker);
  // Saves the notes and answers of that life that have not been received yet, before its outbox goes.
  void save_notes(std::int32_t worker, std::uint32_t incarnation);

  // Writes the env's row, or its answer to a call. `from` is the word as it was; we own it now.
  void answer(std::int32_t env, EnvWord from, const Fault& reason, std::optional<SlotRing::Slot> slot = std::nullopt);
  void answer_row(std::int32_t env, EnvWord from, const Fault& reason,
                  std::optional<SlotRing::Slot> slot = std::nullopt);
  void fail_call(std::int32_t env, Fault reason);
  // An env that is built again gets a new seed, unless a seed waits for its next reset.
  void reseed(std::int32_t env);

  // ---- memory that an env has overwritten ----

  // Called if the memory of an env, or of its notes, was overwritten: replaces the env's worker. We do not know which
  // env wrote there.
  Fault found_broken(std::int32_t env, const char* what);
  // Called for a row that is there but cannot be trusted.
  Fault spoil_row(std::int32_t env, Buffer& buffer, std::int32_t row, const char* what);
  // Claims start from the hint, and from a wrong one they would search forever.
  void mend_hint();

  // Called if what all envs share was overwritten: nothing more can be said about any row, so all workers end, and the
  // caller, which is woken, gets an error from now on.
  void break_down(const std::string& what);
  // Both without the lock, too.
  bool is_broken() const { return is_broken_.load(std::memory_order_acquire); }
  void check_whole() const {
    if (is_broken()) throw BrokenMemory(broken_);
  }

  // ---- for the user ----

  // Called by the monitor: a text that the caller shows.
  void add_news(std::string text) {
    news_.push_back(std::move(text));
    has_news_.store(true, std::memory_order_release);
    pool_.rows_event.ring();
  }
  // Called by the caller, which asks without the lock whether there is any.
  bool has_news() const { return has_news_.load(std::memory_order_relaxed); }
  std::vector<std::string> take_news() {
    has_news_.store(false, std::memory_order_relaxed);
    return std::exchange(news_, {});
  }

  // ---- the monitor ----

  // Called by any thread, with or without the lock.
  void wake_monitor();
  int monitor_event() const { return event_.get(); }

 private:
  using Crew = WorkerRoster::Crew;

  std::int32_t num_envs() const { return pool_.options.table.num_envs; }
  Buffer* ring_buffer(std::uint32_t number) const {
    return pool_.ring_buffers[number % pool_.ring_buffers.size()];
  }
  void give_up(std::int32_t env, std::uint32_t incarnation, const Fault& reason);
  void doubt_row(std::int32_t env);
  std::optional<SlotRing::Slot> find_slot(std::int32_t env, std::uint32_t epoch) const;
  bool keep_end(std::int32_t env, EnvWord from, Buffer& buffer, std::int64_t row);
  void fill_row(std::int32_t env, const Columns& columns, std::int64_t row);
  Fault end_by_fault(std::int32_t env, Fault fault);
  void take_back(std::int32_t env, std::uint32_t epoch);

  const Parts pool_;
  // By env.
  std::vector<Asked> asked_;  // the roster and the inbox read it too
  std::vector<Seat> seats_;
  std::vector<Call> calls_;
  std::vector<std::int32_t> failures_;
  std::vector<std::uint64_t> seeds_;
  std::vector<std::string> news_;
  std::atomic<bool> has_news_{false};
  std::string broken_;  // why the pool cannot go on; written once
  std::atomic<bool> is_broken_{false};
  const Descriptor event_;  // wakes the monitor
};

}  // namespace stepmill
