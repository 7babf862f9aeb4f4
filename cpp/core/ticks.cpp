#include "core/ticks.h"

#include <thread>

namespace stepmill {
namespace {

double find_rate() {
#if defined(__aarch64__)
  std::uint64_t rate;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(rate));
  return static_cast<double>(rate);
#elif defined(__x86_64__)
  const auto from = Clock::now();
  const std::uint64_t first = read_ticks();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::uint64_t last = read_ticks();
  return static_cast<double>(last - first) / std::chrono::duration<double>(Clock::now() - from).count();
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
