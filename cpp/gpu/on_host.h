// Enough of a GPU for the host's compiler: the same source runs there, thread after thread, and is compared with the engine.
#pragma once

#include <setjmp.h>

#include <cstddef>
#include <cstdint>

#define STEPMILL_KERNEL static
#define STEPMILL_PARAMETER const
#define STEPMILL_INLINE inline __attribute__((always_inline))
#define STEPMILL_UNROLL
#define STEPMILL_UNROLL_BY(times)
#define __shared__ thread_local  // the host may step two pools at once

// What the compiler for GPUs knows without a header, and no more: headers of the host's would lend names and macros that
// are missing on a GPU, and nobody would notice here.
extern "C" {
#define STEPMILL_KNOWN(name) \
  double name(double);       \
  float name##f(float);
#define STEPMILL_KNOWN_OF_TWO(name) \
  double name(double, double);      \
  float name##f(float, float);
STEPMILL_KNOWN(acos)
STEPMILL_KNOWN(acosh)
STEPMILL_KNOWN(asin)
STEPMILL_KNOWN(asinh)
STEPMILL_KNOWN(atan)
STEPMILL_KNOWN(atanh)
STEPMILL_KNOWN(cbrt)
STEPMILL_KNOWN(ceil)
STEPMILL_KNOWN(cos)
STEPMILL_KNOWN(cosh)
STEPMILL_KNOWN(erf)
STEPMILL_KNOWN(erfc)
STEPMILL_KNOWN(exp)
STEPMILL_KNOWN(exp2)
STEPMILL_KNOWN(expm1)
STEPMILL_KNOWN(fabs)
STEPMILL_KNOWN(floor)
STEPMILL_KNOWN(lgamma)
STEPMILL_KNOWN(log)
STEPMILL_KNOWN(log10)
STEPMILL_KNOWN(log1p)
STEPMILL_KNOWN(log2)
STEPMILL_KNOWN(logb)
STEPMILL_KNOWN(nearbyint)
STEPMILL_KNOWN(rint)
STEPMILL_KNOWN(round)
STEPMILL_KNOWN(sin)
STEPMILL_KNOWN(sinh)
STEPMILL_KNOWN(sqrt)
STEPMILL_KNOWN(tan)
STEPMILL_KNOWN(tanh)
STEPMILL_KNOWN(tgamma)
STEPMILL_KNOWN(trunc)
STEPMILL_KNOWN_OF_TWO(atan2)
STEPMILL_KNOWN_OF_TWO(copysign)
STEPMILL_KNOWN_OF_TWO(fdim)
STEPMILL_KNOWN_OF_TWO(fmax)
STEPMILL_KNOWN_OF_TWO(fmin)
STEPMILL_KNOWN_OF_TWO(fmod)
STEPMILL_KNOWN_OF_TWO(hypot)
STEPMILL_KNOWN_OF_TWO(nextafter)
STEPMILL_KNOWN_OF_TWO(pow)
STEPMILL_KNOWN_OF_TWO(remainder)
#undef STEPMILL_KNOWN
#undef STEPMILL_KNOWN_OF_TWO
double fma(double, double, double);
float fmaf(float, float, float);
double frexp(double, int*);
float frexpf(float, int*);
double ldexp(double, int);
float ldexpf(float, int);
double modf(double, double*);
float modff(float, float*);
int ilogb(double);
long lrint(double);
long lround(double);
long long llrint(double);
long long llround(double);
void* malloc(std::size_t);
void free(void*);
void* memcpy(void*, const void*, std::size_t);
void* memset(void*, int, std::size_t);
int printf(const char*, ...);
}
#define NULL __null
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
inline thread_local Index blockIdx, threadIdx, blockDim;

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
    blockDim.x = stepmill::gpu::kBlock;                            \
    for (std::int32_t id = 0; id < arguments->num_envs; ++id) {    \
      blockIdx.x = static_cast<unsigned>(id) / blockDim.x;         \
      threadIdx.x = static_cast<unsigned>(id) % blockDim.x;        \
      if (!setjmp(stepmill::gpu::end_of_thread)) kernel(*arguments); \
    }                                                              \
  }
