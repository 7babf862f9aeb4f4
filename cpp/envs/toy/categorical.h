// Draws from a list of probabilities, as Gymnasium's toy text envs do.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace stepmill {

// Where a step may lead: three alternatives, drawn by one number in [0, 1).
class ThreeWay {
 public:
  constexpr ThreeWay(double first, double second, double third)
      : probability_{first, second, third},
        cumulative_{first, first + second, first + second + third} {}

  // The first alternative whose cumulative probability is above `number`. Sums may stop short of 1;
  // a number beyond them falls to the first alternative, as numpy's argmax does.
  int draw(double number) const {
    for (int i = 0; i < 3; ++i)
      if (cumulative_[i] > number) return i;
    return 0;
  }
  double probability(int index) const { return probability_[index]; }

 private:
  std::array<double, 3> probability_, cumulative_;
};

// Where a number in [0, 1) falls among `count` sums of probabilities: the first one above it. Beyond the last lies -1.
inline std::int64_t first_above(const double* sums, std::int64_t count, double number) {
  const double* above = std::upper_bound(sums, sums + count, number);
  return above == sums + count ? -1 : above - sums;
}

// The sums of as many probabilities that are all equal, as numpy adds them.
constexpr void add_up_equal(double* sums, std::int64_t count) {
  const double share = 1.0 / static_cast<double>(count);
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sums[i] = sum += share;
}

// Some of an env's states, all equally likely to be the first one.
template <std::size_t kCount>
class UniformStart {
 public:
  explicit constexpr UniformStart(const std::array<std::int32_t, kCount>& states) : states_(states), sums_{} {
    add_up_equal(sums_.data(), kCount);
  }

  // As ThreeWay::draw, over all states of the env: beyond the sum lies state 0, start or not.
  std::int32_t draw(double number) const {
    const std::int64_t i = first_above(sums_.data(), kCount, number);
    return i < 0 ? 0 : states_[static_cast<std::size_t>(i)];
  }

 private:
  std::array<std::int32_t, kCount> states_;
  std::array<double, kCount> sums_;
};

}  // namespace stepmill
