// Envs in worker processes: `stepmill._native.ProcessHost`.
//
// Python starts the processes (stepmill/hosts/process): `to_restart` says which workers need one, `admit` announces it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bindings/host.h"
#include "core/process/process_pool.h"

namespace stepmill {

class ProcessHost final : public Host {
 public:
  // `table`: that of native envs, otherwise null.
  ProcessHost(std::unique_ptr<ProcessPool> pool, const sm_env_table* table) : Host(std::move(pool), table) {}
  ~ProcessHost() override { close_at_last(); }

  // ---- workers ----

  // A ProcessPlan as bytes: workers have the same build.
  nanobind::object plan() const;
  int arena_descriptor() const { return processes().arena_descriptor(); }
  int bell_descriptor(int worker) const { return processes().bell_descriptor(worker); }
  int rows_event_descriptor() const { return processes().rows_event_descriptor(); }
  void admit(int worker, unsigned incarnation, int pid, int pidfd, int stack, int outbox, double start_timeout);
  auto to_restart() { return processes().to_restart(); }
  void restart_failed(int worker, unsigned incarnation, const std::string& why) {
    processes().restart_failed(worker, incarnation, why);
  }
  // See `ProcessPool`: they take their places when `load_envs` has returned. Where the engine does not call it, as in an
  // actor whose caller has other actors too, whoever does says when: `install_successors`.
  auto next_incarnation(int worker) const { return processes().next_incarnation(worker); }
  void name_successor(int worker, unsigned incarnation, int pid, int pidfd, int stack, int outbox) {
    processes().name_successor(worker, incarnation, pid, pidfd, stack, outbox);
  }
  void drop_successors() { processes().drop_successors(); }
  void install_successors();

  // ---- calls ----

  // Asks all these envs at once and waits for the answers: bytes, or a tuple for a fault. An env whose action is
  // running finishes it first.
  std::vector<nanobind::object> ask(const std::vector<std::int32_t>& envs, nanobind::handle questions);

  // Asks an env without waiting for the answer; false if the env is busy. `take_posted` returns the answers that have
  // come: (env, bytes), or (env, a tuple for a fault). The env's next action waits for its answer.
  bool post(std::int32_t env, nanobind::handle question);
  std::vector<std::pair<std::int32_t, nanobind::object>> take_posted();

  // Whether an env answers at once, because its worker does nothing for it.
  bool at_rest(int env) const { return processes().at_rest(env); }
  // Whether native envs say how they can be saved.
  bool can_save() const { return table() && table()->save; }

  // ---- the host ----

  void check_whole() const override { processes().check_whole(); }
  void cancel(std::span<const std::int32_t> envs) override { processes().cancel(envs); }
  void settle(std::span<const std::int32_t> envs) override;
  void give_objects(std::int32_t env, nanobind::handle objects) override;
  void give_options(const ResetOrder& order) override;
  // No code of Python runs between what it loads and that it counts: a signal handler might raise there.
  nanobind::object load(std::span<const std::int32_t> envs, std::span<const std::span<const std::byte>> states) override;
  bool wants_attention() const override { return processes().wants_attention() || has_replaced_; }
  // Calls the derived class: `show_news` shows the user what there is to tell, `start_successors` lets those serve that
  // have taken their places, `restart` starts the processes that are needed.
  void attend() override;
  nanobind::object take_notes(const Batch& batch, std::vector<Fault>& faults) override;
  void add_stats(nanobind::dict& out) const override;

 private:
  void kill() override { processes().kill(); }
  // A killed process ends at once, unless a driver or a debugger holds it: then we leave it to them.
  std::optional<std::chrono::seconds> longest_wait() const override { return std::chrono::seconds(5); }
  ProcessPool& processes() const { return static_cast<ProcessPool&>(pool()); }
  void wait_for(std::int32_t env);
  nanobind::object answer_of(std::int32_t env);

  // Envs whose answer to a call was not waited for: because of Ctrl-C, or because it was posted.
  std::vector<std::int32_t> abandoned_, posted_;
  std::vector<std::pair<std::int32_t, nanobind::object>> answers_;  // to what was posted
  bool has_replaced_ = false;                                       // successors wait for a word to begin
};

}  // namespace stepmill
