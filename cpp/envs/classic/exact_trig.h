// sin and cos of many small angles at once, equal to libm's bit for bit.
//
// libm's sin and cos branch on the angle and cannot be inlined; together they are most of the cost
// of a CartPole step. Here both come from Taylor polynomials evaluated in doubled precision, as a
// rounded value `high` and what the rounding left, `low`. glibc's functions err by at most 0.52 units
// in the last place (its sources give 0.518 for sin and 0.51 for cos in this range). So where `low`
// lies clear of the midpoint between two doubles by more than that, libm can only have returned
// `high` too. Where it does not (one angle in thirteen), libm itself is asked.
//
// cpp/tests/envs/exact_trig_test.cpp holds this against libm over millions of angles.
#pragma once

#include <cmath>
#include <cstdint>

namespace stepmill {

inline constexpr int kTrigBlock = 64;

// Whether this machine evaluates the polynomials fast: they need fused multiply-add.
#if defined(STEPMILL_GPU)
#define STEPMILL_VECTOR_TARGET
inline bool has_fast_fma() { return true; }
#elif defined(__aarch64__)
#define STEPMILL_VECTOR_TARGET
inline bool has_fast_fma() { return true; }
#elif defined(__x86_64__)
#define STEPMILL_VECTOR_TARGET __attribute__((target("avx2,fma")))
inline bool has_fast_fma() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}
#else
#define STEPMILL_VECTOR_TARGET
inline bool has_fast_fma() { return false; }
#endif

// Divides by a constant without a division: a product with the reciprocal, corrected by what it
// missed. Correctly rounded, hence equal to `/`, because the reciprocal is (Markstein's theorem) and
// no value here comes near underflow. A division takes a vector unit ten times as long.
struct DivideFused {
  [[gnu::always_inline]] double operator()(double a, double b) const {
    const double reciprocal = 1.0 / b;  // b is a constant: so is this
    const double guess = a * reciprocal;
    return std::fma(std::fma(-guess, b, a), reciprocal, guess);
  }
};

namespace exact_trig {

// The polynomials hold up to this angle; below the least one x**2 would lose bits.
inline constexpr double kMost = 0.25, kLeast = 0x1p-26;

// 0.5 / (0.5 - 0.52 + 0.5): how far `low` is stretched before it must still round away, with our own
// error (below 0.002 units in the last place) on top.
inline constexpr double kStretch = 1.046;

// What libm must be asked for.
inline constexpr std::int64_t kSine = 1, kCosine = 2;

// Fills sine and cosine, and sets `unsure` where libm must be asked.
STEPMILL_VECTOR_TARGET inline void evaluate(const double* __restrict angle, double* __restrict sine,
                                            double* __restrict cosine,
                                            std::int64_t* __restrict unsure, int count) {
  for (int i = 0; i < count; ++i) {
    const double x = angle[i];
    const double square = x * x, square_low = std::fma(x, x, -square);

    // sin x = x + x**3 * (-1/6 + x**2 * (...)): the product in two parts, then the sum in two parts.
    double tail = std::fma(square, 1.0 / 6227020800.0, -1.0 / 39916800.0);
    tail = std::fma(square, tail, 1.0 / 362880.0);
    tail = std::fma(square, tail, -1.0 / 5040.0);
    tail = square * std::fma(square, tail, 1.0 / 120.0);
    constexpr double kSixth = -1.0 / 6.0, kSixthLow = -0x1.5555555555555p-57;
    const double factor = kSixth + tail, factor_low = ((kSixth - factor) + tail) + kSixthLow;
    const double cube = x * square, cube_low = std::fma(x, square, -cube) + x * square_low;
    const double term = cube * factor;
    const double term_low =
        std::fma(cube, factor, -term) + std::fma(cube_low, factor, cube * factor_low);
    const double sum = x + term, sum_low = ((x - sum) + term) + term_low;
    const double sine_high = sum + sum_low, sine_low = sum_low - (sine_high - sum);

    // cos x = 1 - x**2 / 2 + x**4 * (...)
    double rest = std::fma(square, 1.0 / 479001600.0, -1.0 / 3628800.0);
    rest = std::fma(square, rest, 1.0 / 40320.0);
    rest = std::fma(square, rest, -1.0 / 720.0);
    rest = std::fma(square, rest, 1.0 / 24.0);
    const double half = 0.5 * square, base = 1.0 - half;
    const double base_low =
        ((1.0 - base) - half) + std::fma(square * square, rest, -0.5 * square_low);
    const double cosine_high = base + base_low, cosine_low = base_low - (cosine_high - base);

    sine[i] = sine_high;
    cosine[i] = cosine_high;
    const double size = std::fabs(x);
    const bool in_range = (size <= kMost) & (size >= kLeast);
    const bool sine_sure = in_range & (sine_high + sine_low * kStretch == sine_high);
    const bool cosine_sure = in_range & (cosine_high + cosine_low * kStretch == cosine_high);
    unsure[i] = (sine_sure ? 0 : kSine) | (cosine_sure ? 0 : kCosine);
  }
}

}  // namespace exact_trig

#ifdef STEPMILL_GPU
// There is no libm to ask: a rounded value is as good as any. Beyond the polynomials, see `gpu/sine.h`.
inline void exact_sin_cos(const double* angle, double* sine, double* cosine, int count) {
  std::int64_t unsure[kTrigBlock];
  exact_trig::evaluate(angle, sine, cosine, unsure, count);
  for (int i = 0; i < count; ++i) {
    const double size = std::fabs(angle[i]);
    if ((size <= exact_trig::kMost) & (size >= exact_trig::kLeast)) [[likely]]
      continue;
    sine[i] = std::sin(angle[i]);
    cosine[i] = std::cos(angle[i]);
  }
}
#else
// sine[i] = sin(angle[i]) and cosine[i] = cos(angle[i]), for at most kTrigBlock angles.
inline void exact_sin_cos(const double* angle, double* sine, double* cosine, int count) {
  std::int64_t unsure[kTrigBlock];
  if (has_fast_fma())
    exact_trig::evaluate(angle, sine, cosine, unsure, count);
  else
    for (int i = 0; i < count; ++i) unsure[i] = exact_trig::kSine | exact_trig::kCosine;
  for (int i = 0; i < count; ++i) {
    if (!unsure[i]) [[likely]]
      continue;
    if (unsure[i] & exact_trig::kSine) sine[i] = std::sin(angle[i]);
    if (unsure[i] & exact_trig::kCosine) cosine[i] = std::cos(angle[i]);
  }
}
#endif

}  // namespace stepmill
