// From a Python value to the rows of one leaf, checked: shape, type, values.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>

#include "core/spec.h"

namespace stepmill {

class Pool;

// What is done with a number that lies outside of a Box's bounds.
enum class Bounds { kPass, kClip, kError };

struct LeafInput {
  const Leaf& leaf;
  std::byte* table;                     // row r of the leaf lies at table + r * row_bytes
  std::span<const std::int32_t> rows;   // which row each entry goes to; empty: entry i to row i
  std::int64_t count;                   // entries expected along the first axis
  Bounds bounds = Bounds::kPass;
  bool check_values = true;             // false: shape and type only
  bool batched = true;                  // false: `value` is one entry, without the first axis
  const char* error = "ActionError";    // what to raise
  const char* what = "action";          // how messages name the value
  const char* row_of = "env";           // what messages say a row is for
  // How messages name entry i; by default "env <row>".
  std::string (*owner)(std::int64_t row) = nullptr;
  Pool* helper = nullptr;  // whose threads help where there is much to read; null: none
};

// Writes `value` into the rows, or raises and leaves only rows of idle envs half written.
void write_leaf(nanobind::handle value, const LeafInput& input);

}  // namespace stepmill
