// Makes pictures smaller: every new pixel is the average of the area it covers. Equal to OpenCV's INTER_AREA bit for bit,
// where the new size is not a whole fraction of the old one; for whole fractions, and for larger pictures, OpenCV
// computes differently, and so `fits` is false.
//
// OpenCV sums float32 products, first along a row, then over the rows. Whether a product is fused with its sum depends
// on how OpenCV was compiled: Python finds out at start (stepmill/zoo/atari/frames.py).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace stepmill {

#if defined(__x86_64__)
#define STEPMILL_FMA_TARGET __attribute__((target("avx2,fma")))
inline bool has_fma() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}
#else
#define STEPMILL_FMA_TARGET
inline bool has_fma() { return true; }
#endif

// One direction: new pixel i is the sum of `taps` old ones from first[i] on, times weight[i * taps + k]. All have the
// same number of taps, so some weights are 0.
struct AreaAxis {
  AreaAxis(int from, int to) : first(static_cast<std::size_t>(to)) {
    const double scale = static_cast<double>(from) / to;
    std::vector<std::vector<float>> weights(static_cast<std::size_t>(to));
    for (int i = 0; i < to; ++i) {
      const double begin = i * scale, end = begin + scale;
      const double width = std::min(scale, from - begin);  // of the area
      int whole = static_cast<int>(std::ceil(begin)), last = static_cast<int>(std::floor(end));
      last = std::min(last, from - 1);
      whole = std::min(whole, last);
      auto& own = weights[static_cast<std::size_t>(i)];
      first[static_cast<std::size_t>(i)] = whole;
      if (whole - begin > kNothing) {
        first[static_cast<std::size_t>(i)] = whole - 1;
        own.push_back(static_cast<float>((whole - begin) / width));
      }
      for (int k = whole; k < last; ++k) own.push_back(static_cast<float>(1.0 / width));
      if (end - last > kNothing) own.push_back(static_cast<float>(std::min(std::min(end - last, 1.0), width) / width));
      taps = std::max(taps, static_cast<int>(own.size()));
    }
    weight.resize(static_cast<std::size_t>(to * taps));
    for (int i = 0; i < to; ++i) {
      const auto& own = weights[static_cast<std::size_t>(i)];
      // Unused taps come last, except at the far edge, where they would be outside of the picture.
      int& begin = first[static_cast<std::size_t>(i)];
      const int ahead = std::max(0, begin + taps - from);
      begin -= ahead;
      std::copy(own.begin(), own.end(), weight.begin() + i * taps + ahead);
    }
  }

  static constexpr double kNothing = 1e-3;  // OpenCV leaves out a smaller part of a pixel

  int taps = 0;
  std::vector<int> first;
  std::vector<float> weight;
};

class AreaResize {
 public:
  // `channels` interleaved values per pixel, as in (height, width, channels).
  AreaResize(int height, int width, int channels, int new_height, int new_width)
      : height_(height),
        width_(width),
        channels_(channels),
        new_height_(new_height),
        new_width_(new_width),
        rows_(height, new_height),
        columns_(width, new_width),
        sums_(static_cast<std::size_t>(height) * static_cast<std::size_t>(channels * new_width)),
        sums_of_(static_cast<std::size_t>(height)) {}

  static bool fits(int height, int width, int new_height, int new_width) {
    const bool smaller = new_height <= height && new_width <= width;
    return smaller && (height % new_height != 0 || width % new_width != 0);
  }

  // `to` is (channels, new_height, new_width): one plane per channel.
  void operator()(bool fused, const std::uint8_t* from, std::uint8_t* to) {
    if (!fused) return resize<false>(from, to);
    if (has_fma()) return resize_fused(from, to);
    resize<true>(from, to);  // libm's fma: slow, and the same
  }

 private:
  STEPMILL_FMA_TARGET void resize_fused(const std::uint8_t* from, std::uint8_t* to) { resize<true>(from, to); }

  template <bool kFused>
  [[gnu::always_inline]] inline void resize(const std::uint8_t* from, std::uint8_t* to) {
    const auto row_bytes = static_cast<std::size_t>(width_ * channels_);
    const auto plane = static_cast<std::size_t>(new_width_);
    float* sums = sums_.data();
    for (int y = 0; y < height_; ++y) {
      const std::uint8_t* row = from + static_cast<std::size_t>(y) * row_bytes;
      // Rows of a game often repeat: the same sums serve for both.
      if (y > 0 && std::memcmp(row, row - row_bytes, row_bytes) == 0) {
        sums_of_[static_cast<std::size_t>(y)] = sums_of_[static_cast<std::size_t>(y) - 1];
        continue;
      }
      sums_of_[static_cast<std::size_t>(y)] = sums;
      for (int channel = 0; channel < channels_; ++channel, sums += plane) along_row<kFused>(row + channel, sums);
    }
    for (int channel = 0; channel < channels_; ++channel)
      for (int y = 0; y < new_height_; ++y, to += plane) over_rows<kFused>(y, channel, to);
  }

  template <bool kFused>
  [[gnu::always_inline]] inline void along_row(const std::uint8_t* row, float* sums) const {
    if (columns_.taps == 3 && channels_ == 1) return along_row<kFused, 3, 1>(row, sums);  // 160 to 84, and the like
    along_row<kFused, 0, 0>(row, sums);
  }

  template <bool kFused, int kTaps, int kChannels>
  [[gnu::always_inline]] inline void along_row(const std::uint8_t* row, float* __restrict sums) const {
    const int taps = kTaps ? kTaps : columns_.taps, channels = kChannels ? kChannels : channels_;
    const int* first = columns_.first.data();
    const float* weight = columns_.weight.data();
    for (int x = 0; x < new_width_; ++x, weight += taps) {
      const std::uint8_t* pixel = row + first[x] * channels;
      float sum = 0.0f;
      for (int k = 0; k < taps; ++k) sum = plus_product<kFused>(sum, static_cast<float>(pixel[k * channels]), weight[k]);
      sums[x] = sum;
    }
  }

  template <bool kFused>
  [[gnu::always_inline]] inline void over_rows(int y, int channel, std::uint8_t* __restrict to) const {
    const auto offset = static_cast<std::size_t>(channel * new_width_);
    const auto row = static_cast<std::size_t>(rows_.first[static_cast<std::size_t>(y)]);
    const float* weight = &rows_.weight[static_cast<std::size_t>(y * rows_.taps)];
    if (rows_.taps == 3) {
      const float *a = sums_of_[row] + offset, *b = sums_of_[row + 1] + offset, *c = sums_of_[row + 2] + offset;
      const float p = weight[0], q = weight[1], r = weight[2];
      for (int x = 0; x < new_width_; ++x)
        to[x] = rounded(plus_product<kFused>(plus_product<kFused>(a[x] * p, b[x], q), c[x], r));
      return;
    }
    for (int x = 0; x < new_width_; ++x) {
      float sum = 0.0f;
      for (int k = 0; k < rows_.taps; ++k)
        sum = plus_product<kFused>(sum, sums_of_[row + static_cast<std::size_t>(k)][offset + static_cast<std::size_t>(x)],
                                   weight[k]);
      to[x] = rounded(sum);
    }
  }

  template <bool kFused>
  [[gnu::always_inline]] static inline float plus_product(float sum, float a, float b) {
    return kFused ? __builtin_fmaf(a, b, sum) : sum + a * b;
  }

  // To the nearest, halves to the even one, for 0 to 255: from 2**23 on, floats have no fractions.
  [[gnu::always_inline]] static inline std::uint8_t rounded(float value) {
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value + 0x1.8p23f));
  }

  int height_, width_, channels_, new_height_, new_width_;
  AreaAxis rows_, columns_;
  std::vector<float> sums_;            // along each row that differs from the one above: a line per channel
  std::vector<const float*> sums_of_;  // which of these are those of each row
};

}  // namespace stepmill
