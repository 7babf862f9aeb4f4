// The lines around an author's class that make a library of it, which the engine loads (`core/env_libraries.h`).
//
// stepmill writes a file of two lines, an include of the author's and `STEPMILL_LIBRARY(TheClass, "TheClass")`, and
// compiles that. The library exports one function. Distributions are the engine's, which hands in pointers to them: the
// library needs neither numpy nor the engine to be linked.
#pragma once

#include <concepts>

#include "core/env/env_table.h"
#include "core/table_of.h"

namespace stepmill {

inline const sm_engine_functions* engine_functions = nullptr;

// Says what an author's class lacks, a sentence each: without it the compiler complains of lines that are not the author's.
template <class E>
constexpr bool is_env() {
  constexpr bool has_spec = requires(const Config& config) {
    { E::spec(config) } -> std::same_as<EnvSpec>;
  };
  constexpr bool can_build = requires(const Config& config) { E(config); };
  constexpr bool has_reset = requires(E& env, Rng& rng, const Options& options) { env.reset(rng, options); };
  constexpr bool has_step = requires(E& env, const ActionRow& action, Rng& rng) {
    { env.step(action, rng) } -> std::same_as<Outcome>;
  };
  constexpr bool has_observe = requires(const E& env, const Row& row) { env.observe(row); };
  static_assert(has_spec, "spec must be public: static EnvSpec spec(const Config& config)");
  static_assert(can_build, "the constructor must be public and take the configuration: explicit MyEnv(const Config& config)");
  static_assert(has_reset, "reset must be public: void reset(Rng& rng, const Options& options)");
  static_assert(has_step, "step must be public and return Outcome: Outcome step(const ActionRow& action, Rng& rng)");
  static_assert(has_observe, "observe must be public and const: void observe(const Row& row) const");
  return has_spec && can_build && has_reset && has_step && has_observe;
}

}  // namespace stepmill

extern "C" {

uint64_t random_bounded_uint64(sm_bit_source* bits, uint64_t offset, uint64_t range, uint64_t mask, bool use_masked) {
  return stepmill::engine_functions->bounded(bits, offset, range, mask, use_masked);
}

double random_standard_normal(sm_bit_source* bits) { return stepmill::engine_functions->standard_normal(bits); }

}  // extern "C"

// NOLINTNEXTLINE: the name of a class cannot be an argument of a function
#define STEPMILL_LIBRARY(Class, name)                                                                                  \
  extern "C" [[gnu::visibility("default")]] const sm_env_table* stepmill_env_table(const sm_engine_functions* engine) { \
    stepmill::engine_functions = engine;                                                                               \
    if constexpr (stepmill::is_env<Class>())                                                                           \
      return stepmill::table_of<Class>(name);                                                                          \
    else                                                                                                               \
      return nullptr;                                                                                                  \
  }
