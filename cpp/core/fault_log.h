// Failures of envs, on their way from the thread that sees them to the caller that receives the row.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace stepmill {

// The failure of one env, kept until the batch with its row is received.
struct Fault {
  // kUnplaced: its process is gone, and another one finds no place. To try again would not help.
  enum Kind { kRaised, kDied, kLate, kUnplaced };
  std::int32_t env = 0;
  std::int32_t phase = 0;  // sm_fault_phase
  std::int64_t episode = 0;
  std::int32_t step = 0;
  std::int32_t failures = 0;  // consecutive ones
  std::string message;
  Kind kind = kRaised;
};

class FaultLog {
 public:
  // Called by any thread, before it is visible that the row of that env is ready.
  void add(Fault fault) {
    const std::lock_guard lock(mutex_);
    faults_.push_back(std::move(fault));
    count_.store(faults_.size(), std::memory_order_relaxed);
  }

  // Called by the caller, after it has seen that a batch is ready: moves out the faults of envs that are no longer in
  // flight, in the order of the envs, whichever thread was first. Leaves `into` unchanged if there are no faults at
  // all.
  void take(const std::vector<std::uint8_t>& in_flight, std::vector<Fault>& into) {
    if (count_.load(std::memory_order_relaxed) == 0) return;
    const std::lock_guard lock(mutex_);
    const auto back = std::stable_partition(faults_.begin(), faults_.end(), [&](const Fault& fault) {
      return in_flight[static_cast<std::size_t>(fault.env)] != 0;
    });
    into.assign(std::make_move_iterator(back), std::make_move_iterator(faults_.end()));
    faults_.erase(back, faults_.end());
    std::stable_sort(into.begin(), into.end(), [](const Fault& a, const Fault& b) { return a.env < b.env; });
    count_.store(faults_.size(), std::memory_order_relaxed);
  }

 private:
  std::mutex mutex_;           // taken inside a pool's own lock, and never the other way round
  std::vector<Fault> faults_;  // under the lock
  // Always faults_.size() while the lock is free. Written with the lock held, read by the caller without it, so that a
  // batch without faults takes no lock. Relaxed order is enough: what shows the caller that a row is ready (the count
  // of the batch, or the lock of a process pool) also shows it the count of faults that was stored before.
  std::atomic<std::size_t> count_{0};
};

}  // namespace stepmill
