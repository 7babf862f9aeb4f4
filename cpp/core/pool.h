// N envs and the engine that steps them: the five stations put together.
//
//   send: action table -> ready queue      worker: step or autoreset -> slot      recv: batch
//
// A pool belongs to one caller at a time; `Pool` itself does no locking against a second one.
// Everything here is free of Python, and `recv` comes in two parts (`ready` and `work_or_wait`) so
// that the bindings can look for signals, and hold or free the interpreter lock, in between.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/action_table.h"
#include "core/arena.h"
#include "core/batch_ring.h"
#include "core/buffer_store.h"
#include "core/ready_lanes.h"
#include "core/table_of.h"
#include "core/thread_pool.h"

namespace stepmill {

struct PoolOptions {
  TableOptions table;
  std::int32_t batch_size = 1;
  std::int32_t num_threads = 1;  // 0: only the caller steps
  std::int32_t affinity_offset = -1;
  Arena::Kind arena = Arena::Kind::kPrivate;
};

// What went wrong in one env, kept until the batch with its row is received.
struct Fault {
  std::int32_t env = 0;
  std::int32_t phase = 0;  // sm_fault_phase
  std::int64_t episode = 0;
  std::int32_t step = 0;
  std::int32_t failures = 0;  // in a row
  std::string message;
};

// A finished batch. The rows are the caller's until it releases the buffer to the store.
struct Batch {
  std::shared_ptr<BufferStore> store;
  Buffer* buffer = nullptr;
  std::int32_t rows = 0;
  bool any_ended = false;
  bool all_in_order = false;  // a row for every env, row i for env i
};

class Pool {
 public:
  // With a table the pool steps the envs itself; without, the caller does (`take` and `finish`).
  Pool(const sm_env_table* table, const std::vector<Config>& configs, EnvSpec spec,
       const PoolOptions& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const EnvSpec& spec() const { return spec_; }
  const PoolOptions& options() const { return options_; }
  std::int32_t num_envs() const { return options_.table.num_envs; }
  bool is_async() const { return options_.batch_size < num_envs(); }
  ActionTable& table() { return table_; }

  // ---- sending ----

  bool in_flight(std::int32_t env) const { return in_flight_[static_cast<std::size_t>(env)] != 0; }
  std::int32_t in_flight_count() const { return ring_in_flight_ + assigned_; }
  // Whether a reset of chosen envs is on its way.
  bool gathering() const { return is_async() && assigned_ != 0; }

  // Finds buffers for so many results, or throws; a `send` of as many then does not.
  void make_room(std::int32_t count, bool gather);

  // Queues envs whose rows in the action table are written. `gather` gives their results a batch of
  // their own, in this order. `recv_follows`: the caller goes on to `recv` at once, and will help.
  void send(std::span<const std::int32_t> envs, bool gather, bool recv_follows);

  // ---- receiving ----

  // Rows the next batch will have: 0 when nothing is in flight.
  std::int32_t expected() const;
  bool ready() const;
  // Whether the caller can finish the batch alone in about the time that a wake costs.
  bool short_work() const { return backlog_.size() != backlog_done_; }
  // Whether that work is known to take less than giving the interpreter lock away and back is worth.
  bool is_brief() const;
  // Steps envs if there are any to step, else waits, until the batch is ready or about `most` passed.
  void work_or_wait(std::chrono::nanoseconds most);
  // The ready batch, with the faults of its rows.
  Batch take_batch(std::vector<Fault>& faults);

  // ---- stepping by the caller's own means ----

  // The next queued env, or -1.
  std::int32_t next_env();
  // The row of that env. Every row that was taken must be finished.
  sm_place take_place(std::int32_t env);
  void finish_row(std::int32_t env, bool ended);

  // ---- ending ----

  void ask_to_stop() { threads_.ask_to_stop(); }
  bool stopped() const { return threads_.stopped(); }
  void wait_stopped(std::chrono::nanoseconds most) { threads_.wait_stopped(most); }

  // ---- measurements ----

  double step_cost_ns() const { return cost_ns_.load(std::memory_order_relaxed); }
  int threads_started() const { return threads_.started(); }
  std::size_t memory() const { return arena_->used(); }
  std::size_t batches_held() const { return store_->held(); }

 private:
  friend struct Chunk;

  static constexpr std::int32_t kMostChunk = 1024;

  bool knows_cost() const { return step_cost_ns() > 0.0; }

  bool work_once(int hand);
  std::int32_t chunk_size(std::int64_t waiting) const;
  void run(std::span<const std::int32_t> envs, bool alone);
  void run_assigned(std::span<const std::int32_t> envs);
  void run_claimed(std::span<const std::int32_t> envs);
  bool advance(sm_job& job, std::span<const std::int32_t> envs);
  void work_on_backlog();
  void take_faults(std::vector<Fault>& into);
  void measure(Clock::time_point from, std::size_t steps, bool alone);
  void assign_rows(std::span<const std::int32_t> envs);
  void call_threads(bool recv_follows);
  bool is_time_to_probe();
  void open_slots(std::int32_t in_flight);
  void record_fault(std::int32_t env, std::int32_t phase, const char* message);
  Buffer* awaited() const;
  std::size_t lay_out_control();

  const EnvSpec spec_;
  const PoolOptions options_;
  const std::shared_ptr<Arena> arena_;
  ActionTable table_;
  // Whether the caller may step envs itself: those that never block, or where there are no threads.
  const bool caller_steps_;
  const std::size_t control_offset_;
  ReadyLanes queue_;
  BatchRing ring_;
  std::unique_ptr<EnvSet> envs_;
  std::shared_ptr<BufferStore> store_;         // of batch_size rows
  std::shared_ptr<BufferStore> gather_store_;  // of num_envs rows; the same one in sync mode

  // Private to the caller.
  std::vector<std::uint8_t> in_flight_;
  std::vector<Buffer*> ring_buffers_;  // by place in the ring; read by workers, see open_slots
  std::uint32_t head_ = 0;             // number of the batch that `recv` gives next
  std::uint32_t opened_ = 0;           // number of the first batch without a buffer
  std::int32_t ring_in_flight_ = 0;    // envs whose results will come through the ring
  std::int32_t assigned_ = 0;          // rows set in `assigned_buffer_`
  Buffer* assigned_buffer_ = nullptr;  // sync mode, or a gather
  bool assigned_in_order_ = true;      // so far row i was set for env i
  bool rows_are_ids_ = false;          // row_of_[i] is i for every env
  // Work too small to share: stepped by the caller in `recv`.
  std::vector<std::int32_t> backlog_;
  std::size_t backlog_done_ = 0;
  bool caller_helps_ = false;       // the caller is one of the hands
  std::uint32_t shared_sends_ = 0;  // sends that were too much for the caller alone
  Buffer* claimed_ = nullptr;  // by the last `take_place`

  // Written by the caller before it queues an env, read by who steps it.
  std::vector<std::int32_t> row_of_;
  std::vector<std::uint8_t> is_assigned_;

  std::mutex fault_mutex_;
  std::vector<Fault> faults_;
  // How many faults wait to be received. Counted before the row's commit, read after it.
  std::atomic<std::int32_t> fault_count_{0};

  // Smoothed cost of one env step. A hint; any thread may overwrite it with a newer one.
  std::atomic<float> cost_ns_{0.0f};

  // Who shares the work of the last send: hand 0 is the caller where it helps, threads follow. Only
  // says who begins where, so any order will do.
  std::atomic<int> hands_{1};
  std::atomic<int> first_thread_hand_{0};

  // Chunks run, to choose which of the small ones are measured.
  std::atomic<std::uint32_t> runs_{0};

  ThreadPool threads_;  // last: its threads use everything above
};

}  // namespace stepmill
