// Envs stepped in this process: by threads, by the caller, or by both.
//
// Env classes that declare that their calls end soon (`kNeverBlocks`) are stepped in chunks, by as few hands as are
// worth waking. The others may block, and then nothing may wait for them unnecessarily: each env is taken from the
// queue by itself, whatever its cost, takes its slot when it is done, and is never stepped by the caller. So a stuck
// thread holds only one env, and `ThreadPool` makes sure that another thread takes the rest.
#pragma once

#include <algorithm>
#include <atomic>

#include "core/batch_ring.h"
#include "core/pool.h"
#include "core/ready_lanes.h"
#include "core/env_set.h"
#include "core/thread_pool.h"

namespace stepmill {

// The recently measured cost of one call of an env.
class CallCost {
 public:
  bool known() const { return ns() > 0.0; }
  double ns() const { return ns_.load(std::memory_order_relaxed); }  // 0: not known yet
  // The same, or a guess.
  double expected_ns() const { return known() ? ns() : kUnknownNs; }

  // `alone`: no other thread was stepping.
  void learn(float sample, bool alone) {
    const float before = ns_.load(std::memory_order_relaxed);
    float cost = before;
    if (before == 0.0f)
      cost = sample;
    else if (sample < before)
      cost = before + (alone ? 0.75f : 0.25f) * (sample - before);
    else if (alone || sample >= kTrustedNs)
      // Slowly, and never more than double: a preempted thread measures the time it was away.
      cost = before + std::min(before, (sample - before) / 16);
    ns_.store(std::max(1.0f, cost), std::memory_order_relaxed);
  }

 private:
  // Any thread can measure a call that takes at least this long. Shorter ones on several threads mostly show how the
  // threads get in each other's way.
  static constexpr float kTrustedNs = 10'000;
  static constexpr double kUnknownNs = 1'000;

  // Smoothed. A hint; any thread may overwrite it with a newer one.
  std::atomic<float> ns_{0.0f};
};

class LocalPool final : public Pool {
 public:
  LocalPool(std::unique_ptr<EnvSet> envs, EnvSpec spec, const PoolOptions& options);
  ~LocalPool() override;

  const EnvSet& envs() const { return *envs_; }
  EnvSet& envs() { return *envs_; }

  void do_pieces(std::uint32_t pieces, Piecework::Piece piece, void* context) override;

  bool is_brief() const override;
  void work_or_wait(std::chrono::nanoseconds most) override;
  bool needs_caller() const override {
    return short_work() || (queue_.size() > 0 && (caller_helps_ || threads_.started() == 0));
  }

  void ask_to_stop() override { threads_.ask_to_stop(); }
  bool stopped() const override { return threads_.stopped(); }
  void wait_stopped(std::chrono::nanoseconds most) override { threads_.wait_stopped(most); }

  // Envs that a thread has been stepping for longer than `PoolOptions::slow_ns`, each once. For the caller; only of
  // envs that may block.
  std::vector<std::int32_t> take_slow();

  double step_cost_ns() const override { return step_cost_.ns(); }
  int threads_started() const override { return threads_.started(); }

 private:
  friend struct Chunk;

  static constexpr std::int32_t kMostChunk = 1024;

  Row take_row(std::int32_t env) override { return Pool::take_row(env, ring_); }
  void open_batch(std::uint32_t number, Buffer& buffer) override { ring_.open(number, buffer.offset); }
  std::int32_t seal_batch(std::uint32_t number) override { return static_cast<std::int32_t>(ring_.seal(number)); }
  void start(std::span<const std::int32_t> envs, bool assigned, bool recv_follows) override;

  // The cost of one of some envs that were sent together: the first one shows what all of them were sent.
  const CallCost& cost_of(std::span<const std::int32_t> envs) const {
    return is_sent_reset(envs[0]) ? reset_cost_ : step_cost_;
  }
  const CallCost& queued_cost() const {
    return resets_wait_.load(std::memory_order_relaxed) ? reset_cost_ : step_cost_;
  }
  // Whether an env was sent a reset, or its first action. An action that resets because the episode ended does not
  // count.
  bool is_sent_reset(std::int32_t env) const;
  // Whether the caller can finish the batch alone in about the time that a wake costs.
  bool short_work() const { return backlog_.size() != backlog_done_; }

  void changed_order() override { queue_.go_round(is_async()); }

  void share(std::span<const std::int32_t> envs);
  bool work_once(int hand, int thread);
  WorkerRecord& record_of(int thread) { return thread < 0 ? counters_->pool().caller : counters_->worker(thread); }
  std::int32_t chunk_size(std::int64_t waiting) const;
  void run(std::span<const std::int32_t> envs, bool alone, WorkerRecord& hand);
  void run_rows(std::span<const std::int32_t> envs);
  void run_assigned(std::span<const std::int32_t> envs);
  void run_claimed(std::span<const std::int32_t> envs);
  bool advance(sm_job& job, std::span<const std::int32_t> envs);
  void work_on_backlog();
  void call_threads(bool recv_follows);
  bool is_time_to_probe(const CallCost& cost);
  void record_fault(std::int32_t env, std::int32_t phase, const char* message);
  std::size_t lay_out_control();

  const std::unique_ptr<EnvSet> envs_;
  const bool may_block_;
  // Whether the caller may step envs itself: if they never block, or if there are no threads.
  const bool caller_steps_;
  const std::size_t control_offset_;
  ReadyLanes queue_;
  BatchRing ring_;

  // Private to the caller. Work that is too small to share: the caller steps it in `recv`.
  std::vector<std::int32_t> backlog_;
  std::size_t backlog_done_ = 0;
  bool caller_helps_ = false;       // the caller is one of the hands
  std::uint32_t shared_sends_ = 0;  // sends that were too much for the caller alone

  CallCost step_cost_, reset_cost_;
  // Whether there are resets in the queue. A hint for `queued_cost`, so relaxed order is enough.
  std::atomic<bool> resets_wait_{false};

  // The hands that share the work of the last send: hand 0 is the caller if it helps, threads follow. It only says
  // where each one starts, so relaxed order is enough.
  std::atomic<int> hands_{1};
  std::atomic<int> first_thread_hand_{0};

  // Chunks done so far, to choose which of the small ones are measured.
  std::atomic<std::uint32_t> runs_{0};

  // The env that each thread is stepping, if envs may block, as the caller saw it at its last look: the thread writes
  // `WorkerRecord::inside`.
  struct Inside {
    std::uint64_t seen = 0;
    Clock::time_point since{};
  };
  std::vector<Inside> inside_;
  std::vector<std::uint8_t> told_;  // by env: whether it was slow before
  Clock::time_point next_look_{};

  Piecework pieces_;
  ThreadPool threads_;  // last: its threads use everything above
};

}  // namespace stepmill
