// The parts of PoolObject that are about envs elsewhere: worker processes, and envs that move.
#include "bindings/numpy_api.h"

#include "bindings/pool_object.h"

#include <algorithm>
#include <cstring>

#include "bindings/bytes.h"
#include "bindings/errors.h"

namespace nb = nanobind;

namespace stepmill {

// ---- moving envs ------------------------------------------------------------------------------

nb::object PoolObject::export_states() {
  const auto count = static_cast<std::size_t>(pool_->num_envs());
  std::vector<std::byte> out(state_bytes());
  std::byte* to = out.data();
  const auto put = [&](const void* from, std::size_t bytes) { to = std::copy_n(static_cast<const std::byte*>(from), bytes, to); };
  put(&counts_, sizeof counts_);
  put(&pool_->table().state(0), count * sizeof(sm_env_state));
  put(&pool_->table().reset_request(0), count * sizeof(sm_reset_request));
  out.insert(out.end(), reinterpret_cast<const std::byte*>(last_ids_.data()),
             reinterpret_cast<const std::byte*>(last_ids_.data() + last_ids_.size()));
  return to_bytes(out);
}

std::size_t PoolObject::state_bytes() const {
  return sizeof counts_ + static_cast<std::size_t>(pool_->num_envs()) * (sizeof(sm_env_state) + sizeof(sm_reset_request));
}

void PoolObject::import_states(nb::handle states, nb::handle observations) {
  const auto count = static_cast<std::size_t>(pool_->num_envs());
  const auto bytes = bytes_of(states);
  if (bytes.size() < state_bytes())
    throw std::invalid_argument("import_states: these are the states of another pool");
  const std::byte* from = bytes.data();
  const auto take = [&](void* to, std::size_t size) {
    if (size != 0) std::memcpy(to, from, size);
    from += size;
  };
  take(&counts_, sizeof counts_);
  take(&pool_->table().state(0), count * sizeof(sm_env_state));
  take(&pool_->table().reset_request(0), count * sizeof(sm_reset_request));
  last_ids_.resize((bytes.size() - state_bytes()) / sizeof(std::int32_t));
  take(last_ids_.data(), last_ids_.size() * sizeof(std::int32_t));
  const sm_shared& shared = pool_->table().shared();
  for (std::int32_t env = 0; env < pool_->num_envs(); ++env) {
    nb::object observation = observations[env];
    if (observation.is_none()) continue;
    python_->env(env).go_on_from(observation, pool_->table().state(env).elapsed);
    if (!shared.last_observation) continue;
    python_->kind().observation.write(observation, env, [&](int leaf) {
      return static_cast<std::byte*>(shared.last_observation[leaf]) + env * shared.observation_bytes[leaf];
    });
  }
}

// ---- worker processes --------------------------------------------------------------------------

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
  processes_->admit(worker, incarnation, pid, pidfd, stack, outbox, static_cast<std::uint64_t>(start_timeout * 1e9));
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
  if (processes_ && !forked()) processes_->ask_to_stop();
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
