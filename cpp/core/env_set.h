// What the engine does with the table of an env class: reads its description, and builds and owns its envs.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
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
}

inline Config default_config(const sm_env_table& table) {
  std::vector<ConfigItem> items;
  table.configuration(&table, &items, [](void* sink, const sm_value* value) {
    static_cast<std::vector<ConfigItem>*>(sink)->push_back(from_c(*value));
  });
  return Config(std::move(items));
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
