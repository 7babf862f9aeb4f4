// Waiting: a short spin if cores are free, then a futex. And how many cores there are.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace stepmill {

using Clock = std::chrono::steady_clock;

// Cores that this process may use: those of its affinity mask, limited by the cgroup's CPU quota.
int available_cores();

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on most cores; this costs about as a pause
#endif
}

// Sleeps while `word` holds `seen`; returns on a wake, a change, a signal or the timeout. Callers loop. `shared`: the
// word is in memory that other processes map.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds most,
                bool shared);
void futex_wake(std::atomic<std::uint32_t>& word, int count, bool shared);

// How long to spin before sleeping; zero if spinning would take a core from a thread that works. One budget for all
// pools of the process: a spinner needs a core that neither the caller nor another spinner uses.
class SpinBudget {
 public:
  static SpinBudget& instance();

  // A licence to spin until it is destroyed; false if no core is free.
  class Licence {
   public:
    explicit Licence(SpinBudget& budget) : budget_(budget) {
      granted_ = budget_.spinning_.fetch_add(1, std::memory_order_relaxed) < budget_.limit_;
    }
    ~Licence() { budget_.spinning_.fetch_sub(1, std::memory_order_relaxed); }
    Licence(const Licence&) = delete;
    Licence& operator=(const Licence&) = delete;
    explicit operator bool() const { return granted_; }

   private:
    SpinBudget& budget_;
    bool granted_;
  };

 private:
  SpinBudget();

  // Invariant: the number of live licences. A hint only, so relaxed order is enough.
  std::atomic<int> spinning_{0};
  const int limit_;
};

// Gives the core to another thread that wants it now.
void yield_core();

// Stays awake for what usually happens soon: waking a sleeper costs the waking thread microseconds, and the sleeper
// itself tens of them. Learns from how long the waits were, and gives up if another thread needs the core: a thread
// that waits awake loses its turn to the other one, a thread that sleeps gets it back at once.
class AwakeWait {
 public:
  // Whether `done()` became true. If not, it is time to sleep.
  template <class F>
  bool wait(F done) {
    if (mean_ >= kWorthwhile) return false;
    if (back_off_ > 0) {
      back_off_ -= 1;
      return false;
    }
    auto now = Clock::now();
    const auto end = now + std::min<std::chrono::nanoseconds>(2 * mean_ + kLittle, kMost);
    while (now < end) {
      for (int i = 0; i < 8; ++i) {
        if (done()) return true;
        relax();
      }
      yield_core();
      const auto before = now;
      now = Clock::now();
      if (now - before > kTaken && !done()) {
        back_off_ = kBackOff;
        return false;
      }
    }
    return done();
  }
  void learn(std::chrono::nanoseconds waited) { mean_ += (std::min(waited, kLong) - mean_) / 8; }

 private:
  // Long enough for a worker of four Atari games that waits for the slowest of its neighbours.
  static constexpr std::chrono::nanoseconds kLittle{20'000}, kWorthwhile{2'000'000}, kMost{4'000'000}, kLong{8'000'000};
  static constexpr std::chrono::nanoseconds kTaken{100'000};
  static constexpr int kBackOff = 20;

  std::chrono::nanoseconds mean_{50'000};
  int back_off_ = 0;
};

// Spins until `done()` or the time is over; returns the last `done()`.
template <class F>
bool spin_until(std::chrono::nanoseconds most, F done) {
  const auto end = Clock::now() + most;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      relax();
    }
  } while (Clock::now() < end);
  return done();
}

}  // namespace stepmill
