// Catch-v0: a ball falls one row per step, and a paddle on the last row should be under it.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include <stepmill/env.h>

namespace stepmill {

class Catch {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static std::vector<ConfigItem> configuration() {
    return {{"height", std::int64_t{10}}, {"width", std::int64_t{5}}};
  }

  static EnvSpec spec(const Config& config) {
    const std::int64_t height = config.integer("height"), width = config.integer("width");
    if (height < 2 || height > kLargest || width < 1 || width > kLargest)
      throw std::invalid_argument(
          "expected height from 2 and width from 1 to " + std::to_string(kLargest) +
          ", got height=" + std::to_string(height) + " and width=" + std::to_string(width));
    EnvSpec spec;
    spec.observation = {box<float>({height, width}, {0.0}, {1.0})};
    spec.action = {discrete(3)};
    return spec;
  }

  explicit Catch(const Config& config)
      : height_(config.integer("height")), width_(config.integer("width")) {}

  void reset(Rng& rng, const Options&) {
    ball_row_ = 0;
    ball_column_ = rng.integers(0, width_);
    paddle_ = width_ / 2;
  }

  Outcome step(const ActionRow& action, Rng&) {
    paddle_ = std::clamp<std::int64_t>(paddle_ + action.index() - 1, 0, width_ - 1);
    ball_row_ += 1;
    if (ball_row_ < height_ - 1) return {0.0, false, false};
    return {ball_column_ == paddle_ ? 1.0 : -1.0, true, false};
  }

  void observe(const Row& row) const {
    float* board = row.observation<float>();
    std::fill_n(board, height_ * width_, 0.0F);
    board[ball_row_ * width_ + ball_column_] = 1.0F;
    board[(height_ - 1) * width_ + paddle_] = 1.0F;
  }

 private:
  static constexpr std::int64_t kLargest = 4096;

  std::int64_t height_, width_;
  std::int64_t ball_row_ = 0, ball_column_ = 0, paddle_ = 0;
};

}  // namespace stepmill
