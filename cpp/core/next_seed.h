// A different seed for an env that is built again: with the same one it would play the same episodes.
#pragma once

#include <cstdint>

namespace stepmill {

// `life`: how often it was built before.
constexpr std::uint64_t next_seed(std::uint64_t seed, std::uint32_t life) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (life + std::uint64_t{1});
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) >> 33;  // below 2^31: numpy's old generator and many simulators take no more
}

}  // namespace stepmill
