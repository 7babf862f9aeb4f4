// Draws from a list of probabilities, as Gymnasium's toy text envs do.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace stepmill {

// Where a step may lead: three alternatives, drawn by one number in [0, 1).
class ThreeWay {
 public:
  ThreeWay(double first, double second, double third)
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

// Some of an env's states, all equally likely to be the first one.
class UniformStart {
 public:
  explicit UniformStart(std::vector<std::int32_t> states) : states_(std::move(states)) {
    const double share = 1.0 / static_cast<double>(states_.size());
    double sum = 0.0;
    for (std::size_t i = 0; i < states_.size(); ++i) cumulative_.push_back(sum += share);
  }

  // As ThreeWay::draw, over all states of the env: beyond the sum lies state 0, start or not.
  std::int32_t draw(double number) const {
    const auto above = std::upper_bound(cumulative_.begin(), cumulative_.end(), number);
    return above == cumulative_.end() ? 0 : states_[above - cumulative_.begin()];
  }

 private:
  std::vector<std::int32_t> states_;
  std::vector<double> cumulative_;
};

}  // namespace stepmill
