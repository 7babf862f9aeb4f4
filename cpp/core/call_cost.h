// The recently measured cost of one call of an env.
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
      // Slowly, and never more than double: a preempted thread measures the time it was away.
      cost = before + std::min(before, (sample - before) / 16);
    ns_.store(std::max(1.0f, cost), std::memory_order_relaxed);
  }

 private:
  // Any thread can measure a call that takes at least this long. Shorter ones on several threads mostly show how the
  // threads get in each other's way.
  static constexpr float kTrustedNs = 10'000;
  static constexpr double kUnknownNs = 1'000;

  // Smoothed. A hint; any thread may overwrite it with a newer one.
  std::atomic<float> ns_{0.0f};
};

}  // namespace stepmill
