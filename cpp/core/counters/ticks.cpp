#include "core/counters/ticks.h"

#include <thread>

namespace stepmill {
namespace {

#if defined(__x86_64__)
struct Moment {
  Clock::time_point time;
  std::uint64_t ticks;
};

// Both clocks at once, or nearly: a thread that was preempted in between tries again.
Moment read_both() {
  Moment best{};
  auto width = Clock::duration::max();
  for (int i = 0; i < 100 && width > std::chrono::microseconds(1); ++i) {
    const auto before = Clock::now();
    const std::uint64_t ticks = read_ticks();
    const auto after = Clock::now();
    if (after - before < width) {
      width = after - before;
      best = {before + width / 2, ticks};
    }
  }
  return best;
}
#endif

double find_rate() {
#if defined(__aarch64__)
  std::uint64_t rate;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(rate));
  return static_cast<double>(rate);
#elif defined(__x86_64__)
  const Moment first = read_both();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Moment last = read_both();
  return static_cast<double>(last.ticks - first.ticks) / std::chrono::duration<double>(last.time - first.time).count();
#else
  return 1e9;
#endif
}

}  // namespace

double ticks_per_second() {
  static const double rate = find_rate();
  return rate;
}

}  // namespace stepmill
