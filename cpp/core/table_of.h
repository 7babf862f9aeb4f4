// Makes the engine's function table from an env class. Compiled once per class, so it includes little.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "core/env/c_values.h"
#include "core/env/env_table.h"
#include "core/stepper.h"

namespace stepmill {

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

// Hands a description to the engine.
inline void put_spec(const EnvSpec& spec, sm_description* out, void* sink, void (*put)(void*, const sm_leaf*)) {
  *out = {static_cast<std::int32_t>(spec.observation_tree),
          static_cast<std::int32_t>(spec.action_tree), spec.max_num_players};
  const auto put_all = [&](sm_leaf_role role, const std::vector<Leaf>& leaves) {
    for (Leaf leaf : leaves) {
      // One value stands for all, but the engine is told one count for both bounds.
      if (leaf.low.size() == 1) leaf.low.resize(leaf.high.size(), leaf.low[0]);
      if (leaf.high.size() == 1) leaf.high.resize(leaf.low.size(), leaf.high[0]);
      if (leaf.low.size() != leaf.high.size())
        throw std::invalid_argument(leaf.name + ": expected as many lows as highs, got " +
                                    std::to_string(leaf.low.size()) + " and " + std::to_string(leaf.high.size()));
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
}

template <class E>
const sm_env_table* table_of(const char* name) {
  static constexpr const char* kNoOptions[] = {nullptr};
  static sm_env_table table = [] {
    sm_env_table t{};
    t.abi_version = SM_ABI_VERSION;
    t.size = sizeof(sm_env_table);
    t.never_blocks = NeverBlocks<E>;
    t.object_bytes = sizeof(E);
    t.object_alignment = alignof(E);
    t.configuration = [](const sm_env_table*, [[maybe_unused]] void* sink,
                         [[maybe_unused]] void (*put)(void*, const sm_value*), char* error) {
      return guarded(error, [&] {
        if constexpr (HasConfiguration<E>)
          for (const ConfigItem& item : E::configuration()) {
            const sm_value value = to_c(item);
            put(sink, &value);
          }
      });
    };
    if constexpr (HasResetOptions<E>)
      t.reset_options = E::kResetOptions;
    else
      t.reset_options = kNoOptions;
    t.check_options = [](const sm_env_table*, const sm_reset_request* request, char* error) {
      return guarded(error, [&] {
        if constexpr (HasOptionCheck<E>) E::check_options(Options(*request));
      });
    };
    t.has_simulator = HasSimulator<E>;
    t.describe = [](const sm_env_table*, sm_values config, [[maybe_unused]] sm_values simulator, sm_description* out,
                    void* sink, void (*put)(void*, const sm_leaf*), char* error) {
      return guarded(error, [&] {
        EnvSpec spec;
        if constexpr (HasSimulator<E>)
          spec = E::spec(from_c(config), from_c(simulator));
        else
          spec = E::spec(from_c(config));
        put_spec(spec, out, sink, put);
      });
    };
    t.allocate = [](const sm_env_table*, std::int32_t count) -> void* {
      try {
        return new Stepper<E>(count);
      } catch (const std::bad_alloc&) {
        return nullptr;
      }
    };
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
    if constexpr (PlainMemory<E> || ReadsMemory<E>)
      t.memory = [](const void* envs, std::int32_t index, sm_env_memory* out) {
        const E& env = static_cast<const Stepper<E>*>(envs)->env(index);
        *out = {&env, sizeof(E), nullptr, 0, 0};
        if constexpr (ReadsMemory<E>) {
          const auto& shared = env.reads();  // its first word is the address
          out->read = shared.get();
          out->read_bytes = static_cast<std::int64_t>(shared->bytes());
          out->read_offset = reinterpret_cast<const char*>(&shared) - reinterpret_cast<const char*>(&env);
        }
      };
    return t;
  }();
  table.name = name;
  return &table;
}

}  // namespace stepmill
