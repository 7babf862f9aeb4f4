// N envs in flight and the batches they fill: the part that does not depend on where the envs run.
//
//   send: action table -> queue      worker: step or autoreset -> slot      recv: batch
//
// `LocalPool` steps envs in this process, `ProcessPool` in worker processes; those of a `RemotePool` are on other machines.
// A pool belongs to one caller at a time; nothing here locks against a second one. Everything is free of Python, and `recv`
// has two parts (`ready` and `work_or_wait`) so that the bindings can check for signals, and hold or release the
// interpreter lock, in between.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/action_table.h"
#include "core/memory/arena.h"
#include "core/memory/batch_layout.h"
#include "core/memory/buffer_store.h"
#include "core/memory/rows_event.h"
#include "core/fault_log.h"
#include "core/piecework.h"
#include "core/counters/pool_counters.h"

namespace stepmill {

class BatchRing;

struct PoolOptions {
  TableOptions table;
  std::int32_t batch_size = 1;
  bool as_ready = false;         // results take slots as they are ready, even in batches of all envs
  std::int32_t num_threads = 1;  // 0: only the caller steps
  std::int32_t affinity_offset = -1;
  std::uint64_t slow_ns = 0;  // after this long, an env that runs without a deadline is reported; 0: never
  Arena::Kind arena = Arena::Kind::kPrivate;
  PoolLabel label;
  // Called after a failure of an env, in the thread that steps it, before that thread steps another; may be empty.
  std::function<void(std::int32_t env)> after_fault;
};

// A finished batch. The caller owns the rows until it releases the buffer to the store.
struct Batch {
  std::shared_ptr<BufferStore> store;
  Buffer* buffer = nullptr;
  std::int32_t rows = 0;
  bool any_ended = false;
  bool all_in_order = false;  // one row per env, row i for env i
  // The columns that memory safety depends on, by row: the columns of that name or, if other processes could write into
  // them, copies in this process's own memory. Valid until the next batch is taken.
  const std::int32_t* env_id = nullptr;
  const std::uint8_t* players = nullptr;  // max_num_players per row; null if that is 1
  const std::uint8_t *terminated = nullptr, *truncated = nullptr, *ended = nullptr;
};

class Pool {
 public:
  virtual ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const EnvSpec& spec() const { return spec_; }
  const PoolOptions& options() const { return options_; }
  std::int32_t num_envs() const { return options_.table.num_envs; }
  // Whether results take slots as they are ready, rather than rows that are assigned when actions are sent.
  bool is_async() const { return as_ready_ || options_.batch_size < num_envs(); }
  // Changes what `PoolOptions::as_ready` said. Nothing may be in flight.
  void return_as_ready(bool as_ready);
  ActionTable& table() { return table_; }

  // ---- sending ----

  bool in_flight(std::int32_t env) const { return in_flight_[static_cast<std::size_t>(env)] != 0; }
  std::int32_t in_flight_count() const { return ring_in_flight_ + assigned_ + kept_; }
  // Whether a reset of some envs is on its way.
  bool gathering() const { return is_async() && assigned_ != 0; }

  // Does `piece(context, 0)`, `piece(context, 1)` and so on, beside stepping, and returns when all are done. Threads that
  // are free may help.
  virtual void do_pieces(std::uint32_t pieces, Piecework::Piece piece, void* context) {
    for (std::uint32_t i = 0; i < pieces; ++i) piece(context, i);
  }

  // Finds buffers for so many results, or throws; a `send` of as many then does not.
  void make_room(std::int32_t count, bool gather);

  // The buffer that `make_room` has found in sync mode, whose columns the caller may place elsewhere until its batch is
  // taken, if nothing is in flight and no other process writes into them.
  Buffer& empty_buffer() { return *assigned_buffer_; }

  // Queues envs whose rows in the action table are written. `gather`: their results get a batch of their own, in this
  // order. `recv_follows`: the caller calls `recv` next, and will help.
  void send(std::span<const std::int32_t> envs, bool gather, bool recv_follows);

  // Gives the pool rows that were taken from it, or from another one like it: as if these envs had been sent an action and
  // had answered at once, in this order. `rows`: one per env, in a buffer of that layout.
  void put_back(std::span<const std::int32_t> envs, bool gather, const BatchLayout& layout, const std::byte* rows);
  void add_fault(Fault fault) { faults_.add(std::move(fault)); }

  // ---- receiving ----

  // The number of rows of the next batch; 0 if nothing is in flight.
  std::int32_t expected() const;
  // Makes `ready` and the waits accept fewer rows; 0: the whole batch. For async pools. `steps_only`: these rows do not
  // include resets, for pools that return results as they are ready.
  void be_content_with(std::int32_t rows, bool steps_only = false) {
    content_with_ = rows;
    content_with_steps_ = steps_only;
  }
  virtual bool ready();
  // Ends the next batch after the rows taken so far, of which there is at least one: `expected` is then their number.
  // They may still be in the process of being written. Throws if there is no memory, and then changes nothing.
  void seal_early();
  // Whether the rest of the batch is known to take so little time that releasing the interpreter lock is not worth it.
  virtual bool is_brief() const { return false; }
  // Steps envs if there are any to step, otherwise waits, until the batch is ready or about `most` has passed.
  virtual void work_or_wait(std::chrono::nanoseconds most) = 0;
  // The ready batch, with the faults of its rows.
  Batch take_batch(std::vector<Fault>& faults);

  // ---- waiting in an event loop ----

  // What is rung for a caller that waits there. Opened while nothing is in flight; a pool of worker processes has it from
  // the start, because they get it when they attach.
  RowsEvent& rows_event() { return rows_event_; }
  // Whether rows come only if the caller steps envs: in `work_or_wait`, which then does not wait.
  virtual bool needs_caller() const { return false; }
  // From now on the event is rung as soon as a row of the next batch is there. False: one is there already.
  bool watch_rows();
  // The caller looks again, because the event was rung or for another reason.
  void look_again(bool was_rung);
  // The same now and then, in case what tells when to look was overwritten.
  virtual void doubt_counts() {}
  // While it exists, `expected`, `ready` and the waits are about the batch that it has got to. Nothing may be sent or taken.
  class LookAhead;

  // ---- states ----

  // Whether an idle env was never reset since it was built: then what its next reset is given is all there is to save.
  virtual bool is_new(std::int32_t env) const { return table_.state(env).phase == SM_FRESH; }
  // How often whoever runs an env was replaced: the seed of an env that is built again depends on it.
  std::uint32_t lives(std::int32_t env) const { return former_lives_[static_cast<std::size_t>(env)] + lives_here(env); }
  // An idle env was given another row of the action table. `lives`: also those that it had before this pool was made.
  virtual void adopt(std::int32_t env, std::optional<std::uint32_t> lives) {
    if (lives) former_lives_[static_cast<std::size_t>(env)] = *lives;
  }

  // ---- rows in another order (kept_rows.h) ----

  const std::shared_ptr<BufferStore>& store() const { return store_; }
  const std::shared_ptr<BufferStore>& gather_store() const { return gather_store_; }
  // An env whose row was taken, and is kept for later, stays in flight.
  void set_kept(std::int32_t env, bool kept) {
    in_flight_[static_cast<std::size_t>(env)] = kept;
    kept_ += kept ? 1 : -1;
  }

  // ---- copies to a device ----

  // From now on, batches are locked in memory, see page_lock.h.
  void lock_pages(const std::shared_ptr<PageLock>& lock);
  std::size_t locked() const;

  // ---- ending ----

  virtual void ask_to_stop() {}
  virtual bool stopped() const { return true; }
  virtual void wait_stopped(std::chrono::nanoseconds) {}

  // ---- measurements ----

  virtual double step_cost_ns() const = 0;
  virtual int threads_started() const { return 0; }
  std::size_t memory() const { return arena_->used(); }
  // What is counted. It outlives the pool for those who hold it.
  const std::shared_ptr<PoolCounters>& counters() const { return counters_; }
  std::size_t batches_held() const { return store_->held(); }

 protected:
  // `workers`: the threads or processes whose work is counted. The derived class calls `counters_->publish()`.
  Pool(EnvSpec spec, const PoolOptions& options, std::uint32_t ring_places, std::int32_t workers);

  // Tells the workers the buffer of batch `number`.
  virtual void open_batch(std::uint32_t number, Buffer& buffer) = 0;
  // Ends an open batch after the rows taken so far, and returns their number.
  virtual std::int32_t seal_batch(std::uint32_t number) = 0;
  // Starts envs. Their places are known: `assigned` rows, or the next slots of the open batch.
  virtual void start(std::span<const std::int32_t> envs, bool assigned, bool recv_follows) = 0;
  // A batch before its ids are read: if another process wrote it, nothing in it is trusted.
  virtual void inspect(Batch&, bool /*assigned*/) {}
  // `ready` is about another batch than before.
  virtual void turned() {}
  // Results come in another order than before.
  virtual void changed_order() {}
  virtual std::uint32_t lives_here(std::int32_t) const { return 0; }

  // The place of a row that the caller writes itself.
  struct Row {
    Buffer& buffer;
    const BatchLayout& layout;
    std::int64_t number;
  };
  // The row that is assigned to an env, or the next slot of the open batch.
  virtual Row take_row(std::int32_t env) = 0;
  // The same for pools whose workers are in this process, or write no rows themselves.
  Row take_row(std::int32_t env, BatchRing& ring) const;
  // Copies a row there, from a buffer of that layout. `finish_row` counts it.
  void copy_row(std::int32_t env, const Row& row, const BatchLayout& layout, const std::byte* rows, std::int64_t from) const;
  void finish_row(std::int32_t env, const Row& row) const;

  Buffer* awaited() const;
  // The rows that the caller waits for, in the form of `BatchHeader::want`.
  std::uint32_t wanted() const;
  // How many of these envs, which are in flight, are being reset.
  std::uint32_t resets_among(std::span<const std::int32_t> envs) const;
  Buffer* ring_buffer(std::uint32_t number) const { return ring_buffers_[number % ring_buffers_.size()]; }

  const EnvSpec spec_;
  const PoolOptions options_;
  const std::shared_ptr<Arena> arena_;
  RowsEvent rows_event_;
  ActionTable table_;
  std::shared_ptr<BufferStore> store_;         // of batch_size rows
  std::shared_ptr<BufferStore> gather_store_;  // of num_envs rows; the same one in sync mode
  FaultLog faults_;                            // added to by the thread that steps or answers for an env
  const std::shared_ptr<PoolCounters> counters_;

  // `PoolOptions::as_ready`, as of now. Changed by the caller while nothing is in flight; read by the thread that steps an
  // env, which has taken the env from the queue.
  bool as_ready_;

  // Private to the caller.
  std::vector<std::uint8_t> in_flight_;
  std::vector<Buffer*> ring_buffers_;  // by batch number modulo the ring; threads read it, see open_slots
  std::uint32_t head_ = 0;             // number of the batch that `recv` returns next
  std::uint32_t opened_ = 0;           // number of the first batch without a buffer
  std::int32_t ring_in_flight_ = 0;    // envs whose results will come through the ring
  std::int32_t sealed_rows_ = 0;       // of batch `head_`, if it was sealed early; otherwise 0
  std::int32_t content_with_ = 0;
  bool content_with_steps_ = false;
  std::int32_t resets_in_flight_ = 0;  // for pools that return results as they are ready
  std::int32_t kept_ = 0;              // envs whose rows are kept
  std::int32_t assigned_ = 0;          // rows assigned in `assigned_buffer_`
  BatchHeader* watched_ = nullptr;     // of the batch whose rows ring the event
  Buffer* assigned_buffer_ = nullptr;  // sync mode, or a gather
  bool assigned_in_order_ = true;      // so far row i was assigned to env i
  bool rows_are_ids_ = false;          // row_of_[i] is i for every env

  // Written by the caller before it starts an env, read by the thread that steps it.
  std::vector<std::int32_t> row_of_;
  std::vector<std::uint8_t> is_assigned_;
  std::vector<std::uint8_t> resetting_;  // for pools that return results as they are ready: it was sent a reset
  std::vector<std::uint32_t> former_lives_;  // see `lives`: before this pool was made

 private:
  bool take_places(std::span<const std::int32_t> envs, bool gather);
  void mend_flags(const Row& row) const;
  void assign_rows(std::span<const std::int32_t> envs);
  void open_slots(std::int32_t in_flight);
};

class Pool::LookAhead {
 public:
  explicit LookAhead(Pool& pool)
      : pool_(pool),
        head_(pool.head_),
        assigned_(pool.assigned_),
        ring_in_flight_(pool.ring_in_flight_),
        sealed_rows_(pool.sealed_rows_) {}
  ~LookAhead() {
    pool_.head_ = head_;
    pool_.assigned_ = assigned_;
    pool_.ring_in_flight_ = ring_in_flight_;
    pool_.sealed_rows_ = sealed_rows_;
    pool_.turned();
  }
  LookAhead(const LookAhead&) = delete;
  LookAhead& operator=(const LookAhead&) = delete;

  // Goes on to the batch after this one; false if all that is in flight is in those before.
  bool go_on();

 private:
  Pool& pool_;
  const std::uint32_t head_;
  const std::int32_t assigned_, ring_in_flight_, sealed_rows_;
};

}  // namespace stepmill
