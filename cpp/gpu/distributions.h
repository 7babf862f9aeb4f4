// numpy's distributions, for a GPU: on the host they are numpy's own code (`core/env/rng.h`). Equal bit by bit, which
// tests/device/cuda compares over millions of draws.
#pragma once

#include <cstdint>

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

template <class Bits>
double standard_normal(Bits& bits);

}  // namespace stepmill::gpu
