// numpy's arithmetic on single numbers, where plain C++ would round differently.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace stepmill {

// `x ** 2` on a float64 scalar, which numpy hands to libm's `pow`. That is not `x * x`: about one
// result in 1,200 differs in its last bit. But libm stays within 0.55 of a unit in the last place,
// so where the exact square lies clearly on one side of a rounding boundary both must agree, and
// the call (some 20 ns) is needed only for the rest, about one in eight.
//
// A GPU's `pow` is not libm's: there the product stands for it.
inline double numpy_square(double x) {
#ifdef STEPMILL_GPU
  return x * x;
#else
  constexpr std::uint64_t kExponent = 0x7ff0000000000000, kMantissa = 0x000fffffffffffff;
  const double product = x * x;
  const auto bits = std::bit_cast<std::uint64_t>(product);
  const double half_unit = std::bit_cast<double>(bits & kExponent) * 0x1p-53;
  const double rest = std::fma(x, x, -product);  // exact, down to the bound below
  const bool clear_of_boundary = std::abs(rest) < 0.875 * half_unit;
  // At a power of two the spacing changes; near the ends of the range `rest` is not exact.
  if (clear_of_boundary && (bits & kMantissa) != 0 && product > 0x1p-900 && product < 0x1p1000)
      [[likely]]
    return product;
  // Read at run time: with a constant 2 the compiler would turn the call into x * x.
  static const volatile double two = 2.0;
  return std::pow(x, two);
#endif
}

// `x ** 2` on a float32 scalar: libm's `powf`.
inline float numpy_square(float x) {
#ifdef STEPMILL_GPU
  return x * x;
#else
  static const volatile float two = 2.0F;
  return ::powf(x, two);
#endif
}

// `x % y` for y > 0: the result has the sign of y.
inline double numpy_remainder(double x, double y) {
  double rest = std::abs(x) < y ? x : std::fmod(x, y);  // the call is slow, and seldom needed
  if (rest == 0.0) return 0.0;
  if (rest < 0.0) rest += y;
  return rest;
}

// np.clip, which lets NaN through, that of a bound too, and gives `high` where the bounds exclude each other.
template <class T>
T numpy_clip(T x, T low, T high) {
  const T raised = x < low || low != low ? low : x;
  return raised > high || high != high ? high : raised;
}

}  // namespace stepmill
