// sin and cos as close as a double can be: for angles up to 2**16 within 0.501 of a unit in the last place, where the GPU's
// own err by 1.5 and the host's by 0.52. So an env on a GPU moves like on the host, but for the last bit of few angles.
// Up to 2**20, next to multiples of pi/2, they err by 1.07.
//
// The angle is reduced by a multiple of pi/2, and Taylor's polynomial evaluated, both in pairs: a rounded value and what
// the rounding left.
#pragma once

#include <cstdint>

namespace stepmill::gpu {

namespace sine_parts {

struct Pair {
  double high, low;
};

// The sum of two numbers of which the first is larger.
inline Pair fast_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}
inline Pair sum(double a, double b) {
  const double both = a + b, part = both - a;
  return {both, (a - (both - part)) + (b - part)};
}
inline Pair plus(Pair a, Pair b) {
  const Pair high = sum(a.high, b.high);
  return fast_sum(high.high, high.low + (a.low + b.low));
}
inline Pair times(Pair a, Pair b) {
  const double high = a.high * b.high;
  return fast_sum(high, ::fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high));
}

// Beyond this the first product below would be rounded.
inline constexpr double kMost = 0x1p20;

// An angle less a multiple of pi/2, of which the quadrant is that multiple.
inline Pair reduced(double angle, std::int64_t& quadrant) {
  constexpr double kFirst = 0x1.921fb544p+0, kSecond = 0x1.0b4611a6p-34;  // pi/2 in parts: of 33 bits each,
  constexpr double kThird = 0x1.3198a2e037073p-69;                      // and the rest
  constexpr double kRounder = 0x1.8p52;                                 // adding it rounds to a whole number
  const double turns = (angle * 0x1.45f306dc9c883p-1 + kRounder) - kRounder;
  quadrant = static_cast<std::int64_t>(turns);
  const double first = angle - turns * kFirst;
  const Pair second = sum(first, -turns * kSecond);
  return fast_sum(second.high, second.low - turns * kThird);
}

// For angles of at most pi/4 or so. The coefficients are 1 / n!, those that matter most in pairs.
inline double sine(Pair x) {
  const Pair square = times(x, x);
  const double z = square.high;
  double tail = ::fma(z, 1.0 / 51090942171709440000.0, -1.0 / 121645100408832000.0);
  tail = ::fma(z, tail, 1.0 / 355687428096000.0);
  tail = ::fma(z, tail, -1.0 / 1307674368000.0);
  tail = ::fma(z, tail, 1.0 / 6227020800.0);
  tail = ::fma(z, tail, -1.0 / 39916800.0);
  tail = ::fma(z, tail, 1.0 / 362880.0);
  tail = z * ::fma(z, tail, -1.0 / 5040.0);
  const Pair inner = plus({1.0 / 120.0, 0x1.1111111111111p-63}, {tail, 0.0});
  const Pair outer = plus({-1.0 / 6.0, -0x1.5555555555555p-57}, times(square, inner));
  const Pair cubic = times(times(square, x), outer);
  const Pair both = plus(x, cubic);
  return both.high + both.low;
}
inline double cosine(Pair x) {
  const Pair square = times(x, x);
  const double z = square.high;
  double tail = ::fma(z, 1.0 / 2432902008176640000.0, -1.0 / 6402373705728000.0);
  tail = ::fma(z, tail, 1.0 / 20922789888000.0);
  tail = ::fma(z, tail, -1.0 / 87178291200.0);
  tail = ::fma(z, tail, 1.0 / 479001600.0);
  tail = ::fma(z, tail, -1.0 / 3628800.0);
  tail = z * ::fma(z, tail, 1.0 / 40320.0);
  const Pair inner = plus({-1.0 / 720.0, 0x1.f49f49f49f49fp-65}, {tail, 0.0});
  const Pair middle = plus({1.0 / 24.0, 0x1.5555555555555p-59}, times(square, inner));
  const Pair outer = plus({-0.5, 0.0}, times(square, middle));
  const Pair both = plus({1.0, 0.0}, times(square, outer));
  return both.high + both.low;
}

// The sine of an angle that is so many quadrants further on.
inline double at(Pair x, std::int64_t quadrant) {
  const double value = quadrant & 1 ? cosine(x) : sine(x);
  return quadrant & 2 ? -value : value;
}

}  // namespace sine_parts

inline double sine(double angle) {
  if (!(::fabs(angle) < sine_parts::kMost)) return ::sin(angle);
  if (::fabs(angle) < 0x1p-27) return angle;  // and keeps -0.0
  std::int64_t quadrant;
  const sine_parts::Pair x = sine_parts::reduced(angle, quadrant);
  return sine_parts::at(x, quadrant);
}
inline double cosine(double angle) {
  if (!(::fabs(angle) < sine_parts::kMost)) return ::cos(angle);
  std::int64_t quadrant;
  const sine_parts::Pair x = sine_parts::reduced(angle, quadrant);
  return sine_parts::at(x, quadrant + 1);
}

}  // namespace stepmill::gpu
