// How an env describes itself before it is built: its arrays, and the keys of its configuration.
//
// A space is a tree whose leaves are arrays of a fixed shape. The engine sees only the leaves; the tree (Dict, Tuple,
// nested) is rebuilt where Python objects are made.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/env/dtype.h"

namespace stepmill {

// The values that a leaf may hold. This decides how an action is checked and which space Python shows.
enum class LeafKind : std::int32_t {
  kBox,            // low <= x <= high, element by element
  kDiscrete,       // start <= x < start + n, a scalar
  kMultiDiscrete,  // low <= x <= high, whole numbers, element by element
  kMultiBinary,    // 0 or 1
};

struct Leaf {
  std::string name;  // the key in a Dict space; the position otherwise
  LeafKind kind = LeafKind::kBox;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  // One value for every element, or a single value that stands for all of them.
  std::vector<double> low{-std::numeric_limits<double>::infinity()};
  std::vector<double> high{std::numeric_limits<double>::infinity()};
  std::int32_t player_kind = 0;  // whose leaf it is, see EnvSpec
  // The bounds of whole numbers as such, which a double may not be able to hold; those of uint64 by their bits. The engine
  // fills them in.
  std::vector<std::int64_t> whole_low{}, whole_high{};

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (auto extent : shape) count *= extent;
    return count;
  }
  std::int64_t row_bytes() const { return elements() * item_size(dtype); }
};

template <class T>
Leaf box(std::vector<std::int64_t> shape, std::vector<double> low, std::vector<double> high,
         std::string name = "") {
  return {std::move(name), LeafKind::kBox, dtype_of<T>::value, std::move(shape), std::move(low),
          std::move(high)};
}

inline Leaf discrete(std::int64_t n, std::string name = "") {
  return {std::move(name), LeafKind::kDiscrete, DType::kInt64, {}, {0.0},
          {static_cast<double>(n - 1)}};
}

// How the leaves of an observation or an action are combined.
enum class Tree : std::int32_t { kSingle, kTuple, kDict };

struct EnvSpec {
  std::vector<Leaf> observation;
  std::vector<Leaf> action;
  std::vector<Leaf> info;  // the env's own keys in `info`; a row has those that `observe` asks for
  Tree observation_tree = Tree::kSingle;
  Tree action_tree = Tree::kSingle;
  // Rows that one env may fill in the per-player arrays (observation, reward, action).
  std::int32_t max_num_players = 1;
  // The kind of each player, if the spaces of players differ; empty if all have the same. A leaf of kind k has rows only
  // for the players of that kind, in the order of their numbers. Native envs have one kind.
  std::vector<std::int32_t> player_kinds;
  // A Python env says in each row which players are here. Otherwise all of them always are.
  bool players_vary = false;
};

// One configuration value. `Reals` holds small tuples of numbers; lists of text are joined with newlines.
using Reals = std::vector<double>;
using ConfigValue = std::variant<bool, std::int64_t, double, std::string, Reals>;

struct ConfigItem {
  std::string key;
  ConfigValue value;
};

// The configuration of one env, with every known key: the defaults, overridden by the user's values.
class Config {
 public:
  Config() = default;
  explicit Config(std::vector<ConfigItem> items) : items_(std::move(items)) {}

  bool flag(const char* key) const { return std::get<bool>(at(key)); }
  std::int64_t integer(const char* key) const { return std::get<std::int64_t>(at(key)); }
  double real(const char* key) const { return std::get<double>(at(key)); }
  const std::string& text(const char* key) const { return std::get<std::string>(at(key)); }
  const Reals& reals(const char* key) const { return std::get<Reals>(at(key)); }

  const std::vector<ConfigItem>& items() const { return items_; }

 private:
  const ConfigValue& at(const char* key) const {
    for (const auto& item : items_)
      if (item.key == key) return item.value;
    throw std::out_of_range(std::string("the env reads configuration key '") + key +
                            "', which it does not declare in configuration()");
  }

  std::vector<ConfigItem> items_;
};

}  // namespace stepmill
