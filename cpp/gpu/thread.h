// What a thread of a GPU can do besides computing.
#pragma once

#include <cstdint>

#include "gpu/arguments.h"

namespace stepmill::gpu {

// The arguments of the kernel, for a thread that fails wherever it is. All threads of a block write the same.
inline const Arguments*& arguments_of_block() {
  static __shared__ const Arguments* here;
  return here;
}

// Keeps the least env id of those that are noted.
inline void note_least(unsigned* place, std::int32_t env) { atomicMax(place, ~static_cast<unsigned>(env)); }

#ifdef __CUDACC_RTC__
[[noreturn]] inline void end_thread() {
  asm volatile("exit;");
  __builtin_unreachable();
}
#endif

}  // namespace stepmill::gpu
