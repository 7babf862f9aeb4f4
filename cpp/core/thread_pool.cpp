#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <exception>

namespace stepmill {
namespace {

// Signals belong to the interpreter's threads: one taken here would not end a wait there. But a
// crash is handled where it happens, and a blocked one would end the process without its handler.
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
      waiting_(std::move(waiting)) {
  threads_.reserve(static_cast<std::size_t>(most_threads));
}

void ThreadPool::call(int count) {
  count = std::min(count, most_);
  called_.store(count, std::memory_order_seq_cst);
  if (started() < count) {
    const SignalsBlocked blocked;  // new threads inherit the mask
    while (started() < count) {
      running_.fetch_add(1, std::memory_order_relaxed);
      const int index = started();
      try {
        threads_.push_back(std::make_unique<Thread>());
        Thread& self = *threads_.back();  // does not move when more are added
        self.thread = std::thread([this, index, &self] { run(index, self); });
      } catch (const std::exception&) {
        // The machine has no more threads to give. The caller and those that run do the work.
        threads_.resize(static_cast<std::size_t>(index));
        running_.fetch_sub(1, std::memory_order_relaxed);
        break;
      }
    }
  }
  for (int i = 0; i < std::min(count, started()); ++i) wake(*threads_[static_cast<std::size_t>(i)]);
}

void ThreadPool::wake(Thread& thread) {
  if (thread.state.load(std::memory_order_seq_cst) == kAsleep &&
      thread.state.exchange(kAwake, std::memory_order_seq_cst) == kAsleep)
    futex_wake(thread.state, 1, false);
}

void ThreadPool::run(int index, Thread& self) {
  if (affinity_offset_ >= 0) bind_to_core(affinity_offset_ + index);
  const auto wanted = [this, index] {
    return has_work(index) || stopping_.load(std::memory_order_seq_cst);
  };
  while (!stopping_.load(std::memory_order_acquire)) {
    if (has_work(index) && work_(index)) continue;
    {
      const SpinBudget::Licence licence(SpinBudget::instance());
      if (licence && spin_until(kSpin, wanted)) continue;
    }
    self.state.store(kAsleep, std::memory_order_seq_cst);
    if (!wanted()) futex_wait(self.state, kAsleep, std::chrono::hours(1), false);
    self.state.store(kAwake, std::memory_order_seq_cst);
  }
  running_.fetch_sub(1, std::memory_order_release);
  futex_wake(running_, 1, false);
}

void ThreadPool::wait_stopped(std::chrono::nanoseconds most) {
  const std::uint32_t running = running_.load(std::memory_order_acquire);
  if (running != 0) futex_wait(running_, running, most, false);
}

void ThreadPool::ask_to_stop() {
  stopping_.store(true, std::memory_order_seq_cst);
  for (const auto& thread : threads_) wake(*thread);
}

void ThreadPool::stop() {
  ask_to_stop();
  for (auto& thread : threads_) thread->thread.join();
  threads_.clear();
}

}  // namespace stepmill
