// Station 3: the threads that step envs, and how they sleep and wake.
//
// A thread is started when there is enough work for it, never before. A thread without work spins briefly if a core is
// free, then sleeps on the doorbell.
//
// Work that ends soon is left to as few threads as are worth waking (`call`). Work that may block is not: a thread that
// starts such work first makes sure that another one looks for the rest (`call_free`, `begin`).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/memory/wait.h"

namespace stepmill {

class ThreadPool {
 public:
  // `work(i)` does one chunk in thread i and says whether there was one; `waiting()` says whether there is one.
  ThreadPool(int most_threads, int affinity_offset, std::function<bool(int)> work,
             std::function<bool()> waiting);
  ~ThreadPool() { stop(); }

  // Called by the caller after it has queued work: wakes or starts the first `count` threads, as far as the machine
  // allows. The others do not join in, even if they are awake: too many hands only take a little work from each other.
  // Always the first ones, because their caches hold the envs.
  void call(int count);

  // The same for work that may block: wakes or starts `count` threads that are not inside such work already, and lets
  // all threads join in. `most_inside`: the pieces of work, waiting or started, and so the most threads that can be
  // inside.
  void call_free(int count, int most_inside);
  // Called by `work(i)` between taking such work and doing it.
  void begin(int index);

  // Tells every thread to return after its chunk.
  void ask_to_stop();
  // Waits until all have returned, at most so long; whether they have.
  bool stopped() const { return running_.load(std::memory_order_acquire) == 0; }
  void wait_stopped(std::chrono::nanoseconds most);
  void stop();

  int started() const { return started_.load(std::memory_order_acquire); }

 private:
  struct Thread {
    // ASLEEP from before the thread looks for work a last time until it is woken. Sequentially
    // consistent with the queue and `called_`: either the thread sees the new work, or the caller
    // sees the sleeper.
    alignas(64) std::atomic<std::uint32_t> state{kAwake};
    bool looks = true;  // it is one of `looking_`; the thread's own
    std::thread thread;
  };
  static constexpr std::uint32_t kAwake = 0, kAsleep = 1;

  void run(int index, Thread& self);
  bool has_work(int index) const {
    return waiting_() && index < called_.load(std::memory_order_seq_cst);
  }
  void start(int count);
  bool wake(Thread& thread);
  bool wake_one();
  template <class F>
  void sleep(Thread& self, F wanted);

  static constexpr auto kSpin = std::chrono::microseconds(50);

  const int most_;
  const int affinity_offset_;
  const std::function<bool(int)> work_;
  const std::function<bool()> waiting_;
  std::vector<Thread> threads_;  // `most_`; the first `started_` of them run
  std::atomic<int> started_{0};

  // How many threads may work: the first ones.
  alignas(64) std::atomic<int> called_{0};
  std::atomic<bool> stopping_{false};
  // Threads that look for work: awake, and not inside work that may block. If such work is queued, the following holds,
  // and so none of it waits behind a stuck thread while another one sleeps:
  //
  //     while something waits, a thread is looking, or none sleeps.
  //
  // The caller first queues, then reads this number. A thread first counts itself out, when it starts work or before it
  // sleeps, then looks at the queue. All of it is sequentially consistent, so one of the two sees the other: the caller
  // wakes a sleeper, or the last thread that looked wakes one in its place, or does not sleep. The thread that wakes a
  // sleeper counts it in, after it is awake: so for a moment the number may be too small, even negative, which costs a
  // wake, but never too large.
  alignas(64) std::atomic<int> looking_{0};
  // Threads that have not returned. The last thing each one does is to count itself out and wake the waiting thread.
  std::atomic<std::uint32_t> running_{0};
};

}  // namespace stepmill
