// What an agent sees of an Atari game: grey or coloured pictures, the maximum of two, made smaller, the last few stacked.
//
// The emulator itself is called in Python (it is GPL: never linked). It gives its screen as colour numbers in 1.4 µs, and
// in grey in 28: so we translate, with a table that is learned from the emulator, colour by colour.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "envs/atari/area_resize.h"

namespace stepmill {

// The greys of colour numbers, as far as they are known.
class GreyTable {
 public:
  GreyTable() { std::fill(std::begin(entry_), std::end(entry_), kUnknown); }

  // Whether all colours were known. Screens have large areas of one colour, and rows that repeat.
  bool translate(const std::uint8_t* screen, std::uint8_t* grey, int height, int width) const {
    std::uint16_t seen = 0;
    for (int y = 0; y < height; ++y, screen += width, grey += width) {
      if (y > 0 && std::memcmp(screen, screen - width, static_cast<std::size_t>(width)) == 0)
        std::memcpy(grey, grey - width, static_cast<std::size_t>(width));
      else
        seen |= translate_row(screen, grey, width);
    }
    return (seen & kUnknown) == 0;
  }

  // Takes the greys of a screen from the emulator's own picture.
  void learn(const std::uint8_t* screen, const std::uint8_t* grey, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) entry_[screen[i]] = grey[i];
  }

 private:
  static constexpr std::uint16_t kUnknown = 0x100;
  static constexpr std::uint64_t kEach = 0x0101010101010101;

  std::uint16_t translate_row(const std::uint8_t* screen, std::uint8_t* grey, int width) const {
    std::uint16_t seen = 0;
    int x = 0;
    for (; x + 8 <= width; x += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, screen + x, 8);
      if (eight == kEach * screen[x]) {
        const std::uint16_t one = entry_[screen[x]];
        seen |= one;
        eight = kEach * (one & 0xff);
        std::memcpy(grey + x, &eight, 8);
        continue;
      }
      for (int i = x; i < x + 8; ++i) {
        const std::uint16_t one = entry_[screen[i]];
        seen |= one;
        grey[i] = static_cast<std::uint8_t>(one);
      }
    }
    for (; x < width; ++x) {
      const std::uint16_t one = entry_[screen[x]];
      seen |= one;
      grey[x] = static_cast<std::uint8_t>(one);
    }
    return seen;
  }

  std::uint16_t entry_[256];
};

// The colours of colour numbers, as far as they are known: to draw a screen that the emulator no longer has.
class ColourTable {
 public:
  // Screens have large areas of one colour, and rows that repeat.
  bool knows(const std::uint8_t* screen, int height, int width) const {
    std::uint32_t all = kKnown;
    for (int y = 0; y < height; ++y, screen += width) {
      if (y > 0 && std::memcmp(screen, screen - width, static_cast<std::size_t>(width)) == 0) continue;
      for (int x = 0; x < width; ++x)
        if (x == 0 || screen[x] != screen[x - 1]) all &= entry_[screen[x]];
    }
    return (all & kKnown) != 0;
  }

  // Takes the colours of a screen from the emulator's own picture, which is red, green, blue for each pixel.
  void learn(const std::uint8_t* screen, const std::uint8_t* picture, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i, picture += 3)
      entry_[screen[i]] = kKnown | static_cast<std::uint32_t>(picture[0] << 16 | picture[1] << 8 | picture[2]);
  }

  void draw(const std::uint8_t* screen, std::uint8_t* picture, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i)
      for (const int shift : {16, 8, 0}) *picture++ = static_cast<std::uint8_t>(entry_[screen[i]] >> shift);
  }

  std::span<std::uint8_t> bytes() { return {reinterpret_cast<std::uint8_t*>(entry_), sizeof(entry_)}; }

 private:
  static constexpr std::uint32_t kKnown = 1 << 24;

  std::uint32_t entry_[256] = {};
};

// Rows of bytes, written without those that repeat: of the pictures of a game, that is most of them.
class RowPacker {
 public:
  // `period`: after how many rows the next picture begins, which may be like the one before it.
  RowPacker(std::span<std::uint8_t> rows, std::size_t row_bytes, std::size_t period)
      : rows_(rows.data()), row_bytes_(row_bytes), period_(period), count_(rows.size() / row_bytes) {}

  void pack(std::vector<std::uint8_t>& to) const {
    const std::size_t kinds = to.size();
    to.resize(kinds + count_);
    for (std::size_t i = 0; i < count_; ++i) {
      to[kinds + i] = i >= 1 && equal(i, i - 1) ? kAbove : i >= period_ && equal(i, i - period_) ? kBefore : kWritten;
      if (to[kinds + i] == kWritten) to.insert(to.end(), at(i), at(i) + row_bytes_);
    }
  }

  // How many of the first bytes `pack` has written; 0: none, as these are something else.
  std::size_t packed_size(std::span<const std::uint8_t> from) const {
    if (from.size() < count_ || from[0] != kWritten) return 0;
    std::size_t size = count_;
    for (std::size_t i = 0; i < count_; ++i) {
      if (from[i] > kBefore || (from[i] == kBefore && i < period_)) return 0;
      if (from[i] == kWritten) size += row_bytes_;
    }
    return size <= from.size() ? size : 0;
  }

  void unpack(std::span<const std::uint8_t> from) const {
    const std::uint8_t* written = from.data() + count_;
    for (std::size_t i = 0; i < count_; ++i) {
      std::memcpy(at(i), from[i] == kWritten ? written : at(i - (from[i] == kAbove ? 1 : period_)), row_bytes_);
      if (from[i] == kWritten) written += row_bytes_;
    }
  }

 private:
  static constexpr std::uint8_t kWritten = 0, kAbove = 1, kBefore = 2;

  std::uint8_t* at(std::size_t row) const { return rows_ + row * row_bytes_; }
  bool equal(std::size_t row, std::size_t other) const { return std::memcmp(at(row), at(other), row_bytes_) == 0; }

  std::uint8_t* rows_;
  std::size_t row_bytes_, period_, count_;
};

struct FrameSizes {   // all >= 1
  int height, width;  // of the screen
  int channels;       // of a picture: 1 for grey, 3 for red, green, blue
  int new_height, new_width;
  int stack;

  std::size_t screen_bytes() const { return static_cast<std::size_t>(height) * static_cast<std::size_t>(width); }
  std::size_t picture_bytes() const { return screen_bytes() * static_cast<std::size_t>(channels); }
  std::size_t frame_bytes() const {
    return static_cast<std::size_t>(new_height) * static_cast<std::size_t>(new_width) * static_cast<std::size_t>(channels);
  }
};

// Where the frames are; the caller owns the memory. `pictures` has two, one behind the other: the newest, which also
// takes the maximum of both, and the one before it. `stack` has the last frames, oldest first, one plane per channel.
struct FrameMemory {
  std::uint8_t *screen, *pictures, *stack;
};

class Frames {
 public:
  Frames(const FrameSizes& sizes, const FrameMemory& memory, bool fused)
      : sizes_(sizes),
        memory_(memory),
        fused_(fused),
        resize_(sizes.height, sizes.width, sizes.channels, sizes.new_height, sizes.new_width) {}

  // The screen in grey, as picture 0 or 1. False: it has a colour whose grey is unknown; `learn` it.
  bool translate(int picture) {
    return greys_.translate(memory_.screen, picture_at(picture), sizes_.height, sizes_.width);
  }

  // Takes the greys of the screen from a picture of it, which the emulator has drawn.
  void learn(int picture) { greys_.learn(memory_.screen, picture_at(picture), sizes_.screen_bytes()); }

  // Drops the oldest frame of the stack: the place of the newest is free. `of_both`: for the maximum of both pictures.
  void shift(bool of_both) {
    if (of_both) maximum();
    const std::size_t bytes = sizes_.frame_bytes();
    std::memmove(memory_.stack, memory_.stack + bytes, bytes * static_cast<std::size_t>(sizes_.stack - 1));
  }

  // The newest picture, or the maximum of both, made smaller, becomes the newest frame of the stack.
  void push(bool of_both) {
    shift(of_both);
    resize_(fused_, memory_.pictures, newest_frame());
  }

  // All frames become the newest.
  void repeat() {
    const std::size_t bytes = sizes_.frame_bytes();
    for (int i = 0; i + 1 < sizes_.stack; ++i)
      std::memcpy(memory_.stack + static_cast<std::size_t>(i) * bytes, newest_frame(), bytes);
  }

  // Whether `draw` knows all colours of the screen. If not: `learn_colours` from a picture of it.
  bool knows_colours() const { return colours_.knows(memory_.screen, sizes_.height, sizes_.width); }
  void learn_colours(const std::uint8_t* picture) { colours_.learn(memory_.screen, picture, sizes_.screen_bytes()); }
  void draw(std::uint8_t* picture) const { colours_.draw(memory_.screen, picture, sizes_.screen_bytes()); }

  // The screen, both pictures, the stack and the known colours.
  std::vector<std::uint8_t> packed() {
    std::vector<std::uint8_t> out;
    out.reserve(sizes_.screen_bytes());
    for (const RowPacker& one : packers()) one.pack(out);
    return out;
  }

  // False, and nothing has changed: it was not packed here, or by frames of other sizes.
  bool unpack(std::span<const std::uint8_t> packed) {
    std::span<const std::uint8_t> rest = packed;
    for (const RowPacker& one : packers()) {
      const std::size_t size = one.packed_size(rest);
      if (size == 0) return false;
      rest = rest.subspan(size);
    }
    if (!rest.empty()) return false;
    for (const RowPacker& one : packers()) {
      one.unpack(packed);
      packed = packed.subspan(one.packed_size(packed));
    }
    return true;
  }

 private:
  std::array<RowPacker, 4> packers() {
    const auto height = static_cast<std::size_t>(sizes_.height), width = static_cast<std::size_t>(sizes_.width);
    const auto channels = static_cast<std::size_t>(sizes_.channels), stack = static_cast<std::size_t>(sizes_.stack);
    return {RowPacker({memory_.screen, sizes_.screen_bytes()}, width, height),
            RowPacker({memory_.pictures, 2 * sizes_.picture_bytes()}, width * channels, height),
            RowPacker({memory_.stack, stack * sizes_.frame_bytes()}, static_cast<std::size_t>(sizes_.new_width),
                      channels * static_cast<std::size_t>(sizes_.new_height)),
            RowPacker(colours_.bytes(), 16, 64)};
  }

  // The maximum of both pictures becomes the newest one.
  void maximum() {
    std::uint8_t* __restrict newest = memory_.pictures;
    const std::uint8_t* __restrict before = memory_.pictures + sizes_.picture_bytes();
    const std::size_t bytes = sizes_.picture_bytes();
    for (std::size_t i = 0; i < bytes; ++i) newest[i] = std::max(newest[i], before[i]);
  }

  std::uint8_t* picture_at(int picture) const {
    if (picture != 0 && picture != 1) throw std::invalid_argument("frames: expected picture 0 or 1");
    if (sizes_.channels != 1) throw std::invalid_argument("frames: expected grey pictures");
    return memory_.pictures + static_cast<std::size_t>(picture) * sizes_.picture_bytes();
  }

  std::uint8_t* newest_frame() const {
    return memory_.stack + static_cast<std::size_t>(sizes_.stack - 1) * sizes_.frame_bytes();
  }

  FrameSizes sizes_;
  FrameMemory memory_;
  bool fused_;
  GreyTable greys_;
  ColourTable colours_;
  AreaResize resize_;
};

}  // namespace stepmill
