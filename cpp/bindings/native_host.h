// Native envs in this process: on threads, in the calling one, or both. `stepmill._native.NativeHost`.
#pragma once

#include "bindings/errors.h"
#include "bindings/host.h"
#include "bindings/values.h"
#include "core/local_pool.h"

namespace stepmill {

class NativeHost final : public Host {
 public:
  NativeHost(const sm_env_table& table, std::unique_ptr<EnvSet> envs, EnvSpec spec, const PoolOptions& options)
      : Host(std::make_unique<LocalPool>(std::move(envs), std::move(spec), options), &table) {}

  ~NativeHost() override { close_at_last(); }

  // The states of the envs' generators. None of the envs may be in flight.
  nanobind::list random_states(const std::vector<std::int32_t>& env_ids) const {
    nanobind::list out;
    for (const std::int32_t env : env_ids) {
      if (pool().in_flight(env))
        raise("InFlightError", "env " + std::to_string(env) +
                                   " is in flight, and its generator is in use: recv() its result first");
      out.append(random_state(static_cast<const LocalPool&>(pool()).envs().random_state(env)));
    }
    return out;
  }
};

}  // namespace stepmill
