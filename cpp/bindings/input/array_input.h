// Writes a Python value into the rows of one leaf, after checking its shape, type and values.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>

#include "core/env/spec.h"

namespace stepmill {

class Players;
class Pool;

// What happens to a number outside the bounds of a Box.
enum class Bounds { kPass, kClip, kError };

struct LeafInput {
  const Leaf& leaf;
  std::byte* table;                     // row r of the leaf is at table + r * row_bytes
  std::span<const std::int32_t> rows;   // the row of each entry; empty: entry i goes to row i
  std::int64_t count;                   // entries expected along the first axis
  Bounds bounds = Bounds::kPass;
  bool check_values = true;             // false: shape and type only
  bool batched = true;                  // false: `value` is one entry, without the first axis
  const char* error = "ActionError";    // what to raise
  const char* what = "action";          // how messages name the value
  const Players* players = nullptr;     // of the envs, if a row is that of one player and not of an env
  std::int64_t env = -1;                // whose value it is, for messages; -1: row r is that of env r
  Pool* helper = nullptr;  // whose threads help where there is much to read; null: none
};

// The user's ids, as a 1-d array of int64. Messages call them `name`.
struct Ids {
  nanobind::object array;
  std::span<const std::int64_t> numbers;
};
Ids read_ids(nanobind::handle given, const std::string& name);

// numpy looks for signals while it reads a list, and what a handler raises there would be taken for an error of the list.
void look_before_reading(nanobind::handle value);

// Writes `value` into the rows. If it raises, only rows of idle envs are partly written.
void write_leaf(nanobind::handle value, const LeafInput& input);

// The same for numbers of that type, one after the other, as many as the leaf needs. Those of float16 only for
// such a leaf. It does not need the interpreter lock.
void check_numbers(std::span<const std::int64_t> shape, const LeafInput& input);  // raises if they are not so many
void write_numbers(const void* numbers, DType type, const LeafInput& input);

}  // namespace stepmill
