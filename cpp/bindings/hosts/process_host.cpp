#include "bindings/hosts/process_host.h"

#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "bindings/output/faults.h"
#include "bindings/python/values.h"

namespace nb = nanobind;

namespace stepmill {

// ---- workers -----------------------------------------------------------------------------------

nb::dict ProcessHost::plan() const {
  const ProcessPlan plan = processes().plan();
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

void ProcessHost::admit(int worker, unsigned incarnation, int pid, int pidfd, int stack, int outbox,
                        double start_timeout) {
  processes().admit(worker, incarnation, pid, pidfd, stack, outbox, nanoseconds_of(start_timeout));
}

nb::list ProcessHost::to_restart() {
  nb::list out;
  for (const auto& [worker, incarnation] : processes().to_restart()) out.append(nb::make_tuple(worker, incarnation));
  return out;
}

void ProcessHost::restart_failed(int worker, unsigned incarnation, const std::string& why) {
  processes().restart_failed(worker, incarnation, why);
}

void ProcessHost::attend() {
  const nb::object self = nb::find(*this);
  for (const std::string& text : processes().take_news()) self.attr("show_news")(to_text(text));
  self.attr("restart")();
}

// ---- calls -------------------------------------------------------------------------------------

nb::list ProcessHost::ask(nb::handle env_ids, nb::handle questions) {
  std::vector<std::int32_t> envs;
  for (nb::handle env : env_ids) envs.push_back(nb::cast<std::int32_t>(env));
  settle(envs);
  std::vector<nb::object> answers(envs.size());
  const auto take = [&](std::size_t i) {
    wait_for(envs[i]);
    std::erase(abandoned_, envs[i]);
    answers[i] = answer_of(envs[i]);
  };
  for (std::size_t i = 0; i < envs.size(); ++i) {
    // An env that is asked twice answers the first question first.
    for (std::size_t before = 0; before < i; ++before)
      if (envs[before] == envs[i] && !answers[before].is_valid()) take(before);
    wait_for(envs[i]);
    processes().queue_call(envs[i], bytes_of(questions[i]));
    abandoned_.push_back(envs[i]);  // in case we leave before the answer is ready
  }
  if (wants_attention()) attend();
  nb::list out;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    if (!answers[i].is_valid()) take(i);
    out.append(answers[i]);
  }
  return out;
}

nb::object ProcessHost::answer_of(std::int32_t env) {
  std::vector<std::byte> answer;
  const auto fault = processes().take_call(env, answer);
  return fault ? nb::object(fault_tuple(*fault)) : nb::object(to_bytes(answer));
}

bool ProcessHost::post(std::int32_t env, nb::handle question) {
  if (env < 0 || env >= pool().num_envs() || std::find(abandoned_.begin(), abandoned_.end(), env) != abandoned_.end() ||
      !processes().at_rest(env))
    return false;
  processes().queue_call(env, bytes_of(question));
  abandoned_.push_back(env);
  posted_.push_back(env);
  return true;
}

nb::list ProcessHost::take_posted() {
  for (const std::int32_t env : std::vector(posted_))
    if (processes().at_rest(env)) settle({&env, 1});
  nb::list out;
  for (auto& [env, answer] : std::exchange(answers_, {})) out.append(nb::make_tuple(env, answer));
  return out;
}

// Waits until no action or call of an env is under way.
void ProcessHost::wait_for(std::int32_t env) {
  while (!processes().at_rest(env)) {
    if (wants_attention()) attend();
    {
      const nb::gil_scoped_release release;
      processes().wait_at_rest(env, kSignalInterval);
    }
    look_for_signals();
  }
}

// An env answers one call at a time: we wait for what was posted, and for calls that Ctrl-C interrupted, before we ask
// the env again.
void ProcessHost::settle(std::span<const std::int32_t> envs) {
  if (abandoned_.empty()) return;
  for (const std::int32_t env : envs) {
    if (std::find(abandoned_.begin(), abandoned_.end(), env) == abandoned_.end()) continue;
    wait_for(env);
    nb::object answer = answer_of(env);
    std::erase(abandoned_, env);
    if (std::erase(posted_, env) != 0) answers_.emplace_back(env, std::move(answer));
  }
}

// ---- besides the arrays ------------------------------------------------------------------------

void ProcessHost::give_objects(std::int32_t env, nb::handle objects) { processes().set_mail(env, bytes_of(objects)); }

void ProcessHost::give_options(const ResetOrder& order) {
  if (table()) return;  // the options of native envs are numbers
  try {
    for (std::size_t i = 0; i < order.envs.size(); ++i)
      if (const nb::object& mail = order.object_of(i); !mail.is_none() && order.resets(i))
        processes().set_mail(order.envs[i], bytes_of(mail));
  } catch (...) {  // no memory: none of it may go with another action
    for (const std::int32_t env : order.envs) processes().set_mail(env, {});
    throw;
  }
}

// (row, env, bytes)
nb::object ProcessHost::take_notes(const Batch& batch, std::vector<Fault>& faults) {
  nb::object notes;
  for (const auto& [row, env] : processes().noted()) {
    nb::object note;
    const bool good = processes().read_note(env, [&](std::span<const std::byte> bytes) {
      note = to_bytes(bytes);
      return bytes_of(note);
    });
    if (!good) {  // these are not the bytes that its worker wrote: the row becomes a failure
      std::erase_if(faults, [&, id = env](const Fault& fault) { return fault.env == id; });
      faults.push_back(processes().spoil(batch, row));
    } else if (note.is_valid() && PyBytes_GET_SIZE(note.ptr()) != 0) {
      if (!notes.is_valid()) notes = nb::list();
      nb::borrow<nb::list>(notes).append(nb::make_tuple(row, env, note));
    }
  }
  return notes;
}

// ---- measurements ------------------------------------------------------------------------------

void ProcessHost::add_stats(nb::dict& out) const { out["outbox_bytes"] = processes().outbox_bytes(); }

}  // namespace stepmill
