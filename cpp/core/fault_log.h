// What went wrong in envs, from the thread that sees it to the caller that receives the row.
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

// What went wrong in one env, kept until the batch with its row is received.
struct Fault {
  enum Kind { kRaised, kDied, kLate };
  std::int32_t env = 0;
  std::int32_t phase = 0;  // sm_fault_phase
  std::int64_t episode = 0;
  std::int32_t step = 0;
  std::int32_t failures = 0;  // in a row
  std::string message;
  Kind kind = kRaised;
};

class FaultLog {
 public:
  // By any thread, before the row of that env can be seen to be ready.
  void add(Fault fault) {
    const std::lock_guard lock(mutex_);
    faults_.push_back(std::move(fault));
    count_.store(faults_.size(), std::memory_order_relaxed);
  }

  // By the caller, after it saw a batch to be ready: moves out the faults of envs that are not in flight any more, in the
  // order of the envs, whichever thread was first. Leaves `into` as it is where there are no faults at all.
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
  std::mutex mutex_;           // taken inside of a pool's own lock, and never the other way round
  std::vector<Fault> faults_;  // under the lock
  // Always faults_.size() where the lock is free. Written with the lock held, read by the caller without it, so that a
  // batch without faults takes no lock. Relaxed is enough: what shows the caller that a row is ready (the count of the
  // batch, or the lock of a process pool) also shows it the count of faults that was stored before.
  std::atomic<std::size_t> count_{0};
};

}  // namespace stepmill
