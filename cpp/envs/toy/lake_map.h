// The map of a frozen lake: read from text, drawn at random, and shared by all envs that use it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <stepmill/env.h>
#include "envs/toy/categorical.h"

namespace stepmill {

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

class LakeMap {
 public:
  static constexpr int kLeft = 0, kDown = 1, kRight = 2, kUp = 3;

  explicit LakeMap(const LakeText& text)
      : start(tiles_of(text, 'S')), columns(text.columns), tile_(text.tiles) {
    for (std::int32_t row = 0; row < text.rows; ++row)
      for (std::int32_t column = 0; column < text.columns; ++column)
        for (int direction = 0; direction < 4; ++direction) {
          const std::int32_t down = direction == kDown ? 1 : direction == kUp ? -1 : 0;
          const std::int32_t right = direction == kRight ? 1 : direction == kLeft ? -1 : 0;
          const std::int32_t to_row = std::clamp(row + down, 0, text.rows - 1);
          const std::int32_t to_column = std::clamp(column + right, 0, text.columns - 1);
          neighbour_.push_back(to_row * text.columns + to_column);
        }
  }

  const std::string& tiles() const { return tile_; }  // row after row
  char tile(std::int32_t state) const { return tile_[static_cast<std::size_t>(state)]; }
  std::int32_t neighbour(std::int32_t state, int direction) const {
    return neighbour_[static_cast<std::size_t>(4 * state + direction)];
  }

  const UniformStart start;
  const std::int32_t columns;

 private:
  static std::vector<std::int32_t> tiles_of(const LakeText& text, char letter) {
    std::vector<std::int32_t> states;
    for (std::size_t i = 0; i < text.tiles.size(); ++i)
      if (text.tiles[i] == letter) states.push_back(static_cast<std::int32_t>(i));
    return states;
  }

  std::string tile_;
  std::vector<std::int32_t> neighbour_;
};

// The map of this text, one for all envs that name it, kept as long as one of them lives.
inline std::shared_ptr<const LakeMap> shared_lake(const std::string& text) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const LakeMap>> maps;
  const std::lock_guard lock(mutex);
  if (auto known = maps[text].lock()) return known;
  auto made = std::make_shared<const LakeMap>(parse_lake(text));
  std::erase_if(maps, [](const auto& entry) { return entry.second.expired(); });
  maps[text] = made;
  return made;
}

inline constexpr std::int32_t kRandomLakeSize = 8;

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

    const LakeMap map(text);
    std::vector<bool> seen(text.tiles.size(), false);
    std::vector<std::int32_t> frontier{0};
    seen[0] = true;
    while (!frontier.empty()) {
      const std::int32_t state = frontier.back();
      frontier.pop_back();
      for (int direction = 0; direction < 4; ++direction) {
        const std::int32_t next = map.neighbour(state, direction);
        if (seen[static_cast<std::size_t>(next)] || map.tile(next) == 'H') continue;
        seen[static_cast<std::size_t>(next)] = true;
        frontier.push_back(next);
      }
    }
    if (seen[static_cast<std::size_t>(last)]) return text;
  }
}

}  // namespace stepmill
