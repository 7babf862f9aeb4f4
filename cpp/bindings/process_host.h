// Envs in worker processes: `stepmill._native.ProcessHost`.
//
// Starting the processes is Python's (stepmill/pool/process): `to_restart` says where one is needed, `admit` is told of
// it.
#pragma once

#include <string>

#include "bindings/host.h"
#include "core/process_pool.h"

namespace stepmill {

class ProcessHost final : public Host {
 public:
  // `table`: of native envs, else null.
  ProcessHost(std::unique_ptr<ProcessPool> pool, const sm_env_table* table) : Host(std::move(pool), table) {}
  ~ProcessHost() override { close_at_last(); }

  // ---- workers ----

  nanobind::dict plan() const;
  int arena_descriptor() const { return processes().arena_descriptor(); }
  void admit(int worker, unsigned incarnation, int pid, int pidfd, int stack, int outbox, double start_timeout);
  nanobind::list to_restart();
  void restart_failed(int worker, unsigned incarnation, const std::string& why);

  // ---- calls ----

  // Asks envs something, all at once, and waits: a list of the answers (bytes), or of faults (tuples).
  // An env whose action is running finishes it first.
  nanobind::list ask(nanobind::handle env_ids, nanobind::handle questions);

  // ---- the host ----

  void check_whole() const override { processes().check_whole(); }
  void settle(std::span<const std::int32_t> envs) override;
  void give_objects(std::int32_t env, nanobind::handle objects) override;
  void give_options(const ResetOrder& order) override;
  bool wants_attention() const override { return processes().wants_attention(); }
  // Has Python start processes where they are needed: `restart` of the class that derives from this one.
  void attend() override;
  nanobind::object take_notes(const Batch& batch, std::vector<Fault>& faults) override;
  void add_stats(nanobind::dict& out, double age_s) const override;

 private:
  void kill() override { processes().kill(); }
  // A killed process ends at once, unless a driver or a debugger holds it: then it is left to them.
  std::optional<std::chrono::seconds> longest_wait() const override { return std::chrono::seconds(5); }
  ProcessPool& processes() const { return static_cast<ProcessPool&>(pool()); }
  void wait_for(std::int32_t env);

  std::vector<std::int32_t> abandoned_;  // envs whose answer to a call nobody waited for: Ctrl-C
};

}  // namespace stepmill
