// What numpy does with float32 that depends on the installation: the CPU for sin and cos, the
// version for sums and products with Python numbers.
//
// stepmill asks the installed numpy once, at import, and sets both here; envs read them. Where
// nobody asks, the defaults hold: numpy 2 on a CPU with fused multiply-add.
#pragma once

#ifndef STEPMILL_GPU
#include <atomic>
#endif
#include <cmath>
#include <cstdint>

namespace stepmill {

// ---- sin and cos ------------------------------------------------------------------------------

// In the order in which to try them.
enum class Float32Trig : std::int32_t {
  kFusedPolynomial,  // numpy 2's vector loop, on CPUs with fused multiply-add
  kPolynomial,       // numpy 1's: the same, but the quadrant comes from two roundings
  kLibm,             // sinf and cosf: numpy's loop on other CPUs
  kRounded,          // float64 results, rounded
};
inline constexpr int kFloat32TrigCount = 4;

namespace float32_polynomial {

// An angle as quadrant * pi/2 + rest, with rest in [-pi/4, pi/4].
struct Reduced {
  float rest;
  std::int32_t quadrant;
};

// Cody and Waite: pi/2 in three parts, subtracted by fused steps, so that nothing is lost to
// cancellation. Adding and subtracting 1.5 * 2^23 rounds to the nearest whole number.
// Fused or not matters only within a rounding error of an odd multiple of pi/4.
template <bool fused>
Reduced reduce(float x) {
  constexpr float kTwoOverPi = 0x1.45f306p-1F, kRounder = 0x1.8p+23F;
  constexpr float kHigh = 0x1.921fb0p+0F, kMiddle = 0x1.5110b4p-22F, kLow = 0x1.846988p-48F;
  const float shifted = fused ? std::fma(x, kTwoOverPi, kRounder) : x * kTwoOverPi + kRounder;
  const float turns = shifted - kRounder;
  float rest = std::fma(turns, -kHigh, x);
  rest = std::fma(turns, -kMiddle, rest);
  rest = std::fma(turns, -kLow, rest);
  return {rest, static_cast<std::int32_t>(turns)};
}

// The minimax polynomials that numpy evaluates on the reduced range.
inline float sine(float x) {
  const float x2 = x * x;
  float sum = std::fma(0x1.7d3bbcp-19F, x2, -0x1.a06bbap-13F);
  sum = std::fma(sum, x2, 0x1.11119ap-7F);
  sum = std::fma(sum, x2, -0x1.555556p-3F);
  sum = std::fma(sum, x2, 0.0F);  // not a product: of -0.0 it makes 0.0, which keeps sin(-0.0)
  return std::fma(sum, x, x);
}
inline float cosine(float x) {
  const float x2 = x * x;
  float sum = std::fma(0x1.98e616p-16F, x2, -0x1.6c06dcp-10F);
  sum = std::fma(sum, x2, 0x1.55553cp-5F);
  sum = std::fma(sum, x2, -0.5F);
  return std::fma(sum, x2, 1.0F);
}

// The sine of `reduced`, `shift` quadrants further on.
inline float at_quadrant(const Reduced& reduced, std::int32_t shift) {
  const std::int32_t quadrant = reduced.quadrant + shift;
  const float value = quadrant & 1 ? cosine(reduced.rest) : sine(reduced.rest);
  return quadrant & 2 ? 0.0F - value : value;
}

// Beyond these the reduction loses accuracy, and numpy too turns to libm.
inline constexpr float kSinLimit = 117435.992F, kCosLimit = 71476.0625F;

template <bool fused>
float sin(float x) {
  return std::abs(x) <= kSinLimit ? at_quadrant(reduce<fused>(x), 0) : std::sin(x);
}
template <bool fused>
float cos(float x) {
  return std::abs(x) <= kCosLimit ? at_quadrant(reduce<fused>(x), 1) : std::cos(x);
}

}  // namespace float32_polynomial

// np.sin and np.cos of a float32 as one routine gives them: what the self-test compares.
inline float float32_sin(Float32Trig routine, float x) {
  switch (routine) {
    case Float32Trig::kFusedPolynomial: return float32_polynomial::sin<true>(x);
    case Float32Trig::kPolynomial: return float32_polynomial::sin<false>(x);
    case Float32Trig::kLibm: return std::sin(x);
    default: return static_cast<float>(std::sin(static_cast<double>(x)));
  }
}
inline float float32_cos(Float32Trig routine, float x) {
  switch (routine) {
    case Float32Trig::kFusedPolynomial: return float32_polynomial::cos<true>(x);
    case Float32Trig::kPolynomial: return float32_polynomial::cos<false>(x);
    case Float32Trig::kLibm: return std::cos(x);
    default: return static_cast<float>(std::cos(static_cast<double>(x)));
  }
}

// ---- float32 scalars beside Python numbers ------------------------------------------------------

enum class ScalarPromotion : std::int32_t {
  kKeepFloat32,  // numpy 2: np.float32(3) * 0.1 is float32
  kToFloat64,    // numpy 1: it is float64
};

// ---- the choice ---------------------------------------------------------------------------------

namespace numpy_choice {

#ifdef STEPMILL_GPU
// A kernel is compiled for what the host has chosen (`gpu/kernel.h`).
inline Float32Trig trig() { return static_cast<Float32Trig>(STEPMILL_FLOAT32_TRIG); }
inline ScalarPromotion promotion() { return static_cast<ScalarPromotion>(STEPMILL_SCALAR_PROMOTION); }
#else
inline std::atomic<Float32Trig> chosen_trig{Float32Trig::kFusedPolynomial};
inline std::atomic<ScalarPromotion> chosen_promotion{ScalarPromotion::kKeepFloat32};

inline Float32Trig trig() { return chosen_trig.load(std::memory_order_relaxed); }
inline ScalarPromotion promotion() { return chosen_promotion.load(std::memory_order_relaxed); }
#endif

}  // namespace numpy_choice

#ifndef STEPMILL_GPU
inline void select_float32_trig(Float32Trig kind) {
  numpy_choice::chosen_trig.store(kind, std::memory_order_relaxed);
}
inline void select_scalar_promotion(ScalarPromotion kind) {
  numpy_choice::chosen_promotion.store(kind, std::memory_order_relaxed);
}
#endif

inline float numpy_sin(float x) { return float32_sin(numpy_choice::trig(), x); }
inline float numpy_cos(float x) { return float32_cos(numpy_choice::trig(), x); }
inline bool scalars_keep_float32() { return numpy_choice::promotion() == ScalarPromotion::kKeepFloat32; }

}  // namespace stepmill
