// Envs stepped by worker processes, which map this pool's arena and fill its slots.
//
// There are three parties: the caller (send, recv), the workers (`process_worker.h`), and a monitor thread of this
// process that watches the workers (`process_monitor.h`). When a worker dies, or an env misses its deadline, the
// monitor answers in its place, from what caller and monitor keep about every env (`process_books.h`): every action
// gets exactly one row, whatever happens. Python starts the processes: `admit` announces one, `to_restart` says which
// workers need one.
//
// This class is the caller's side: workers, sending and questions to envs in process_pool.cpp, receiving in
// process_receive.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/process/mailbox.h"
#include "core/pool.h"
#include "core/process/process_books.h"
#include "core/process/process_checks.h"
#include "core/process/process_layout.h"
#include "core/process/process_monitor.h"
#include "core/process/process_worker.h"
#include "core/received_rows.h"
#include "core/process/slot_ring.h"
#include "core/process/wait_pace.h"
#include "core/process/worker_bells.h"

namespace stepmill {

class ProcessPool final : public Pool {
 public:
  // `first_envs` has the first env of each worker: its envs are those up to the next one's first.
  ProcessPool(EnvSpec spec, const PoolOptions& options, const ProcessOptions& process, const Deadlines& deadlines,
              std::span<const std::int32_t> first_envs, std::vector<std::uint64_t> seeds, int obituaries);
  ~ProcessPool() override;

  // ---- workers ----

  // Everything a worker needs to find its data in the arena of `arena_descriptor`.
  ProcessPlan plan() const;
  int arena_descriptor() const { return arena_->descriptor(); }
  // Of a pool whose workers have event loops: what wakes that of a worker, whichever process it is.
  int bell_descriptor(std::int32_t worker) const { return bells_.of(worker); }
  // What they ring for a caller that waits in an event loop.
  int rows_event_descriptor() const { return rows_event_.descriptor(); }

  // Announces a process that will serve as `worker`. The descriptors are duplicated: the pidfd, the pipe that it writes
  // its Python stack to when asked, its outbox. The process has `start_ns` from now to announce itself.
  void admit(std::int32_t worker, std::uint32_t incarnation, int pid, int pidfd, int stack, int outbox,
             std::uint64_t start_ns);
  // Workers that should be started now, each with the incarnation it will be.
  std::vector<std::pair<std::int32_t, std::uint32_t>> to_restart();
  // No process could be started: the pool answers what waits for it.
  void restart_failed(std::int32_t worker, std::uint32_t incarnation, const std::string& why);

  // A successor takes the place of a worker's process, dead or alive, and its envs go on there, without a failure: they
  // must be idle. Which incarnation it will be:
  std::uint32_t next_incarnation(std::int32_t worker) const;
  // Announces one, as `admit` does; it is ready to serve.
  void name_successor(std::int32_t worker, std::uint32_t incarnation, int pid, int pidfd, int stack, int outbox);
  // Either they take their places, all of them, which cannot fail, or none does.
  bool install_successors();
  void drop_successors();

  // Texts for the user: which envs take very long.
  std::vector<std::string> take_news();
  // Whether one of these two would return anything. Cheap: every wait checks it.
  bool wants_attention() const { return books_.roster.wants_attention() || books_.has_news(); }

  // ---- besides the arrays ----

  // What goes with the next action of an idle env. Throws if there is no memory.
  void set_mail(std::int32_t env, std::span<const std::byte> mail);
  // The rows of the last received batch that have a note: (row, env).
  std::span<const std::pair<std::int32_t, std::int32_t>> noted() const { return books_.inbox.noted(); }
  // Calls `copy` to copy the note of such an env's row and to return where the copy is. False if these are not the
  // bytes that the env's worker wrote: then `spoil` the row.
  bool read_note(std::int32_t env, const Inbox::Copy& copy);
  // Turns the row of an env in the last received batch into a failure, because its note is broken.
  Fault spoil(const Batch& batch, std::int32_t row);

  // ---- calls ----

  // Whether no action or call of this env is waiting or running.
  bool at_rest(std::int32_t env);
  // Waits for that, about as long as `most`.
  void wait_at_rest(std::int32_t env, std::chrono::nanoseconds most);
  // Asks an env at rest; it is at rest again when the answer is ready.
  void queue_call(std::int32_t env, std::span<const std::byte> call);
  // The answer, or why there is none.
  std::optional<Fault> take_call(std::int32_t env, std::vector<std::byte>& answer);

  // Ends what these envs were asked, if they are at it or about to be, and can be interrupted: their rows come soon.
  void cancel(std::span<const std::int32_t> envs);

  // ---- the pool ----

  // Throws BrokenMemory if the pool is broken: then it can only be ended.
  bool ready() override;
  // The same, before anything is started.
  void check_whole() const { books_.check_whole(); }
  void work_or_wait(std::chrono::nanoseconds most) override;
  void doubt_counts() override;
  // Workers end after their present step; `kill` ends those that are left.
  void ask_to_stop() override;
  bool stopped() const override;
  void wait_stopped(std::chrono::nanoseconds most) override;
  void kill();

  // ---- measurements ----

  double step_cost_ns() const override;
  bool is_new(std::int32_t env) const override;
  void adopt(std::int32_t env, std::optional<std::uint32_t> lives) override;
  // What the outbox of each worker takes.
  std::vector<std::size_t> outbox_bytes() const;

 private:
  using Lock = ProcessBooks::Lock;
  using Seat = ProcessBooks::Seat;
  using Call = ProcessBooks::Call;
  // What becomes of an Order, and of Asked.
  struct Errand {
    std::uint64_t buffer;
    std::int32_t row;
    Order::Kind kind;
    std::uint64_t counts_as_reset;  // Order::is_reset
    std::uint64_t at;
    bool is_reset;
  };

  struct Successor {
    std::int32_t worker;
    std::uint32_t incarnation;
    WorkerRoster::Life life;
  };

  void show_arena();
  static WorkerRoster::Life make_life(int pid, int pidfd, int stack, int outbox);
  std::uint32_t lives_here(std::int32_t env) const override;

  // ---- workers ----

  std::int32_t worker_of(std::int32_t env) const { return books_.roster.worker_of(env); }
  void ring_bell(std::int32_t worker);
  void tell_to_stop(std::int32_t worker);  // with the lock held

  // ---- sending ----

  void open_batch(std::uint32_t number, Buffer& buffer) override;
  std::int32_t seal_batch(std::uint32_t number) override { return static_cast<std::int32_t>(ring_.seal(number)); }
  void start(std::span<const std::int32_t> envs, bool assigned, bool recv_follows) override;
  // With the lock held.
  void queue(std::int32_t env, Mailbox& box, const Errand& errand);
  bool will_reset(std::int32_t env) const;

  // ---- receiving ----

  void look_around();
  void turned() override { found_over_ = 0; }
  Row take_row(std::int32_t env) override;
  void inspect(Batch& batch, bool assigned) override;
  // With the lock held.
  void inspect_row(std::int32_t env, const Batch& batch, std::int32_t row);
  bool is_over(std::int32_t env, bool counted);
  bool row_is_over(std::int32_t env, bool counted);
  bool rows_are_over(bool counted);
  bool all_in_ring_are_over();
  std::optional<std::uint32_t> slots_over(std::uint32_t want, bool counted);
  bool has_row(const ProcessChecks::Slot& slot) const;

  const ProcessOptions process_;
  const bool watches_resets_;  // resets have another deadline than steps
  ProcessTables tables_;
  const std::size_t tables_offset_;
  const WorkerBells bells_;
  SlotRing ring_;
  const ProcessChecks checks_;

  // Private to the caller.
  WaitPace pace_;
  bool words_due_ = false;        // the caller has waited for long: the counts may be wrong
  std::uint32_t found_over_ = 0;  // finished rows of the next batch, in the form of `wanted`; 0: not known
  std::vector<std::int32_t> assigned_envs_;  // by row
  std::vector<std::int32_t> slot_envs_;      // of the next batch, by row, as of when it was found ready
  std::int32_t slot_count_ = 0;              // the number of these
  std::vector<std::uint32_t> slot_looks_;    // by env: the look at the slots that found it last
  std::uint32_t looks_ = 0;
  ReceivedRows received_;
  std::vector<std::uint8_t> to_ring_;  // scratch of `start`: the workers it queued for
  std::vector<Mailbox> mail_;          // by env, for its next action
  std::vector<Successor> successors_;

  // Shared with the monitor, under a lock.
  ProcessBooks books_;
  ProcessMonitor monitor_;
};

// Called once per action and call. Hands the env to its worker, or to the life to come, after writing everything that
// the worker reads. It writes field by field: building an order first and then copying it costs more than all the rest.
[[gnu::always_inline]] inline void ProcessPool::queue(std::int32_t env, Mailbox& box, const Errand& errand) {
  Asked& its = books_.asked(env);
  its.epoch += 1;
  its.incarnation = books_.roster.call_for(env);
  its.at = errand.at;
  its.is_call = errand.kind == Order::kCall;
  its.is_reset = errand.is_reset;
  its.given_up = false;
  const std::uint64_t mail_seal = box.seal(*arena_, env, its.epoch);
  Order& order = tables_.order(env);
  order.buffer = errand.buffer;
  order.row = errand.row;
  order.kind = errand.kind;
  order.is_reset = errand.counts_as_reset;
  order.mail = box.offset();
  order.mail_bytes = box.bytes();
  order.mail_seal = mail_seal;
  order.seal = Order::seal_for(errand.buffer, errand.row, errand.kind, errand.counts_as_reset, box.offset(),
                               box.bytes(), mail_seal, env, its.epoch);
  box.clear();
  // The old word does not matter: the env is idle.
  tables_.word(env).store(EnvWord{its.epoch, its.incarnation, Stage::kQueued}.pack(), std::memory_order_seq_cst);
}

}  // namespace stepmill
