// A clock that costs a fifth of the system's: the counter of the processor, in ticks of its own.
//
// It runs at the same rate on all cores and in all processes of a machine; so another process that reads it too can say
// how long ago a tick was. Where there is none, ticks are nanoseconds of the system's clock.
#pragma once

#include <cstdint>

#include "core/memory/wait.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace stepmill {

inline std::uint64_t read_ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
#endif
}

// Measured once, which takes some milliseconds, where the processor does not say it: for those who read, not for pools.
double ticks_per_second();

}  // namespace stepmill
