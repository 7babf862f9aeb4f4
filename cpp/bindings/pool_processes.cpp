// The parts of PoolObject that are about worker processes.
#include "bindings/numpy_api.h"

#include "bindings/pool_object.h"

#include <algorithm>

#include "bindings/bytes.h"
#include "bindings/errors.h"
#include "bindings/exit.h"
#include "bindings/values.h"

namespace nb = nanobind;

namespace stepmill {

nb::dict PoolObject::plan() const {
  const ProcessPlan plan = processes_->plan();
  nb::dict out;
  out["num_envs"] = plan.table.num_envs;
  out["max_episode_steps"] = plan.table.max_episode_steps;
  out["autoreset"] = static_cast<int>(plan.table.autoreset);
  out["reward_is_float32"] = plan.table.reward_is_float32;
  out["batch_size"] = plan.batch_size;
  out["num_workers"] = plan.process.num_workers;
  out["keep_last_observation"] = plan.process.keep_last_observation;
  out["arena_bytes"] = plan.arena_bytes;
  out["table_offset"] = plan.table_offset;
  out["process_offset"] = plan.process_offset;
  return out;
}

void PoolObject::admit(int worker, unsigned incarnation, int pid, int pidfd, int stack, int outbox,
                       double start_timeout) {
  processes_->admit(worker, incarnation, pid, pidfd, stack, outbox, nanoseconds_of(start_timeout));
}

nb::list PoolObject::to_restart() {
  nb::list out;
  for (const auto& [worker, incarnation] : processes_->to_restart()) out.append(nb::make_tuple(worker, incarnation));
  return out;
}

void PoolObject::restart_failed(int worker, unsigned incarnation, const std::string& why) {
  processes_->restart_failed(worker, incarnation, why);
}

nb::object PoolObject::ask(nb::handle env_ids, nb::handle questions) {
  std::vector<std::int32_t> envs;
  for (nb::handle env : env_ids) envs.push_back(nb::cast<std::int32_t>(env));
  settle_calls(envs);
  std::vector<nb::object> answers(envs.size());
  const auto take = [&](std::size_t i) {
    wait_for(envs[i]);
    std::erase(abandoned_, envs[i]);
    std::vector<std::byte> answer;
    const auto fault = processes_->take_call(envs[i], answer);
    answers[i] = fault ? fault_tuple(*fault) : to_bytes(answer);
  };
  for (std::size_t i = 0; i < envs.size(); ++i) {
    // An env that is asked twice answers the first question first.
    for (std::size_t before = 0; before < i; ++before)
      if (envs[before] == envs[i] && !answers[before].is_valid()) take(before);
    wait_for(envs[i]);
    processes_->queue_call(envs[i], bytes_of(questions[i]));
    abandoned_.push_back(envs[i]);  // should we leave before the answer is there
  }
  if (processes_->wants_attention()) attend();
  nb::list out;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    if (!answers[i].is_valid()) take(i);
    out.append(answers[i]);
  }
  return out;
}

// Waits until no action or call of an env is under way.
void PoolObject::wait_for(std::int32_t env) {
  while (!processes_->at_rest(env)) {
    if (processes_->wants_attention()) attend();
    {
      const nb::gil_scoped_release release;
      processes_->wait_at_rest(env, kSignalInterval);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    end_thread_at_exit();
  }
}

// An env answers one thing at a time: calls that Ctrl-C left are waited for before it is asked another.
void PoolObject::settle_calls(std::span<const std::int32_t> envs) {
  if (abandoned_.empty()) return;
  for (const std::int32_t env : envs) {
    if (std::find(abandoned_.begin(), abandoned_.end(), env) == abandoned_.end()) continue;
    wait_for(env);
    std::vector<std::byte> answer;
    (void)processes_->take_call(env, answer);
    std::erase(abandoned_, env);
  }
}

void PoolObject::ask_to_stop() {
  if (!processes_ || forked()) return;
  closed_ = true;
  processes_->ask_to_stop();
}

bool PoolObject::wait_stopped(double most) {
  if (!processes_ || forked()) return true;
  const nb::gil_scoped_release release;
  processes_->wait_stopped(std::chrono::nanoseconds(static_cast<std::int64_t>(most * 1e9)));
  return processes_->stopped();
}

void PoolObject::kill() {
  if (processes_ && !forked()) processes_->kill();
}

}  // namespace stepmill
