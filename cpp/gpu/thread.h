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

// What is left of a thread that fails: else all that it has is lost with it.
struct Remains {
  Random random;         // the env's generator, if it has drawn
  std::int32_t elapsed;  // steps of the episode
  bool has_drawn;
  bool was_reset;  // which has used its seed up
  bool shows_end;  // whether its row shows a good end already, after which the reset has failed
};
inline Remains& remains_of_thread() {
  static __shared__ Remains all[kBlock];
  return all[threadIdx.x];
}

// Keeps the least env id of those that are noted.
inline void note_least(unsigned* place, std::int32_t env) { atomicMax(place, ~static_cast<unsigned>(env)); }

#ifdef __CUDACC_RTC__
[[noreturn]] inline void end_thread() {
  asm volatile("exit;" ::: "memory");  // the row is written before
  __builtin_unreachable();
}
#endif

}  // namespace stepmill::gpu
