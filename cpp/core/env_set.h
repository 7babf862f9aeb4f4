// What the engine does with the table of an env class: reads its description, and builds and owns its envs.
#pragma once

#include <cmath>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/env/c_values.h"
#include "core/env/env_table.h"
#include "core/env/spec.h"
#include "core/env/state.h"
#include "core/surroundings.h"

namespace stepmill {

inline void check_abi(const sm_env_table& table) {
  if (table.abi_version != SM_ABI_VERSION || table.size != sizeof(sm_env_table))
    throw std::runtime_error("env table with ABI version " + std::to_string(table.abi_version) +
                             " and size " + std::to_string(table.size) + ", expected version " +
                             std::to_string(SM_ABI_VERSION) + " and size " +
                             std::to_string(sizeof(sm_env_table)) +
                             ": compile the env against this version of stepmill");
  int options = 0;
  while (table.reset_options[options]) ++options;
  if (options > SM_MAX_RESET_OPTIONS)
    throw std::runtime_error("expected at most " + std::to_string(SM_MAX_RESET_OPTIONS) + " reset options, got " +
                             std::to_string(options));
}

inline Config default_config(const sm_env_table& table) {
  std::vector<ConfigItem> items;
  char error[SM_ERROR_CAPACITY] = "";
  const auto put = [](void* sink, const sm_value* value) {
    static_cast<std::vector<ConfigItem>*>(sink)->push_back(from_c(*value));
  };
  const KeptSurroundings kept;
  if (table.configuration(&table, &items, put, error) != 0)
    throw std::invalid_argument(std::string("configuration: ") + error);
  return Config(std::move(items));
}

inline bool is_whole(DType type) {
  return type != DType::kFloat16 && type != DType::kFloat32 && type != DType::kFloat64;
}

// Refuses what no array or space can be. `place`: whose leaf it is.
inline void check_leaf(const std::string& place, const Leaf& leaf) {
  std::int64_t bytes = item_size(leaf.dtype);
  for (const std::int64_t extent : leaf.shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes))
      throw std::invalid_argument(place + "a shape with " + std::to_string(extent) + " in it");
  const std::size_t bounds = leaf.low.size();
  if (bounds != 1 && std::cmp_not_equal(bounds, leaf.elements()))
    throw std::invalid_argument(place + "expected one bound or " + std::to_string(leaf.elements()) +
                                ", as it has elements, got " + std::to_string(bounds));
  const auto is_counted = [](double bound) { return std::abs(bound) <= 0x1p63 && bound == std::trunc(bound); };
  for (std::size_t i = 0; i < bounds; ++i) {
    const double low = leaf.low[i], high = leaf.high[i];
    if (!(low <= high) || (leaf.kind != LeafKind::kBox && !(is_counted(low) && is_counted(high))))
      throw std::invalid_argument(place + "expected " + (leaf.kind == LeafKind::kBox ? "" : "whole numbers, ") +
                                  "low <= high, got " + std::to_string(low) + " and " + std::to_string(high));
  }
  if (leaf.kind == LeafKind::kDiscrete && (leaf.dtype != DType::kInt64 || !leaf.shape.empty()))
    throw std::invalid_argument(place + "expected a discrete one to be a single int64");
  if (leaf.kind == LeafKind::kMultiBinary && leaf.dtype != DType::kInt8)
    throw std::invalid_argument(place + "expected binary numbers to be int8");
  if (leaf.kind == LeafKind::kMultiDiscrete && !is_whole(leaf.dtype))
    throw std::invalid_argument(place + "expected discrete numbers to be of a whole type");
}

inline void check_leaves(const char* what, const std::vector<Leaf>& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::string& name = leaves[i].name;
    check_leaf(std::string(what) + (name.empty() ? "" : " '" + name + "'") + ": ", leaves[i]);
    for (std::size_t j = 0; j < i; ++j)
      if (!name.empty() && leaves[j].name == name)
        throw std::invalid_argument(std::string(what) + ": two arrays are named '" + name + "'");
  }
}

// What an author's `spec` may have wrong, before arrays are made of it.
inline void check_spec(const EnvSpec& spec) {
  check_leaves("observation", spec.observation);
  check_leaves("action", spec.action);
  check_leaves("info", spec.info);
  for (const auto& [what, leaves, tree] : {std::tuple{"observation", &spec.observation, spec.observation_tree},
                                           std::tuple{"action", &spec.action, spec.action_tree}})
    if (leaves->empty() || (tree == Tree::kSingle && leaves->size() > 1))
      throw std::invalid_argument(std::string(what) + ": expected " +
                                  (leaves->empty() ? "at least one array" : "one array, or a tree of Tree::kTuple or kDict") +
                                  ", got " + std::to_string(leaves->size()));
  for (const Leaf& leaf : spec.info)
    if (leaf.name.empty() || leaf.name == "env_id" || leaf.name == "elapsed_step")
      throw std::invalid_argument("info: expected a name that is not the engine's own, got '" + leaf.name + "'");
    else if (leaf.name == "abnormal" && (leaf.dtype != DType::kBool || !leaf.shape.empty()))
      throw std::invalid_argument("info 'abnormal': expected one bool, which says whether something went wrong in a step");
  if (spec.max_num_players < 1)
    throw std::invalid_argument("max_num_players: expected at least 1, got " + std::to_string(spec.max_num_players));
}

// A bound in a whole type: it ends where the type does, as the space has it.
template <class T>
std::int64_t whole_bound(double bound) {
  using Limits = std::numeric_limits<T>;
  if (!(bound > static_cast<double>(Limits::min()))) return static_cast<std::int64_t>(Limits::min());
  if (bound >= static_cast<double>(Limits::max())) return static_cast<std::int64_t>(Limits::max());
  return static_cast<std::int64_t>(static_cast<T>(bound));
}

inline std::int64_t whole_bound(DType type, double bound) {
  switch (type) {
    case DType::kBool: return whole_bound<bool>(bound);
    case DType::kInt8: return whole_bound<std::int8_t>(bound);
    case DType::kUInt8: return whole_bound<std::uint8_t>(bound);
    case DType::kInt16: return whole_bound<std::int16_t>(bound);
    case DType::kUInt16: return whole_bound<std::uint16_t>(bound);
    case DType::kInt32: return whole_bound<std::int32_t>(bound);
    case DType::kUInt32: return whole_bound<std::uint32_t>(bound);
    case DType::kUInt64: return whole_bound<std::uint64_t>(bound);
    default: return whole_bound<std::int64_t>(bound);
  }
}

// Fills in what follows from the other bounds.
inline void set_whole_bounds(Leaf& leaf) {
  if (!is_whole(leaf.dtype)) return;
  for (const double bound : leaf.low) leaf.whole_low.push_back(whole_bound(leaf.dtype, bound));
  for (const double bound : leaf.high) leaf.whole_high.push_back(whole_bound(leaf.dtype, bound));
}

inline EnvSpec describe(const sm_env_table& table, const Config& config, const Config& simulator = {}) {
  EnvSpec spec;
  sm_description description{};
  char error[SM_ERROR_CAPACITY] = "";
  const auto put = [](void* sink, const sm_leaf* c) {
    auto& into = *static_cast<EnvSpec*>(sink);
    Leaf leaf{c->name,
              static_cast<LeafKind>(c->kind),
              static_cast<DType>(c->dtype),
              {c->shape, c->shape + c->rank},
              {c->low, c->low + c->bounds},
              {c->high, c->high + c->bounds}};
    set_whole_bounds(leaf);
    auto& leaves = c->role == SM_OBSERVATION ? into.observation
                   : c->role == SM_ACTION    ? into.action
                                             : into.info;
    leaves.push_back(std::move(leaf));
  };
  const KeptSurroundings kept;
  if (table.describe(&table, CValues(config).get(), CValues(simulator).get(), &description, &spec, put, error) != 0)
    throw std::invalid_argument(error);
  spec.observation_tree = static_cast<Tree>(description.observation_tree);
  spec.action_tree = static_cast<Tree>(description.action_tree);
  spec.max_num_players = description.max_num_players;
  check_spec(spec);
  return spec;
}

// The constructor of an env threw.
class BuildError : public std::runtime_error {
 public:
  BuildError(std::int32_t id, const char* message)
      : std::runtime_error("the constructor of env " + std::to_string(id) + " failed: " + message),
        env(id) {}
  const std::int32_t env;
};

// A number of consecutive envs with one configuration; only one if it has a simulator.
struct ConfigRun {
  Config config;
  std::int32_t count = 1;
  Config simulator = {};
};

// What a drawing of an env shows.
struct Picture {
  std::int64_t resets = 0;  // of the env, since it was built
  std::vector<double> numbers;
};

// Builds and owns the envs of one pool, or of one worker process.
class EnvSet {
 public:
  // Builds as many envs as the runs hold, the first of them first_id.
  EnvSet(const sm_env_table& table, const std::vector<ConfigRun>& runs, std::int32_t first_id = 0)
      : table_(table), envs_(table.allocate(&table, count_of(runs))), first_id_(first_id) {
    if (!envs_) throw std::bad_alloc();
    const KeptSurroundings kept;
    std::int32_t index = 0;
    for (const ConfigRun& run : runs) {
      char error[SM_ERROR_CAPACITY] = "";
      const std::int32_t last = index + run.count;
      index = table.build(envs_, index, last, CValues(run.config).get(), CValues(run.simulator).get(), error);
      if (index != last) {
        table.release(envs_);
        throw BuildError(first_id + index, error);
      }
    }
  }
  // One configuration per env.
  EnvSet(const sm_env_table& table, const std::vector<Config>& configs, std::int32_t first_id = 0)
      : EnvSet(table, runs_of(configs), first_id) {}
  // Takes over envs that were built in another way, in storage of that table.
  EnvSet(const sm_env_table& table, void* built, std::int32_t first_id)
      : table_(table), envs_(built), first_id_(first_id) {}
  ~EnvSet() { table_.release(envs_); }
  EnvSet(const EnvSet&) = delete;
  EnvSet& operator=(const EnvSet&) = delete;

  const void* envs() const { return envs_; }  // as the functions of the table know them
  bool never_blocks() const { return table_.never_blocks != 0; }
  bool advance(const sm_job& job) { return table_.advance(envs_, first_id_, &job) != 0; }
  // Gives an env another simulator from its next reset on. No thread may step the env meanwhile.
  void connect(std::int32_t id, const Config& simulator) {
    char error[SM_ERROR_CAPACITY] = "";
    if (table_.connect(envs_, id - first_id_, CValues(simulator).get(), error) != 0) throw std::runtime_error(error);
  }
  // The state of an env's generator. No thread may step the env meanwhile.
  sm_random_state random_state(std::int32_t id) const {
    sm_random_state out{};
    table_.random_state(envs_, id - first_id_, &out);
    return out;
  }
  // What a drawing of an env shows. No thread may step the env meanwhile.
  Picture picture(std::int32_t id) const {
    Picture out;
    char error[SM_ERROR_CAPACITY] = "";
    const auto put = [](void* sink, double number) { static_cast<std::vector<double>*>(sink)->push_back(number); };
    if (table_.picture(envs_, id - first_id_, &out.resets, &out.numbers, put, error) != 0)
      throw std::runtime_error(error);
    return out;
  }

  // Whether envs of this class can be saved.
  bool can_save() const { return table_.save != nullptr; }
  // Adds what decides the future of an env, except for its row of the action table. No thread may step it meanwhile.
  void save(std::int32_t id, std::vector<std::byte>& to) const {
    char error[SM_ERROR_CAPACITY];  // not cleared: that would take longer than the rest
    if (table_.save(envs_, id - first_id_, &to, add_bytes, error) != 0) throw std::runtime_error(error);
  }
  // How many bytes that is, if `load` takes any bytes of that number; otherwise 0.
  std::size_t state_bytes() const { return static_cast<std::size_t>(table_.state_bytes); }
  // If it throws, the env may be anything: give it what was saved before.
  void load(std::int32_t id, std::span<const std::byte> state) {
    char error[SM_ERROR_CAPACITY];
    if (table_.load(envs_, id - first_id_, state.data(), std::ssize(state), error) != 0) throw std::invalid_argument(error);
  }

 private:
  static std::int32_t count_of(const std::vector<ConfigRun>& runs) {
    std::int32_t count = 0;
    for (const ConfigRun& run : runs) count += run.count;
    return count;
  }
  static std::vector<ConfigRun> runs_of(const std::vector<Config>& configs) {
    std::vector<ConfigRun> runs;
    for (const Config& config : configs) runs.push_back({config});
    return runs;
  }

  const sm_env_table& table_;
  void* envs_;
  std::int32_t first_id_;
};

}  // namespace stepmill
