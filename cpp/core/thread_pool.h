// Station 3: the threads that step envs, and how they sleep and wake.
//
// Threads are started when there is work worth one, never before. A thread without work spins
// briefly if a core is free, then sleeps on the doorbell.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/wait.h"

namespace stepmill {

class ThreadPool {
 public:
  // `work(i)` does one chunk in thread i and says whether there was one; `waiting()` says whether
  // there is one.
  ThreadPool(int most_threads, int affinity_offset, std::function<bool(int)> work,
             std::function<bool()> waiting);
  ~ThreadPool() { stop(); }

  // Called by the caller after it queued work: gets the first `count` threads to it, as far as the
  // machine gives any. The others do not join in, even if they are awake: too many hands on little
  // work only take it from each other. Always the first ones, because they know the envs.
  void call(int count);

  // Tells every thread to return after its chunk.
  void ask_to_stop();
  // Whether all have returned; waits for that, at most so long.
  bool stopped() const { return running_.load(std::memory_order_acquire) == 0; }
  void wait_stopped(std::chrono::nanoseconds most);
  void stop();

  int started() const { return static_cast<int>(threads_.size()); }

 private:
  struct Thread {
    // ASLEEP from before the thread looks for work a last time until it is woken. Sequentially
    // consistent with the queue and `called_`: either the thread sees the new work, or the caller
    // sees the sleeper.
    alignas(64) std::atomic<std::uint32_t> state{kAwake};
    std::thread thread;
  };
  static constexpr std::uint32_t kAwake = 0, kAsleep = 1;

  void run(int index, Thread& self);
  bool has_work(int index) const {
    return waiting_() && index < called_.load(std::memory_order_seq_cst);
  }
  void wake(Thread& thread);

  static constexpr auto kSpin = std::chrono::microseconds(50);

  const int most_;
  const int affinity_offset_;
  const std::function<bool(int)> work_;
  const std::function<bool()> waiting_;
  std::vector<std::unique_ptr<Thread>> threads_;

  // How many threads may work: the first so many.
  alignas(64) std::atomic<int> called_{0};
  std::atomic<bool> stopping_{false};
  // Threads that have not returned. Each one's last act is to count itself out and wake.
  std::atomic<std::uint32_t> running_{0};
};

}  // namespace stepmill
