// numpy's distributions, for a GPU: on the host they are numpy's own code (`core/env/rng.h`). Equal bit by bit, which
// tests/device/cuda compares over millions of draws.
#pragma once

#include <cstdint>

#include "gpu/normal_tables.h"

namespace stepmill::gpu {

// offset + a whole number from 0 to `range`. Lemire's method: the high half of a product is the number, and the few low
// halves that would favour some numbers are drawn again.
template <class Bits>
inline std::uint64_t bounded_uint64(Bits& bits, std::uint64_t offset, std::uint64_t range) {
  constexpr std::uint64_t kAll32 = 0xffffffff;
  if (range == 0) return offset;
  if (range == kAll32) return offset + bits.next_uint32();
  if (range == ~std::uint64_t{0}) return offset + bits.next_uint64();
  if (range < kAll32) {
    const auto numbers = static_cast<std::uint32_t>(range + 1);
    std::uint64_t product = std::uint64_t{bits.next_uint32()} * numbers;
    auto low = static_cast<std::uint32_t>(product);
    if (low < numbers) {
      const std::uint32_t favoured = (0u - numbers) % numbers;
      while (low < favoured) {
        product = std::uint64_t{bits.next_uint32()} * numbers;
        low = static_cast<std::uint32_t>(product);
      }
    }
    return offset + (product >> 32);
  }
  using Wide = unsigned __int128;
  const std::uint64_t numbers = range + 1;
  Wide product = Wide{bits.next_uint64()} * numbers;
  auto low = static_cast<std::uint64_t>(product);
  if (low < numbers) {
    const std::uint64_t favoured = (0 - numbers) % numbers;
    while (low < favoured) {
      product = Wide{bits.next_uint64()} * numbers;
      low = static_cast<std::uint64_t>(product);
    }
  }
  return offset + static_cast<std::uint64_t>(product >> 64);
}

// Marsaglia and Tsang's ziggurat. Nearly every draw is one product; of the others, the exact curve decides.
template <class Bits>
inline double standard_normal(Bits& bits) {
  for (;;) {
    const std::uint64_t draw = bits.next_uint64();
    const auto layer = static_cast<int>(draw & 0xff);
    const bool is_negative = draw >> 8 & 1;
    const std::uint64_t place = draw >> 9 & 0xfffffffffffff;
    const double x = static_cast<double>(place) * kNormalWidth[layer];
    if (place < kNormalInside[layer]) return is_negative ? -x : x;
    if (layer == 0) {
      for (;;) {  // the tail, where the last bit is that of whose log1p it is; its sign is another bit
        const double beyond = -(1.0 / kNormalRight) * ::log1p(-bits.random());
        const double height = -::log1p(-bits.random());
        if (height + height > beyond * beyond)
          return place >> 8 & 1 ? -(kNormalRight + beyond) : kNormalRight + beyond;
      }
    }
    const double below = kNormalHeight[layer];
    if ((kNormalHeight[layer - 1] - below) * bits.random() + below < ::exp(-0.5 * x * x)) return is_negative ? -x : x;
  }
}

}  // namespace stepmill::gpu
