// What one call of an env costs, as measured lately.
#pragma once

#include <algorithm>
#include <atomic>

namespace stepmill {

class CallCost {
 public:
  bool known() const { return ns() > 0.0; }
  double ns() const { return ns_.load(std::memory_order_relaxed); }  // 0: not known yet
  // The same, or a guess.
  double expected_ns() const { return known() ? ns() : kUnknownNs; }

  // `alone`: no other thread was stepping.
  void learn(float sample, bool alone) {
    const float before = ns_.load(std::memory_order_relaxed);
    float cost = before;
    if (before == 0.0f)
      cost = sample;
    else if (sample < before)
      cost = before + (alone ? 0.75f : 0.25f) * (sample - before);
    else if (alone || sample >= kTrustedNs)
      // Slowly, and never more than double: a thread that was preempted measures its absence.
      cost = before + std::min(before, (sample - before) / 16);
    ns_.store(std::max(1.0f, cost), std::memory_order_relaxed);
  }

 private:
  // A call at least this long is measured well by any thread. A shorter one, on several threads, mostly
  // shows how they get in each other's way.
  static constexpr float kTrustedNs = 10'000;
  static constexpr double kUnknownNs = 1'000;

  // Smoothed. A hint; any thread may overwrite it with a newer one.
  std::atomic<float> ns_{0.0f};
};

}  // namespace stepmill
