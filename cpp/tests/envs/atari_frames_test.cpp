#include "envs/atari/frames.h"

#include <array>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/env/rng.h"
#include "tests/check.h"

namespace stepmill::atari_frames_test {

using Bytes = std::vector<std::uint8_t>;

Bytes noise(Rng& rng, std::size_t count, int colours = 256) {
  Bytes out(count);
  for (auto& one : out) one = static_cast<std::uint8_t>(rng.integers(0, colours));
  return out;
}

// How much of the old pixel k the new pixel i of an axis covers, as a share of all that it covers.
double share(int from, int to, int i, int k) {
  const double scale = static_cast<double>(from) / to;
  return std::max(0.0, std::min(k + 1.0, (i + 1) * scale) - std::max<double>(k, i * scale)) / scale;
}

double average(const Bytes& picture, int h, int w, int channels, int new_h, int new_w, int y, int x, int channel) {
  double sum = 0;
  for (int row = 0; row < h; ++row)
    if (const double part = share(h, new_h, y, row); part > 0)
      for (int column = 0; column < w; ++column)
        sum += part * share(w, new_w, x, column) *
               picture[static_cast<std::size_t>((row * w + column) * channels + channel)];
  return sum;
}

// ---- saved states --------------------------------------------------------------------------------------

TEST(frames_that_are_packed_and_unpacked_are_the_same) {
  Rng rng(3);
  for (const int channels : {1, 3}) {
    const FrameSizes sizes{21, 16, channels, 8, 7, 3};
    const std::size_t frame = sizes.frame_bytes();
    Bytes screen = noise(rng, sizes.screen_bytes(), 2), pictures = noise(rng, 2 * sizes.picture_bytes());
    Bytes stack = noise(rng, 3 * frame);
    std::copy_n(screen.begin() + 16, 16, screen.begin() + 32);      // a row that repeats
    std::copy_n(stack.begin(), frame / 2, stack.begin() + static_cast<std::ptrdiff_t>(frame));  // a frame that hardly changes
    Frames frames(sizes, {screen.data(), pictures.data(), stack.data()}, false);
    CHECK(!frames.knows_colours());
    Bytes colours(3 * sizes.screen_bytes()), drawn(colours.size());
    for (std::size_t i = 0; i < screen.size(); ++i)
      for (std::size_t k = 0; k < 3; ++k) colours[3 * i + k] = static_cast<std::uint8_t>(10 * screen[i] + k);
    frames.learn_colours(colours.data());
    CHECK(frames.knows_colours());

    const Bytes packed = frames.packed();
    CHECK(packed.size() < screen.size() + pictures.size() + stack.size() + 64 + 1024);
    Bytes other_screen(screen.size()), other_pictures(pictures.size()), other_stack(stack.size());
    Frames other(sizes, {other_screen.data(), other_pictures.data(), other_stack.data()}, false);
    for (const std::size_t size : {packed.size() - 1, std::size_t{0}, std::size_t{20}})
      CHECK(!other.unpack(std::span(packed).first(size)));
    Bytes longer = packed;
    longer.push_back(0);
    CHECK(!other.unpack(longer));
    for (const std::uint8_t wrong : {1, 2, 3}) {  // the first row of all repeats nothing
      Bytes bad = packed;
      bad[0] = wrong;
      CHECK(!other.unpack(bad));
    }
    CHECK(other_stack == Bytes(stack.size()));
    CHECK(other.unpack(packed));
    CHECK(other_screen == screen);
    CHECK(other_pictures == pictures);
    CHECK(other_stack == stack);
    other.draw(drawn.data());
    CHECK(drawn == colours);
    CHECK(other.packed() == packed);
  }
}

// ---- smaller pictures ----------------------------------------------------------------------------------

TEST(every_new_pixel_is_the_average_of_the_area_it_covers) {
  Rng rng(1);
  for (const auto& [h, w, channels, new_h, new_w] : std::vector<std::array<int, 5>>{
           {21, 16, 1, 8, 8}, {21, 16, 3, 8, 7}, {25, 16, 1, 24, 15}, {9, 16, 1, 9, 5}, {30, 40, 3, 4, 3}}) {
    AreaResize resize(h, w, channels, new_h, new_w);
    const Bytes picture = noise(rng, static_cast<std::size_t>(h * w * channels));
    Bytes out(static_cast<std::size_t>(new_h * new_w * channels));
    for (const bool fused : {false, true}) {
      resize(fused, picture.data(), out.data());
      std::size_t at = 0;
      for (int channel = 0; channel < channels; ++channel)
        for (int y = 0; y < new_h; ++y)
          for (int x = 0; x < new_w; ++x, ++at)
            // OpenCV leaves out less than a thousandth of a pixel at an edge.
            CHECK(std::abs(out[at] - average(picture, h, w, channels, new_h, new_w, y, x, channel)) < 0.5 + 0.3);
    }
  }
}

TEST(one_colour_stays_that_colour) {
  AreaResize resize(210, 160, 1, 84, 84);
  for (int colour = 0; colour < 256; ++colour) {
    const Bytes picture(210 * 160, static_cast<std::uint8_t>(colour));
    Bytes out(84 * 84);
    for (const bool fused : {false, true}) {
      resize(fused, picture.data(), out.data());
      CHECK(std::all_of(out.begin(), out.end(), [&](std::uint8_t one) { return one == colour; }));
    }
  }
}

TEST(rows_that_repeat_change_nothing) {
  Rng rng(2);
  Bytes picture = noise(rng, 210 * 160);
  for (int y = 1; y < 210; ++y)
    if (y % 7 != 0) std::copy_n(&picture[static_cast<std::size_t>(y - 1) * 160], 160, &picture[static_cast<std::size_t>(y) * 160]);
  AreaResize resize(210, 160, 1, 84, 84);
  Bytes out(84 * 84);
  resize(true, picture.data(), out.data());
  for (int y = 0; y < 84; y += 5)
    for (int x = 0; x < 84; x += 3)
      CHECK(std::abs(out[static_cast<std::size_t>(y * 84 + x)] - average(picture, 210, 160, 1, 84, 84, y, x, 0)) < 0.51);
}

TEST(the_two_forms_differ_where_a_sum_is_close_to_a_half) {
  Rng rng(3);
  AreaResize resize(210, 160, 1, 84, 84);
  int differences = 0;
  for (int i = 0; i < 20; ++i) {
    const Bytes picture = noise(rng, 210 * 160);
    Bytes plain(84 * 84), fused(84 * 84);
    resize(false, picture.data(), plain.data());
    resize(true, picture.data(), fused.data());
    for (std::size_t k = 0; k < plain.size(); ++k) {
      differences += plain[k] != fused[k];
      CHECK(std::abs(plain[k] - fused[k]) <= 1);
    }
  }
  CHECK(differences > 0);
  CHECK(differences < 1000);
}

TEST(whole_fractions_and_larger_pictures_are_left_to_opencv) {
  CHECK(AreaResize::fits(210, 160, 84, 84));
  CHECK(AreaResize::fits(210, 160, 210, 84));
  CHECK(AreaResize::fits(250, 160, 84, 80));
  CHECK(!AreaResize::fits(210, 160, 105, 80));
  CHECK(!AreaResize::fits(210, 160, 210, 160));
  CHECK(!AreaResize::fits(210, 160, 211, 84));
  CHECK(!AreaResize::fits(210, 160, 84, 161));
}

// ---- greys -------------------------------------------------------------------------------------------

TEST(a_grey_is_unknown_until_it_is_learned) {
  GreyTable table;
  const Bytes screen{2, 2, 2, 2, 2, 2, 2, 2, 4, 6, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};  // rows of ten
  const Bytes drawn{9, 9, 9, 9, 9, 9, 9, 9, 7, 5, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  Bytes grey(20);
  CHECK(!table.translate(screen.data(), grey.data(), 2, 10));
  table.learn(screen.data(), drawn.data(), 10);
  CHECK(table.translate(screen.data(), grey.data(), 2, 10));
  CHECK(grey == drawn);
  const Bytes other{2, 2, 2, 2, 2, 2, 2, 2, 4, 8, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
  CHECK(!table.translate(other.data(), grey.data(), 2, 10));
}

TEST(every_colour_is_translated_wherever_it_is) {
  Rng rng(4);
  Bytes of(256);
  std::iota(of.rbegin(), of.rend(), std::uint8_t{0});
  for (const int width : {1, 7, 8, 9, 16, 160}) {
    GreyTable table;
    const auto count = static_cast<std::size_t>(width) * 40;
    Bytes screen = noise(rng, count, 3), drawn(count), grey(count);
    std::copy_n(screen.begin(), count / 2, screen.begin() + static_cast<std::ptrdiff_t>(count / 2));
    for (std::size_t i = 0; i < count; ++i) drawn[i] = of[screen[i]];
    table.learn(screen.data(), drawn.data(), count);
    CHECK(table.translate(screen.data(), grey.data(), 40, width));
    CHECK(grey == drawn);
  }
}

// ---- the stack ---------------------------------------------------------------------------------------

struct Room {
  explicit Room(const FrameSizes& sizes)
      : screen(sizes.screen_bytes()),
        pictures(2 * sizes.picture_bytes()),
        stack(static_cast<std::size_t>(sizes.stack) * sizes.frame_bytes()) {}
  FrameMemory memory() { return {screen.data(), pictures.data(), stack.data()}; }
  Bytes screen, pictures, stack;
};

TEST(the_newest_frame_is_the_maximum_of_both_pictures_and_the_oldest_is_dropped) {
  const FrameSizes sizes{21, 16, 1, 5, 5, 3};
  Room room(sizes);
  Frames frames(sizes, room.memory(), false);
  const auto show = [&](std::uint8_t newest, std::uint8_t before) {
    std::fill_n(room.pictures.begin(), 21 * 16, newest);
    std::fill_n(room.pictures.begin() + 21 * 16, 21 * 16, before);
    frames.push(true);
  };
  const auto shown = [&] { return std::array{room.stack[0], room.stack[25], room.stack[74]}; };
  show(10, 20);
  frames.repeat();
  CHECK((shown() == std::array<std::uint8_t, 3>{20, 20, 20}));
  show(30, 5);
  show(6, 7);
  CHECK((shown() == std::array<std::uint8_t, 3>{20, 30, 7}));
  show(8, 1);
  CHECK((shown() == std::array<std::uint8_t, 3>{30, 7, 8}));
}

TEST(a_coloured_frame_has_one_plane_per_channel) {
  const FrameSizes sizes{21, 16, 3, 5, 5, 2};
  Room room(sizes);
  for (std::size_t i = 0; i < room.pictures.size(); ++i) room.pictures[i] = static_cast<std::uint8_t>(10 + i % 3);
  Frames frames(sizes, room.memory(), true);
  frames.push(false);
  for (std::size_t i = 0; i < 150; ++i) CHECK(room.stack[i] == (i < 75 ? 0 : 10 + (i - 75) / 25));
  CHECK_THROWS(frames.translate(0), std::invalid_argument);
}

TEST(a_third_picture_is_refused) {
  Room room({21, 16, 1, 5, 5, 2});
  Frames frames({21, 16, 1, 5, 5, 2}, room.memory(), false);
  CHECK_THROWS(frames.translate(2), std::invalid_argument);
}

}  // namespace stepmill::atari_frames_test
