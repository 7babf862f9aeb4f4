// A number of float16, which C++20 does not have.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace stepmill {

class Half {
 public:
  Half() = default;
  // The nearest one; infinity if the number is too large. With integers, since numpy's conversion raises what the user
  // made of `np.seterr`, and needs the interpreter lock.
  explicit Half(double number) : bits_(static_cast<std::uint16_t>((std::bit_cast<std::uint64_t>(number) >> 48) & kSign)) {
    const double size = std::abs(number);
    const auto wide = std::bit_cast<std::uint64_t>(size);
    if (size < 0x1p-14) {  // these are multiples of 2^-24, which is the last bit of a number from 2^28 on
      bits_ |= static_cast<std::uint16_t>(std::bit_cast<std::uint64_t>(size + 0x1p28));
    } else if (size == size) {
      const std::uint64_t rounded = (wide + ((std::uint64_t{1} << 41) - 1) + ((wide >> 42) & 1)) >> 42;  // halves to even
      bits_ |= static_cast<std::uint16_t>(std::min(rounded - kBias, std::uint64_t{kInfinity}));
    } else {
      bits_ |= static_cast<std::uint16_t>(kQuietNan | ((wide >> 42) & 0x3ff));
    }
  }

  explicit operator double() const {
    const int exponent = (bits_ & kInfinity) >> 10, digits = bits_ & 0x3ff;
    double size = exponent == 0 ? std::ldexp(digits, -24) : std::ldexp(digits + 0x400, exponent - 25);
    if (exponent == 31) size = digits == 0 ? HUGE_VAL : NAN;
    return bits_ & kSign ? -size : size;
  }

  bool is_nan() const { return (bits_ & ~kSign) > kInfinity; }
  // Not for NaN.
  friend bool operator<(Half a, Half b) { return a.place() < b.place(); }

 private:
  static constexpr std::uint16_t kSign = 0x8000, kInfinity = 0x7c00, kQuietNan = 0x7e00;
  static constexpr std::uint64_t kBias = (1023 - 15) << 10;

  // Among all of them, in order. Without a branch, which would be guessed wrong for half of the numbers.
  int place() const {
    const int sign = -(bits_ >> 15);
    return ((bits_ & ~kSign) ^ sign) - sign;
  }

  std::uint16_t bits_ = 0;
};
static_assert(sizeof(Half) == 2);

}  // namespace stepmill
