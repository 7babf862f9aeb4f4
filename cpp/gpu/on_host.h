// Enough of a GPU for the host's compiler: the same source runs there, thread after thread, and is compared with the engine.
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cstddef>
#include <cstdint>

#define STEPMILL_KERNEL static
#define STEPMILL_PARAMETER const
#define STEPMILL_INLINE inline __attribute__((always_inline))
#define STEPMILL_UNROLL
#define STEPMILL_UNROLL_BY(times)
#define __shared__ thread_local  // the host may step two pools at once

// What the compiler for GPUs knows without a header.
#undef isfinite
#undef isinf
#undef isnan
#undef signbit

inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long abs(long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float fabs(float x) { return __builtin_fabsf(x); }
inline float sqrt(float x) { return __builtin_sqrtf(x); }

struct uint4 {
  unsigned x, y, z, w;
};
struct Index {
  unsigned x;
};
inline thread_local Index blockIdx, threadIdx;
inline constexpr Index blockDim{1};

inline unsigned atomicMax(unsigned* place, unsigned value) {
  const unsigned before = *place;
  if (before < value) *place = value;
  return before;
}
template <class T>
inline T atomicExch(T* place, T value) {
  const T before = *place;
  *place = value;
  return before;
}
inline unsigned atomicAdd(unsigned* place, unsigned value) {
  const unsigned before = *place;
  *place = before + value;
  return before;
}
inline unsigned long long atomicAdd(unsigned long long* place, unsigned long long value) {
  const unsigned long long before = *place;
  *place = before + value;
  return before;
}

namespace stepmill::gpu {
inline thread_local jmp_buf end_of_thread;
[[noreturn]] inline void end_thread() { longjmp(end_of_thread, 1); }
}  // namespace stepmill::gpu

// What the host calls in the place of a launch.
#define STEPMILL_ON_HOST(kernel, Given)                            \
  extern "C" void kernel##_on_host(const Given* arguments) {       \
    for (std::int32_t id = 0; id < arguments->num_envs; ++id) {    \
      blockIdx.x = static_cast<unsigned>(id);                      \
      if (!setjmp(stepmill::gpu::end_of_thread)) kernel(*arguments); \
    }                                                              \
  }
