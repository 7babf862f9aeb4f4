// Station 3: the threads that step envs, and how they sleep and wake.
//
// Threads are started when there is work worth one, never before. A thread without work spins
// briefly if a core is free, then sleeps on the doorbell.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "core/wait.h"

namespace stepmill {

class ThreadPool {
 public:
  // `work()` does one chunk and says whether there was one; `waiting()` says whether there is one.
  ThreadPool(int most_threads, int affinity_offset, std::function<bool()> work,
             std::function<bool()> waiting);
  ~ThreadPool() { stop(); }

  // Called by the caller after it queued work: gets `count` threads to it, as far as there are and
  // the machine gives any. More than that do not join in, even if they are awake: too many hands on
  // little work only take it from each other.
  void call(int count);

  // Tells every thread to return after its chunk.
  void ask_to_stop();
  // Whether all have returned; waits for that, at most so long.
  bool stopped() const { return running_.load(std::memory_order_acquire) == 0; }
  void wait_stopped(std::chrono::nanoseconds most);
  void stop();

  int started() const { return static_cast<int>(threads_.size()); }

 private:
  void run(int index);
  bool may_join() const {
    return working_.load(std::memory_order_seq_cst) < seats_.load(std::memory_order_seq_cst);
  }

  static constexpr auto kSpin = std::chrono::microseconds(50);

  const int most_;
  const int affinity_offset_;
  const std::function<bool()> work_, waiting_;
  std::vector<std::thread> threads_;

  // Rung once for every call that finds sleepers. A thread reads it before it looks for work a last
  // time and sleeps only while it is unchanged, so a ring in between is not lost.
  alignas(64) std::atomic<std::uint32_t> bell_{0};
  // Threads between "about to sleep" and "awake". Sequentially consistent with the queue's tail:
  // either the sleeper sees the new work, or the caller sees the sleeper.
  std::atomic<int> sleepers_{0};
  // Threads that may work at once, set by the caller, and those that do or are about to find out that
  // they may not. A thread takes a seat before it takes work and looks once more after it left its
  // seat, so work that was queued while all seats were taken is seen by whoever leaves last.
  // Sequentially consistent, as `sleepers_` is.
  std::atomic<int> seats_{0}, working_{0};
  std::atomic<bool> stopping_{false};
  // Threads that have not returned. Each one's last act is to count itself out and wake.
  std::atomic<std::uint32_t> running_{0};
};

}  // namespace stepmill
