// Envs stepped by worker processes, which map this pool's arena and fill its slots.
//
// Three parties: the caller (send, recv), the workers (`process_worker.h`), and a monitor thread of this
// process that watches over the workers. When a worker dies, or an env misses its deadline, the monitor
// answers in its place: every action gets exactly one row, whatever happens. Who starts processes is
// not known here: `admit` is told of one, `to_restart` says where another is needed.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/descriptor.h"
#include "core/pool.h"
#include "core/process_checks.h"
#include "core/process_layout.h"
#include "core/process_worker.h"
#include "core/slot_ring.h"
#include "core/worker_roster.h"

namespace stepmill {

struct Deadlines {
  // Nanoseconds; 0: none.
  std::uint64_t step = 0, reset = 0;
};

class ProcessPool final : public Pool {
 public:
  ProcessPool(EnvSpec spec, const PoolOptions& options, const ProcessOptions& process, const Deadlines& deadlines,
              std::vector<std::uint64_t> seeds, int obituaries);
  ~ProcessPool() override;

  // ---- workers ----

  // Everything a worker needs to find its way in the arena of `arena_descriptor`.
  ProcessPlan plan() const;
  int arena_descriptor() const { return arena_->descriptor(); }

  // A process that will serve as `worker`. The descriptors are duplicated: pidfd, the pipe that its stack
  // comes through when asked for, its outbox. It has until `start_ns` from now to announce itself.
  void admit(std::int32_t worker, std::uint32_t incarnation, int pid, int pidfd, int stack, int outbox,
             std::uint64_t start_ns);
  // Workers that should be started now, each with the incarnation it will be.
  std::vector<std::pair<std::int32_t, std::uint32_t>> to_restart();
  // No process could be started: what waits for it is answered.
  void restart_failed(std::int32_t worker, std::uint32_t incarnation, const std::string& why);
  // Whether `to_restart` has something to say. Cheap; looked at in every wait.
  bool wants_attention() const { return roster_.wants_attention(); }

  // ---- beside the arrays ----

  // What goes with the next action of an idle env. Throws where there is no memory.
  void set_mail(std::int32_t env, std::span<const std::byte> mail);
  // The rows of the batch that was just received which came with something beside their arrays: (row, env).
  std::span<const std::pair<std::int32_t, std::int32_t>> noted() const { return noted_; }
  // Has `copy` copy what came with the row of such an env, and return where the copy is. False where these are not the
  // bytes that the env's worker wrote: `spoil` the row.
  using Copy = std::function<std::span<const std::byte>(std::span<const std::byte>)>;
  bool read_note(std::int32_t env, const Copy& copy);
  // Makes the row of an env, in the batch that was just received, one of a failure, since what belongs to it is broken.
  Fault spoil(const Batch& batch, std::int32_t row);

  // ---- calls ----

  // Whether no action or call of that env is waiting or running.
  bool at_rest(std::int32_t env);
  // Waits for that, about as long as `most`.
  void wait_at_rest(std::int32_t env, std::chrono::nanoseconds most);
  // Asks an env at rest; it is at rest again when the answer is there.
  void queue_call(std::int32_t env, std::span<const std::byte> call);
  // The answer, or why there is none.
  std::optional<Fault> take_call(std::int32_t env, std::vector<std::byte>& answer);

  // ---- the pool ----

  // Throws BrokenMemory where the pool cannot go on: then all there is to do is to end it.
  bool ready() override;
  // The same, before anything is begun.
  void check_whole() const;
  void work_or_wait(std::chrono::nanoseconds most) override;
  // Workers end after the step they are in; `kill` ends what is left.
  void ask_to_stop() override;
  bool stopped() const override;
  void wait_stopped(std::chrono::nanoseconds most) override;
  void kill();

  double step_cost_ns() const override;
  // How long envs ran, all workers together.

  struct WorkerStats {
    int pid;
    bool alive;
    double busy_s;
    std::uint64_t steps;
    std::uint32_t restarts;
    std::size_t outbox_bytes;
  };
  std::vector<WorkerStats> worker_stats() const;
  // The step times below which the given parts of an env's steps stayed, in seconds; 0 without any.
  std::vector<double> step_percentiles(std::int32_t env, std::span<const double> parts) const;

 private:
  // Where the row of an env in flight goes.
  struct Seat {
    Buffer* buffer = nullptr;  // null: a slot of the open batch
    std::int32_t row = -1;
    std::uint32_t epoch = 0;
    bool is_reset = false;  // or stands for one; known where the env has failed before
  };
  // What becomes of an Order, and of Asked.
  struct Errand {
    std::uint64_t buffer;
    std::int32_t row;
    Order::Kind kind;
    std::uint64_t counts_as_reset;  // Order::is_reset
    std::uint64_t at;
    bool is_reset;
  };
  struct Mailbox {
    std::size_t offset = 0, capacity = 0, bytes = 0;  // bytes: for the next order
  };

  void open_batch(std::uint32_t number, Buffer& buffer) override;
  std::int32_t seal_batch(std::uint32_t number) override { return static_cast<std::int32_t>(ring_.seal(number)); }
  void start(std::span<const std::int32_t> envs, bool assigned, bool recv_follows) override;
  void inspect(Batch& batch, bool assigned) override;

  using Crew = WorkerRoster::Crew;
  using Life = WorkerRoster::Life;
  std::int32_t worker_of(std::int32_t env) const { return roster_.worker_of(env); }
  Asked& asked(std::int32_t env) { return asked_[static_cast<std::size_t>(env)]; }
  const Asked& asked(std::int32_t env) const { return asked_[static_cast<std::size_t>(env)]; }
  void ring_bell(std::int32_t worker);
  void put_mail(Mailbox& box, std::span<const std::byte> mail);
  // These are called with the lock held.
  using Lock = WorkerRoster::Lock;
  void queue(std::int32_t env, Mailbox& box, const Errand& errand);
  bool is_lost(std::int32_t env) const;
  bool will_reset(std::int32_t env) const;
  bool is_over(std::int32_t env, bool counted);
  bool row_is_over(std::int32_t env, bool counted);
  bool rows_are_over(bool counted);
  std::optional<std::uint32_t> slots_over(std::uint32_t want, bool counted);
  bool all_in_ring_are_over();
  bool is_awaited(std::int32_t env) const;
  bool has_row(const ProcessChecks::Slot& slot) const;
  void inspect_row(std::int32_t env, const Batch& batch, std::int32_t row);
  void mend_hint();
  void look_around();
  std::span<const std::byte> read_outbox(std::int32_t env, const ProcessChecks::Note& note);
  Fault found_broken(std::int32_t env, const char* what);
  Fault spoil_row(std::int32_t env, Buffer& buffer, std::int32_t row, const char* what);
  void lose_ring();
  bool restore_ring();
  [[noreturn]] void give_in(const std::string& why);

  // The monitor: process_monitor.cpp, and what it does: process_answers.cpp.
  void watch();
  void end_broken();
  void life_ended(Lock& lock, std::int32_t worker, std::uint32_t number);
  std::uint64_t check_deadlines(Lock& lock);
  std::uint64_t check_start(Lock& lock, std::int32_t worker);
  std::uint64_t check_env(Lock& lock, std::int32_t env);
  void miss_step(Lock& lock, std::int32_t env, EnvWord seen, bool resets, std::uint64_t limit);
  std::uint64_t check_standstill(Lock& lock, std::int32_t worker, std::uint64_t limit);
  std::string read_stack(Lock& lock, const Life& life);
  // Gives a worker's life up: its envs are answered as far as nobody may be writing their rows.
  void retire(std::int32_t worker, const Fault& reason, bool start_again = true);
  // After its end is certain: the rest, and the life itself.
  void bury(std::int32_t worker, std::uint32_t number);
  void give_up(std::int32_t env, std::uint32_t incarnation, const Fault& reason);
  void save_notes(std::int32_t worker, std::uint32_t incarnation);
  void answer(std::int32_t env, EnvWord from, const Fault& reason, std::optional<SlotRing::Slot> slot);
  void answer_row(std::int32_t env, EnvWord from, const Fault& reason, std::optional<SlotRing::Slot> slot);
  void fill_row(std::int32_t env, const Columns& columns, std::int64_t row);
  bool keep_end(std::int32_t env, EnvWord from, Buffer& buffer, std::int64_t row);
  Fault end_by_fault(std::int32_t env, Fault fault);
  void take_back(std::int32_t env, std::uint32_t epoch);
  void doubt(std::int32_t env);
  void reseed(std::int32_t env);
  void tell_to_stop(std::int32_t worker);
  std::optional<SlotRing::Slot> find_slot(std::int32_t env, std::uint32_t epoch) const;
  void wake_monitor();

  const ProcessOptions process_;
  const Deadlines deadlines_;
  ProcessTables tables_;
  const std::size_t tables_offset_;
  SlotRing ring_;
  const ProcessChecks checks_;
  std::vector<std::uint64_t> seeds_;  // the last that each env was given; with the lock held

  const bool has_spare_core_;

  // Private to the caller.
  std::optional<Clock::time_point> wait_began_;  // for the batch that is awaited
  std::chrono::nanoseconds usual_wait_{0};
  bool was_early_ = false;  // it has been awake for this batch before its time
  bool words_due_ = false;  // it has waited for long: the counts may be wrong
  Clock::time_point looked_at_;
  std::uint32_t found_over_ = 0;  // so many rows of the batch that is awaited, as `wanted` has them; 0: not known
  std::vector<std::int32_t> assigned_envs_;  // by row
  std::vector<std::int32_t> slot_envs_;      // of the batch that is awaited, by row, as it was found ready
  std::int32_t slot_count_ = 0;              // so many of these
  std::vector<std::uint32_t> slot_looks_;    // by env: the look at the slots that found it last
  std::uint32_t looks_ = 0;
  // Of the batch that was received last, see Batch.
  std::vector<std::int32_t> row_env_, row_players_;
  std::vector<std::uint8_t> row_terminated_, row_truncated_, row_ended_;
  std::vector<ProcessChecks::Note> row_notes_;  // by env
  std::vector<std::pair<std::int32_t, std::int32_t>> noted_;
  std::vector<std::uint8_t> to_ring_;        // scratch of `start`: the workers it queued for
  std::vector<Mailbox> mail_, call_mail_;

  // Everything below, and the word of an env that no worker has at the moment, belongs to whoever holds
  // this: the caller or the monitor.
  mutable std::mutex mutex_;
  std::vector<Asked> asked_;
  WorkerRoster roster_;
  std::vector<std::int32_t> failures_;  // by env, in a row, with no good step between
  std::uint32_t first_open_ = 0, end_open_ = 0;  // the batches of the ring that are open
  // Whose its slots are is not known: it is laid out anew once no worker of before is left. Set by either thread and
  // cleared by the caller, with the lock held. The caller also reads it without: it then only says whether to take the
  // lock and look. Nothing wakes the caller when it is set: a wait that has begun goes on until `most` has passed.
  std::atomic<bool> ring_is_lost_{false};
  Fault ring_loss_;
  std::uint64_t ring_lost_at_ = 0;
  std::string broken_;  // why the pool cannot go on
  std::vector<std::uint8_t> flying_;        // an action's result was not received yet
  std::vector<std::uint8_t> calling_;       // the env's word is a call's
  std::vector<std::uint8_t> answered_here_;  // the row in flight is the pool's, not a worker's
  std::vector<Seat> seats_;
  std::vector<std::optional<Fault>> call_faults_;
  // What came with rows and calls from workers that are gone, or were asked something else since.
  struct Saved {
    std::vector<std::byte> bytes;
    bool good = true;  // these are the bytes that were written
  };
  std::vector<std::optional<Saved>> saved_notes_, saved_calls_;
  bool stopping_ = false, quit_ = false;

  const Descriptor event_;  // wakes the monitor; by anybody, with the lock or without
  std::condition_variable ended_;
  std::thread monitor_;
};

}  // namespace stepmill
