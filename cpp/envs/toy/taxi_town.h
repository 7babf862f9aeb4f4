// The town that Taxi drives in: where each move leads, on dry roads and in rain.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "envs/toy/categorical.h"

namespace stepmill {

class TaxiTown {
 public:
  static constexpr int kSize = 5, kCells = kSize * kSize;
  static constexpr int kPlaces = 4, kInTaxi = kPlaces;
  static constexpr int kStates = kCells * (kPlaces + 1) * kPlaces;
  static constexpr std::array<int, kPlaces> kPlace = {0, 4, 20, 23};  // the cells of R, G, Y, B

  enum Move { kSouth, kNorth, kEast, kWest, kMoves };

  // How laterals of a move are found in rain.
  enum class Rain { kNone, kTaxi3, kTaxi4 };

  // One for each kind, shared by all envs.
  static const TaxiTown& with(Rain rain);

  static constexpr int encode(int cell, int passenger, int destination) {
    return (cell * (kPlaces + 1) + passenger) * kPlaces + destination;
  }

  // The cell that a move leads to: as meant (0), or drifting to either side (1, 2).
  int target(int cell, int move, int drift) const { return target_[cell][move][drift]; }
  // Whether a move leads anywhere.
  bool is_open(int cell, int move) const { return target_[cell][move][0] != cell; }
  // The place at a cell, or kPlaces.
  static int place_at(int cell) {
    return static_cast<int>(std::find(kPlace.begin(), kPlace.end(), cell) - kPlace.begin());
  }

  static constexpr std::size_t kStarts = kCells * kPlaces * (kPlaces - 1);
  const UniformStart<kStarts> start;  // passenger at a place that is not the destination

 private:
  explicit constexpr TaxiTown(Rain rain) : start(start_states()), target_{} {
    for (int cell = 0; cell < kCells; ++cell)
      for (int move = 0; move < kMoves; ++move) {
        auto& target = target_[cell][move];
        target = {narrow(moved(cell, move)), narrow(cell), narrow(cell)};
        if (rain == Rain::kTaxi4 && target[0] != cell) {
          // Drift to the left and to the right of the heading, unless the move itself is blocked.
          constexpr int kLeftOf[] = {kEast, kWest, kNorth, kSouth};
          constexpr int kRightOf[] = {kWest, kEast, kSouth, kNorth};
          target[1] = narrow(moved(cell, kLeftOf[move]));
          target[2] = narrow(moved(cell, kRightOf[move]));
        }
        // Taxi-v3 kept north and south open at the border, and looked for walls at the wrong tile.
        if (rain == Rain::kTaxi3 && (move == kSouth || move == kNorth || target[0] != cell)) {
          const bool vertical = move == kSouth || move == kNorth;
          target[1] = narrow(drifted_taxi3(cell, vertical ? kWest : kSouth, 2));
          target[2] = narrow(drifted_taxi3(cell, vertical ? kEast : kNorth, 0));
        }
      }
  }

  static constexpr std::uint8_t narrow(int cell) { return static_cast<std::uint8_t>(cell); }

  // Roads as text: cells at even places, and between them ':' where cars can pass.
  static constexpr bool passable(int row, int at) {
    constexpr const char* kRoads[kSize] = {"|R: | : :G|", "| : | : : |", "| : : : : |",
                                                  "| | : | : |", "|Y| : |B: |"};
    return kRoads[row][at] == ':';
  }

  static constexpr int shifted(int cell, int move) {
    constexpr int kDown[] = {1, -1, 0, 0}, kRight[] = {0, 0, 1, -1};
    const int row = std::clamp(cell / kSize + kDown[move], 0, kSize - 1);
    const int column = std::clamp(cell % kSize + kRight[move], 0, kSize - 1);
    return row * kSize + column;
  }

  static constexpr int moved(int cell, int move) {
    const int row = cell / kSize, column = cell % kSize;
    if (move == kEast && !passable(row, 2 * column + 2)) return cell;
    if (move == kWest && !passable(row, 2 * column)) return cell;
    return shifted(cell, move);
  }

  static constexpr int drifted_taxi3(int cell, int move, int offset) {
    const int to = shifted(cell, move);
    return passable(to / kSize, 2 * (to % kSize) + offset) ? to : cell;
  }

  static constexpr std::array<std::int32_t, kStarts> start_states() {
    std::array<std::int32_t, kStarts> states{};
    std::size_t count = 0;
    for (int cell = 0; cell < kCells; ++cell)
      for (int passenger = 0; passenger < kPlaces; ++passenger)
        for (int destination = 0; destination < kPlaces; ++destination)
          if (passenger != destination) states[count++] = encode(cell, passenger, destination);
    return states;
  }

  std::array<std::uint8_t, 3> target_[kCells][kMoves];

  friend struct TaxiTowns;
};

// Made by the compiler, so that they are there on a GPU too.
struct TaxiTowns {
  static constexpr TaxiTown kAll[] = {TaxiTown(TaxiTown::Rain::kNone), TaxiTown(TaxiTown::Rain::kTaxi3),
                                      TaxiTown(TaxiTown::Rain::kTaxi4)};
};

inline const TaxiTown& TaxiTown::with(Rain rain) { return TaxiTowns::kAll[static_cast<int>(rain)]; }

}  // namespace stepmill
