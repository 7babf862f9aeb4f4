// Native envs in this process: on threads, in the calling one, or both.
#pragma once

#include "bindings/host.h"
#include "bindings/values.h"
#include "core/local_pool.h"

namespace stepmill {

class NativeHost final : public Host {
 public:
  NativeHost(const sm_env_table& table, std::unique_ptr<EnvSet> envs, EnvSpec spec, const PoolOptions& options)
      : Host(std::make_unique<LocalPool>(std::move(envs), std::move(spec), options), &table) {}

  nanobind::object random_state(std::int32_t env) const override {
    return stepmill::random_state(static_cast<const LocalPool&>(pool()).envs().random_state(env));
  }
};

}  // namespace stepmill
