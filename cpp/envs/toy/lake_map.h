// The map of a frozen lake: read from text, drawn at random, and shared by all envs that use it.
#pragma once

#ifndef STEPMILL_GPU
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <vector>
#endif
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include <stepmill/env.h>
#include "envs/toy/categorical.h"

namespace stepmill {

inline constexpr std::int32_t kRandomLakeSize = 8;

#ifndef STEPMILL_GPU
// Tiles are letters: S start, G goal, H hole; every other one is ice.
struct LakeText {
  std::string tiles;  // row after row
  std::int32_t rows = 0, columns = 0;
};

// Rows joined by newlines.
inline LakeText parse_lake(const std::string& text) {
  LakeText lake;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const auto width = static_cast<std::int32_t>(end - begin);
    if (lake.rows == 0) lake.columns = width;
    if (width != lake.columns || width == 0)
      throw std::invalid_argument("desc: expected rows of one length, got row " +
                                  std::to_string(lake.rows) + " of length " +
                                  std::to_string(width) + " after rows of length " +
                                  std::to_string(lake.columns));
    lake.tiles.append(text, begin, end - begin);
    lake.rows += 1;
    begin = end + 1;
  }
  if (lake.tiles.find('S') == std::string::npos)
    throw std::invalid_argument("desc: expected at least one start tile 'S', got none");
  return lake;
}

#endif

// One block of memory without a pointer in it, so that a GPU can have a copy of it.
class LakeMap {
 public:
  static constexpr int kLeft = 0, kDown = 1, kRight = 2, kUp = 3;

  std::int32_t columns() const { return columns_; }
  std::int32_t count() const { return count_; }  // of the tiles
  char tile(std::int32_t state) const { return tile_at()[state].letter; }
  std::int32_t neighbour(std::int32_t state, int direction) const { return tile_at()[state].neighbour[direction]; }

  // A tile on which an episode begins, for a number in [0, 1). Like ThreeWay::draw, over all tiles: beyond the sum lies
  // tile 0, start or not.
  std::int32_t draw_start(double number) const {
    const std::int64_t i = first_above(sums_at(), starts_, number);
    return i < 0 ? 0 : start_at()[i];
  }

#ifndef STEPMILL_GPU
  static std::shared_ptr<const LakeMap> make(const LakeText& text) {
    const auto starts = static_cast<std::int32_t>(std::ranges::count(text.tiles, 'S'));
    const std::size_t bytes = size_of(static_cast<std::int32_t>(text.tiles.size()), starts);
    void* memory = ::operator new(bytes);
    std::memset(memory, 0, bytes);  // what is between the parts is a part of saved states
    auto* map = new (memory) LakeMap(text, starts);
    return {map, [](LakeMap* one) { ::operator delete(one); }};
  }
  std::string tiles() const {  // row after row
    std::string letters;
    for (std::int32_t state = 0; state < count_; ++state) letters += tile(state);
    return letters;
  }
  std::size_t bytes() const { return size_of(count_, starts_); }

 private:
  LakeMap(const LakeText& text, std::int32_t starts)
      : columns_(text.columns), count_(static_cast<std::int32_t>(text.tiles.size())), starts_(starts) {
    add_up_equal(const_cast<double*>(sums_at()), starts);
    auto* start = const_cast<std::int32_t*>(start_at());
    auto* tile = const_cast<Tile*>(tile_at());
    for (std::int32_t state = 0; state < count_; ++state) {
      tile[state].letter = text.tiles[static_cast<std::size_t>(state)];
      if (tile[state].letter == 'S') *start++ = state;
      const std::int32_t row = state / columns_, column = state % columns_;
      for (int direction = 0; direction < 4; ++direction) {
        const std::int32_t down = direction == kDown ? 1 : direction == kUp ? -1 : 0;
        const std::int32_t right = direction == kRight ? 1 : direction == kLeft ? -1 : 0;
        const std::int32_t to_row = std::clamp(row + down, 0, text.rows - 1);
        const std::int32_t to_column = std::clamp(column + right, 0, columns_ - 1);
        tile[state].neighbour[direction] = to_row * columns_ + to_column;
      }
    }
  }
  static std::size_t size_of(std::int32_t count, std::int32_t starts) {
    const std::size_t per_start = sizeof(double) + sizeof(std::int32_t);
    return sizeof(LakeMap) + static_cast<std::size_t>(count) * sizeof(Tile) + static_cast<std::size_t>(starts) * per_start;
  }
#endif

 private:
  struct alignas(double) Tile {
    std::int32_t neighbour[4];
    char letter;
  };

  // What follows in memory: the tiles, where every step finds them without a look at the counts; then, of the starts, sums
  // of probabilities and states.
  const Tile* tile_at() const { return reinterpret_cast<const Tile*>(this + 1); }
  const double* sums_at() const { return reinterpret_cast<const double*>(tile_at() + count_); }
  const std::int32_t* start_at() const { return reinterpret_cast<const std::int32_t*>(sums_at() + starts_); }

  alignas(double) std::int32_t columns_;
  std::int32_t count_, starts_;
};

#ifndef STEPMILL_GPU

// The map of this text, one for all envs that name it, kept as long as one of them lives.
inline std::shared_ptr<const LakeMap> shared_lake(const std::string& text) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const LakeMap>> maps;
  const std::lock_guard lock(mutex);
  if (auto known = maps[text].lock()) return known;
  auto made = LakeMap::make(parse_lake(text));
  std::erase_if(maps, [](const auto& entry) { return entry.second.expired(); });
  maps[text] = made;
  return made;
}

// A map with holes on a fifth of its tiles and a way from start to goal, never the same: like
// Gymnasium's it comes from the system's entropy, whatever the env's seed.
inline LakeText random_lake() {
  std::uint64_t seed;
  if (getentropy(&seed, sizeof seed) != 0) throw std::system_error(errno, std::generic_category(), "getentropy");
  Rng rng(seed);
  constexpr std::int32_t size = kRandomLakeSize, last = size * size - 1;
  while (true) {
    LakeText text{std::string(static_cast<std::size_t>(last + 1), 'F'), size, size};
    for (char& tile : text.tiles)
      if (rng.random() >= 0.8) tile = 'H';
    text.tiles.front() = 'S';
    text.tiles.back() = 'G';

    const auto map = LakeMap::make(text);
    std::vector<bool> seen(text.tiles.size(), false);
    std::vector<std::int32_t> frontier{0};
    seen[0] = true;
    while (!frontier.empty()) {
      const std::int32_t state = frontier.back();
      frontier.pop_back();
      for (int direction = 0; direction < 4; ++direction) {
        const std::int32_t next = map->neighbour(state, direction);
        if (seen[static_cast<std::size_t>(next)] || map->tile(next) == 'H') continue;
        seen[static_cast<std::size_t>(next)] = true;
        frontier.push_back(next);
      }
    }
    if (seen[static_cast<std::size_t>(last)]) return text;
  }
}

#endif

}  // namespace stepmill
