// N envs in flight and the batches they fill: what is the same wherever the envs run.
//
//   send: action table -> queue      worker: step or autoreset -> slot      recv: batch
//
// `LocalPool` steps envs in this process, `ProcessPool` has worker processes do it. A pool belongs to
// one caller at a time; nothing here locks against a second one. Everything is free of Python, and
// `recv` comes in two parts (`ready` and `work_or_wait`) so that the bindings can look for signals,
// and hold or free the interpreter lock, in between.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "core/action_table.h"
#include "core/arena.h"
#include "core/batch_layout.h"
#include "core/buffer_store.h"
#include "core/fault_log.h"
#include "core/piecework.h"

namespace stepmill {

struct PoolOptions {
  TableOptions table;
  std::int32_t batch_size = 1;
  bool as_ready = false;         // results take slots as they are ready, also in batches of all envs
  std::int32_t num_threads = 1;  // 0: only the caller steps
  std::int32_t affinity_offset = -1;
  Arena::Kind arena = Arena::Kind::kPrivate;
};

// A finished batch. The rows are the caller's until it releases the buffer to the store.
struct Batch {
  std::shared_ptr<BufferStore> store;
  Buffer* buffer = nullptr;
  std::int32_t rows = 0;
  bool any_ended = false;
  bool all_in_order = false;  // a row for every env, row i for env i
  // What decides about memory, by row: the columns of that name or, where other processes could write into these, copies
  // of them in memory of this process. Good until the next batch is taken.
  const std::int32_t* env_id = nullptr;
  const std::int32_t* players = nullptr;  // null where max_num_players is 1
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
  // Whether results take slots as they are ready, rather than rows that are set when actions are sent.
  bool is_async() const { return options_.as_ready || options_.batch_size < num_envs(); }
  ActionTable& table() { return table_; }

  // ---- sending ----

  bool in_flight(std::int32_t env) const { return in_flight_[static_cast<std::size_t>(env)] != 0; }
  std::int32_t in_flight_count() const { return ring_in_flight_ + assigned_; }
  // Whether a reset of chosen envs is on its way.
  bool gathering() const { return is_async() && assigned_ != 0; }

  // Does `piece(context, 0)`, `piece(context, 1)` and so on, beside stepping, and returns when all are done. Threads that
  // are free may help.
  virtual void do_pieces(std::uint32_t pieces, Piecework::Piece piece, void* context) {
    for (std::uint32_t i = 0; i < pieces; ++i) piece(context, i);
  }

  // Finds buffers for so many results, or throws; a `send` of as many then does not.
  void make_room(std::int32_t count, bool gather);

  // Queues envs whose rows in the action table are written. `gather` gives their results a batch of
  // their own, in this order. `recv_follows`: the caller goes on to `recv` at once, and will help.
  void send(std::span<const std::int32_t> envs, bool gather, bool recv_follows);

  // ---- receiving ----

  // Rows the next batch will have: 0 when nothing is in flight.
  std::int32_t expected() const;
  // Makes `ready` and the waits content with fewer rows; 0: the whole batch. For async pools. `steps_only`: resets are
  // not among these rows, for pools whose results come as they are ready.
  void be_content_with(std::int32_t rows, bool steps_only = false) {
    content_with_ = rows;
    content_with_steps_ = steps_only;
  }
  virtual bool ready();
  // Ends the batch that is awaited after the rows taken so far, one at least: `expected` is how many these are. They
  // may still be being written. Throws where there is no memory, and then changes nothing.
  void seal_early();
  // Whether the rest of the batch is known to take less than giving the interpreter lock away and back
  // is worth.
  virtual bool is_brief() const { return false; }
  // Steps envs if there are any to step, else waits, until the batch is ready or about `most` passed.
  virtual void work_or_wait(std::chrono::nanoseconds most) = 0;
  // The ready batch, with the faults of its rows.
  Batch take_batch(std::vector<Fault>& faults);

  // ---- ending ----

  virtual void ask_to_stop() {}
  virtual bool stopped() const { return true; }
  virtual void wait_stopped(std::chrono::nanoseconds) {}

  // ---- measurements ----

  virtual double step_cost_ns() const = 0;
  virtual int threads_started() const { return 0; }
  std::size_t memory() const { return arena_->used(); }
  std::size_t batches_held() const { return store_->held(); }

 protected:
  Pool(EnvSpec spec, const PoolOptions& options, std::uint32_t ring_places);

  // Names the buffer of batch `number` to the workers.
  virtual void open_batch(std::uint32_t number, Buffer& buffer) = 0;
  // Ends an open batch after the rows taken so far, and returns how many these are.
  virtual std::int32_t seal_batch(std::uint32_t number) = 0;
  // Gets envs going, whose places are set: `assigned` rows, or the next slots of the open batch.
  virtual void start(std::span<const std::int32_t> envs, bool assigned, bool recv_follows) = 0;
  // A batch before its ids are read: where another process wrote it, nothing in it is trusted.
  virtual void inspect(Batch&, bool /*assigned*/) {}

  Buffer* awaited() const;
  // Rows that the caller waits for, as `BatchHeader::want` has them.
  std::uint32_t wanted() const;
  // How many of some envs, that are in flight, are being reset.
  std::uint32_t resets_among(std::span<const std::int32_t> envs) const;
  Buffer* ring_buffer(std::uint32_t number) const { return ring_buffers_[number % ring_buffers_.size()]; }

  const EnvSpec spec_;
  const PoolOptions options_;
  const std::shared_ptr<Arena> arena_;
  ActionTable table_;
  std::shared_ptr<BufferStore> store_;         // of batch_size rows
  std::shared_ptr<BufferStore> gather_store_;  // of num_envs rows; the same one in sync mode
  FaultLog faults_;                            // added to by whoever steps or answers for an env, taken by the caller

  // Private to the caller.
  std::vector<std::uint8_t> in_flight_;
  std::vector<Buffer*> ring_buffers_;  // by batch number modulo the ring; threads read it, see open_slots
  std::uint32_t head_ = 0;             // number of the batch that `recv` gives next
  std::uint32_t opened_ = 0;           // number of the first batch without a buffer
  std::int32_t ring_in_flight_ = 0;    // envs whose results will come through the ring
  std::int32_t sealed_rows_ = 0;       // of batch `head_`, where it was sealed early; else 0
  std::int32_t content_with_ = 0;
  bool content_with_steps_ = false;
  std::int32_t resets_in_flight_ = 0;  // of pools whose results come as they are ready
  std::int32_t assigned_ = 0;          // rows set in `assigned_buffer_`
  Buffer* assigned_buffer_ = nullptr;  // sync mode, or a gather
  bool assigned_in_order_ = true;      // so far row i was set for env i
  bool rows_are_ids_ = false;          // row_of_[i] is i for every env

  // Written by the caller before it starts an env, read by who steps it.
  std::vector<std::int32_t> row_of_;
  std::vector<std::uint8_t> is_assigned_;
  std::vector<std::uint8_t> resetting_;  // of pools whose results come as they are ready: it was sent a reset

 private:
  void assign_rows(std::span<const std::int32_t> envs);
  void open_slots(std::int32_t in_flight);
};

}  // namespace stepmill
