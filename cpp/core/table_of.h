// Makes the engine's function table from an env class, and the env's C++ description from a table.
#pragma once

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "core/env/env_table.h"
#include "core/stepper.h"

namespace stepmill {

// ---- configuration values, C++ to C and back ----------------------------------------------------

inline sm_value to_c(const ConfigItem& item) {
  sm_value out{};
  out.key = item.key.c_str();
  out.type = static_cast<std::int32_t>(item.value.index());
  switch (out.type) {
    case SM_FLAG: out.integer = std::get<bool>(item.value); break;
    case SM_INTEGER: out.integer = std::get<std::int64_t>(item.value); break;
    case SM_REAL: out.real = std::get<double>(item.value); break;
    case SM_TEXT: out.text = std::get<std::string>(item.value).c_str(); break;
    case SM_REALS: {
      const Reals& reals = std::get<Reals>(item.value);
      out.reals = reals.data();
      out.count = static_cast<std::int32_t>(reals.size());
      break;
    }
  }
  return out;
}

// The values of a Config, which must outlive them.
class CValues {
 public:
  explicit CValues(const Config& config) {
    for (const auto& item : config.items()) values_.push_back(to_c(item));
  }
  sm_values get() const { return {values_.data(), static_cast<std::int32_t>(values_.size())}; }

 private:
  std::vector<sm_value> values_;
};

inline ConfigItem from_c(const sm_value& value) {
  switch (value.type) {
    case SM_FLAG: return {value.key, value.integer != 0};
    case SM_INTEGER: return {value.key, value.integer};
    case SM_REAL: return {value.key, value.real};
    case SM_TEXT: return {value.key, std::string(value.text)};
    default: return {value.key, Reals(value.reals, value.reals + value.count)};
  }
}

inline Config from_c(const sm_values& c) {
  std::vector<ConfigItem> items;
  for (std::int32_t i = 0; i < c.count; ++i) items.push_back(from_c(c.values[i]));
  return Config(std::move(items));
}

// ---- the table of an env class --------------------------------------------------------------

// Runs `body` and turns an exception into a message and a non-zero result: no exception crosses the table.
template <class F>
int guarded(char* error, F body) {
  try {
    body();
    return 0;
  } catch (...) {
    std::snprintf(error, SM_ERROR_CAPACITY, "%s", current_message().c_str());
    return 1;
  }
}

template <class E>
const sm_env_table* table_of(const char* name) {
  static constexpr const char* kNoOptions[] = {nullptr};
  static sm_env_table table = [] {
    sm_env_table t{};
    t.abi_version = SM_ABI_VERSION;
    t.size = sizeof(sm_env_table);
    t.never_blocks = NeverBlocks<E>;
    t.configuration = [](void* sink, void (*put)(void*, const sm_value*)) {
      if constexpr (HasConfiguration<E>)
        for (const ConfigItem& item : E::configuration()) {
          const sm_value value = to_c(item);
          put(sink, &value);
        }
    };
    if constexpr (HasResetOptions<E>)
      t.reset_options = E::kResetOptions;
    else
      t.reset_options = kNoOptions;
    t.check_options = [](const sm_reset_request* request, char* error) {
      return guarded(error, [&] {
        if constexpr (HasOptionCheck<E>) E::check_options(Options(*request));
      });
    };
    t.has_simulator = HasSimulator<E>;
    t.describe = [](sm_values config, [[maybe_unused]] sm_values simulator, sm_description* out, void* sink,
                    void (*put)(void*, const sm_leaf*), char* error) {
      return guarded(error, [&] {
        EnvSpec spec;
        if constexpr (HasSimulator<E>)
          spec = E::spec(from_c(config), from_c(simulator));
        else
          spec = E::spec(from_c(config));
        *out = {static_cast<std::int32_t>(spec.observation_tree),
                static_cast<std::int32_t>(spec.action_tree), spec.max_num_players};
        const auto put_all = [&](sm_leaf_role role, const std::vector<Leaf>& leaves) {
          for (const Leaf& leaf : leaves) {
            const sm_leaf c{role,
                            static_cast<std::int32_t>(leaf.kind),
                            static_cast<std::int32_t>(leaf.dtype),
                            static_cast<std::int32_t>(leaf.shape.size()),
                            static_cast<std::int32_t>(leaf.low.size()),
                            leaf.name.c_str(),
                            leaf.shape.data(),
                            leaf.low.data(),
                            leaf.high.data()};
            put(sink, &c);
          }
        };
        put_all(SM_OBSERVATION, spec.observation);
        put_all(SM_ACTION, spec.action);
        put_all(SM_INFO, spec.info);
      });
    };
    t.allocate = [](std::int32_t count) -> void* { return new Stepper<E>(count); };
    t.build = [](void* envs, std::int32_t first, std::int32_t last, sm_values config,
                 [[maybe_unused]] sm_values simulator, char* error) {
      std::int32_t index = first;
      (void)guarded(error, [&] {
        const Config read = from_c(config);
        for (; index < last; ++index) {
          if constexpr (HasSimulator<E>)
            static_cast<Stepper<E>*>(envs)->emplace(index, read, from_c(simulator));
          else
            static_cast<Stepper<E>*>(envs)->emplace(index, read);
        }
      });
      return index;
    };
    t.connect = []([[maybe_unused]] void* envs, [[maybe_unused]] std::int32_t index,
                   [[maybe_unused]] sm_values simulator, char* error) {
      return guarded(error, [&] {
        if constexpr (HasSimulator<E>)
          static_cast<Stepper<E>*>(envs)->env(index).connect(from_c(simulator));
        else
          throw std::logic_error("this env has no simulator");
      });
    };
    t.release = [](void* envs) { delete static_cast<Stepper<E>*>(envs); };
    t.advance = [](void* envs, std::int32_t first_id, const sm_job* job) {
      return static_cast<int>(static_cast<Stepper<E>*>(envs)->advance(first_id, *job));
    };
    t.random_state = [](const void* envs, std::int32_t index, sm_random_state* out) {
      *out = static_cast<const Stepper<E>*>(envs)->rng(index).state();
    };
    t.picture = [](const void* envs, std::int32_t index, std::int64_t* resets, void* sink,
                   void (*put)(void*, double), char* error) {
      return guarded(error, [&] {
        const auto& stepper = *static_cast<const Stepper<E>*>(envs);
        *resets = stepper.resets(index);
        if constexpr (HasPicture<E>) {
          std::vector<double> numbers;
          stepper.env(index).picture(numbers);
          for (const double number : numbers) put(sink, number);
        }
      });
    };
    if constexpr (PlainMemory<E>) t.state_bytes = sizeof(typename Stepper<E>::Saved);
    if constexpr (PlainMemory<E> || SavesItself<E>) {
      t.save = [](const void* envs, std::int32_t index, void* sink, void (*put)(void*, const void*, std::int64_t),
                  char* error) {
        return guarded(error, [&] {
          Writer to(sink, put);
          static_cast<const Stepper<E>*>(envs)->save(index, to);
        });
      };
      t.load = [](void* envs, std::int32_t index, const void* bytes, std::int64_t count, char* error) {
        return guarded(error, [&] { static_cast<Stepper<E>*>(envs)->load(index, Reader(bytes, count)); });
      };
    }
    return t;
  }();
  table.name = name;
  return &table;
}

// ---- the other direction: what the engine reads from a table -------------------------------

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
  table.configuration(&items, [](void* sink, const sm_value* value) {
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
  if (table.describe(CValues(config).get(), CValues(simulator).get(), &description, &spec, put, error) != 0)
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
      : table_(table), envs_(table.allocate(count_of(runs))), first_id_(first_id) {
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
