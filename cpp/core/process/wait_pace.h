// When the caller is awake while it waits for a batch of worker processes. If a core is free: once, shortly before the
// batch is usually complete, because being woken takes long. And now and then, because an overwritten count does not
// wake it.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/memory/wait.h"

namespace stepmill {

class WaitPace {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  explicit WaitPace(bool has_spare_core) : has_spare_core_(has_spare_core) {}

  // A wait for the batch starts, or continues. Returns for how long to sleep: `most`, or less. Nothing, once per batch:
  // it is time to be awake for about `kAwake`.
  std::optional<nanoseconds> sleep_for(nanoseconds most) {
    if (!began_) began_ = Clock::now();
    if (!has_spare_core_ || was_early_) return most;
    const nanoseconds left = usual_ - (Clock::now() - *began_) - kEarly;
    if (left.count() > 0) return std::min(most, left);
    was_early_ = true;
    return std::nullopt;
  }
  static constexpr nanoseconds kEarly = std::chrono::microseconds(60);  // about what a wake takes
  static constexpr nanoseconds kAwake = 2 * kEarly;

  // After a sleep: whether it is time to check more than the counts.
  bool look_is_due() {
    const auto now = Clock::now();
    if (now - std::max(*began_, looked_at_) < kLook) return false;
    looked_at_ = now;
    return true;
  }

  // The batch is complete.
  void end() {
    if (began_) usual_ += (Clock::now() - *began_ - usual_) / 4;
    began_.reset();
    was_early_ = false;
  }

 private:
  static constexpr nanoseconds kLook = std::chrono::milliseconds(5);

  const bool has_spare_core_;
  std::optional<Clock::time_point> began_;
  nanoseconds usual_{0};
  bool was_early_ = false;  // it has been awake for this batch before its time
  Clock::time_point looked_at_;
};

}  // namespace stepmill
