// Python envs in the calling thread: `stepmill._native.InlineHost`.
#pragma once

#include "bindings/host.h"
#include "bindings/hosts/python_env.h"

namespace stepmill {

class InlineHost final : public Host {
 public:
  // `check_usable`: None, or raises where the envs cannot run now.
  InlineHost(PythonEnvs envs, EnvSpec spec, const PoolOptions& options, nanobind::object check_usable);
  ~InlineHost() override { close_at_last(); }

  // For an env that is not in flight and is about to be reset: replaces it, or makes the reset fail.
  void replace(int env, nanobind::object by) { envs_->env(env).replace(std::move(by)); }
  void fail_next(int env, nanobind::object error) { envs_->env(env).set_failure(std::move(error)); }
  // Calls `function` right before the next reset of an env that is not in flight.
  void before_reset(int env, nanobind::object function) { envs_->env(env).set_before_reset(std::move(function)); }

  // See `PythonEnv`; for envs that are not in flight.
  nanobind::object memory(int env) const { return envs_->env(env).memory(); }
  void set_memory(int env, nanobind::handle memory) { envs_->env(env).set_memory(memory); }

  void check_whole() const override {
    if (!check_usable_.is_none()) check_usable_();
  }
  void give_objects(std::int32_t env, nanobind::handle objects) override;
  void give_options(const ResetOrder& order) override;
  bool runs_beside_the_caller() const override { return false; }
  bool has_to_fetch() const override { return true; }
  bool is_brief() const override { return false; }  // its envs may take any time, and need the interpreter lock
  void work(std::chrono::nanoseconds most) override;
  nanobind::object take_notes(const Batch& batch, std::vector<Fault>& faults) override;

  // For the garbage collector: an env may refer to its pool.
  int traverse(visitproc visit, void* arg) const;
  void clear_references();

 private:
  void end() override;

  std::optional<PythonEnvs> envs_;
  const nanobind::object check_usable_;
};

}  // namespace stepmill
