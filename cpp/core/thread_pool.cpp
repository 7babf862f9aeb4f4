#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace stepmill {
namespace {

// Signals are for the interpreter's threads: a signal that arrives here would not end a wait there. But a crash is
// handled in the thread where it happens, and if its signal were blocked, the process would end without its handler.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t foreign;
    sigfillset(&foreign);
    for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
      sigdelset(&foreign, crash);
    pthread_sigmask(SIG_BLOCK, &foreign, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Binds the calling thread to one of the cores it may use. A hint: failure changes nothing.
void bind_to_core(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  if (cores.empty()) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores[static_cast<std::size_t>(index) % cores.size()], &one);
  pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

}  // namespace

ThreadPool::ThreadPool(int most_threads, int affinity_offset, std::function<bool(int)> work,
                       std::function<bool()> waiting)
    : most_(most_threads),
      affinity_offset_(affinity_offset),
      work_(std::move(work)),
      waiting_(std::move(waiting)),
      threads_(static_cast<std::size_t>(most_threads)) {}

// ---- the caller --------------------------------------------------------------------------------

void ThreadPool::call(int count) {
  count = std::min(count, most_);
  called_.store(count, std::memory_order_seq_cst);
  start(count);
  for (int i = 0; i < std::min(count, started()); ++i) wake(threads_[static_cast<std::size_t>(i)]);
}

void ThreadPool::call_free(int count, int most_inside) {
  called_.store(most_, std::memory_order_seq_cst);
  start(std::min(most_inside, most_));
  const int looking = std::max(0, looking_.load(std::memory_order_seq_cst));
  for (int missing = count - looking; missing > 0 && wake_one(); --missing) {
  }
}

// Starts threads until so many run.
void ThreadPool::start(int count) {
  if (started() >= count) return;
  const SignalsBlocked blocked;  // new threads inherit the mask
  for (int index = started(); index < count; ++index) {
    running_.fetch_add(1, std::memory_order_relaxed);
    looking_.fetch_add(1, std::memory_order_seq_cst);
    try {
      Thread& self = threads_[static_cast<std::size_t>(index)];
      self.thread = std::thread([this, index, &self] { run(index, self); });
    } catch (const std::exception&) {
      // No more threads are available. The caller and the threads that run do the work.
      running_.fetch_sub(1, std::memory_order_relaxed);
      looking_.fetch_sub(1, std::memory_order_seq_cst);
      return;
    }
    started_.store(index + 1, std::memory_order_release);
  }
}

// ---- waking ------------------------------------------------------------------------------------

bool ThreadPool::wake(Thread& thread) {
  if (thread.state.load(std::memory_order_seq_cst) != kAsleep ||
      thread.state.exchange(kAwake, std::memory_order_seq_cst) != kAsleep)
    return false;
  looking_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(thread.state, 1, false);
  return true;
}

// Returns false if no thread sleeps.
bool ThreadPool::wake_one() {
  for (int i = 0; i < started(); ++i)
    if (wake(threads_[static_cast<std::size_t>(i)])) return true;
  return false;
}

void ThreadPool::begin(int index) {
  Thread& self = threads_[static_cast<std::size_t>(index)];
  // A thread that goes from one piece of work to the next was not counted as looking: the threads that were still look.
  if (!std::exchange(self.looks, false)) return;
  if (looking_.fetch_sub(1, std::memory_order_seq_cst) <= 1 && waiting_()) wake_one();
}

// ---- a thread ----------------------------------------------------------------------------------

void ThreadPool::run(int index, Thread& self) {
  if (affinity_offset_ >= 0) bind_to_core(affinity_offset_ + index);
  const auto wanted = [this, index] {
    return has_work(index) || stopping_.load(std::memory_order_seq_cst);
  };
  while (!stopping_.load(std::memory_order_acquire)) {
    if (has_work(index) && work_(index)) continue;
    if (!std::exchange(self.looks, true)) looking_.fetch_add(1, std::memory_order_seq_cst);
    {
      const SpinBudget::Licence licence(SpinBudget::instance());
      if (licence && spin_until(kSpin, wanted)) continue;
    }
    sleep(self, wanted);
  }
  running_.fetch_sub(1, std::memory_order_release);
  futex_wake(running_, 1, false);
}

template <class F>
void ThreadPool::sleep(Thread& self, F wanted) {
  self.state.store(kAsleep, std::memory_order_seq_cst);
  looking_.fetch_sub(1, std::memory_order_seq_cst);
  if (!wanted()) futex_wait(self.state, kAsleep, std::chrono::hours(1), false);
  // Unless another thread woke it, and counted it.
  if (self.state.exchange(kAwake, std::memory_order_seq_cst) == kAsleep)
    looking_.fetch_add(1, std::memory_order_seq_cst);
}

// ---- ending ------------------------------------------------------------------------------------

void ThreadPool::wait_stopped(std::chrono::nanoseconds most) {
  const std::uint32_t running = running_.load(std::memory_order_acquire);
  if (running != 0) futex_wait(running_, running, most, false);
}

void ThreadPool::ask_to_stop() {
  stopping_.store(true, std::memory_order_seq_cst);
  for (int i = 0; i < started(); ++i) wake(threads_[static_cast<std::size_t>(i)]);
}

void ThreadPool::stop() {
  ask_to_stop();
  for (int i = 0; i < started(); ++i) threads_[static_cast<std::size_t>(i)].thread.join();
  started_.store(0, std::memory_order_release);
}

}  // namespace stepmill
