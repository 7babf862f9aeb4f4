// Where the loops of a yardstick meet after each batch, in memory that threads or processes share.
//
// It waits as cheaply as a machine can. Who comes early stays awake, since each loop has a core to itself, and learns of
// the last one's arrival from one cache line: spins for kSpin, then offers its core to other threads between two
// looks, so that on a busy machine the one waited for can run. Only after kAwake, as between two measurements, it sleeps
// on a futex.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

#include "core/memory/wait.h"

namespace stepmill {

class Barrier {
 public:
  // Returns when so many have called it.
  void meet(std::uint32_t parties) {
    const std::uint32_t now = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parties) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(now + 1, std::memory_order_seq_cst);
      if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake(round_, INT_MAX, true);
      return;
    }
    const auto over = [&] { return round_.load(std::memory_order_seq_cst) != now; };
    if (spin_until(kSpin, over)) return;
    const auto end = Clock::now() + kAwake;
    do {
      yield_core();
      if (over()) return;
    } while (Clock::now() < end);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (!over()) futex_wait(round_, now, std::chrono::hours(1), true);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  static constexpr auto kSpin = std::chrono::microseconds(20);
  static constexpr auto kAwake = std::chrono::milliseconds(5);

  // Zeroed memory is a barrier that nobody has reached.
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace stepmill
