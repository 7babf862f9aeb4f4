// What an env class is compiled with for a GPU, before everything else: words of C++ that NVIDIA's compiler does not
// know there, and the little of the standard library that env classes use (`gpu/std`).
//
// Exceptions: whatever an env throws ends the step of that env at once, like on the host (`gpu/kernel.h`, `fail_thread`).
// What is thrown is never evaluated.
#pragma once

#define STEPMILL_GPU 1
#ifdef __CUDACC_RTC__
#define __extension__
#endif

#include <cstddef>
#include <cstdint>

namespace stepmill::gpu {

// The row of the env of this thread becomes one that failed, and the thread ends.
[[noreturn]] void fail_thread();

inline bool fails() { fail_thread(); }

template <bool everything>
constexpr bool catches() {
  static_assert(everything, "it catches by type, which a GPU cannot do: use catch (...)");
  return true;
}

struct Thrown {
  template <class T>
  void operator=(T&&) const {}
};

}  // namespace stepmill::gpu

#ifdef __CUDACC_RTC__
#define STEPMILL_KERNEL extern "C" __global__
#define STEPMILL_PARAMETER const __grid_constant__
#define STEPMILL_INLINE __forceinline__
#define STEPMILL_PRAGMA(said) _Pragma(#said)
#define STEPMILL_UNROLL STEPMILL_PRAGMA(unroll)
#define STEPMILL_UNROLL_BY(times) STEPMILL_PRAGMA(unroll times)
#define STEPMILL_ON_HOST(kernel, Given)
#else
#include "gpu/on_host.h"
#endif

#define throw ::stepmill::gpu::fails() ? static_cast<void>(0) : ::stepmill::gpu::Thrown() =
#define try if constexpr (true)
#define catch(...) else while (::stepmill::gpu::catches<#__VA_ARGS__[0] == '.'>())
