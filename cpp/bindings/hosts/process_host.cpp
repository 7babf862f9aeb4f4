#include "bindings/hosts/process_host.h"

#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "bindings/python/values.h"

namespace nb = nanobind;

namespace stepmill {

// ---- workers -----------------------------------------------------------------------------------

nb::object ProcessHost::plan() const {
  const ProcessPlan plan = processes().plan();
  return to_bytes(std::as_bytes(std::span(&plan, 1)));
}

void ProcessHost::admit(int worker, unsigned incarnation, int pid, int pidfd, int stack, int outbox,
                        double start_timeout) {
  processes().admit(worker, incarnation, pid, pidfd, stack, outbox, nanoseconds_of(start_timeout));
}

void ProcessHost::attend() {
  const nb::object self = nb::find(*this);
  for (const std::string& text : processes().take_news()) self.attr("show_news")(to_text(text));
  if (has_replaced_) {
    self.attr("start_successors")();
    has_replaced_ = false;
  }
  self.attr("restart")();
}

nb::object ProcessHost::load(std::span<const std::int32_t> envs, std::span<const std::span<const std::byte>> states) {
  nb::object late = Host::load(envs, states);
  install_successors();
  return late;
}

void ProcessHost::install_successors() {
  const nb::gil_scoped_release release;
  has_replaced_ |= processes().install_successors();
}

// ---- calls -------------------------------------------------------------------------------------

std::vector<nb::object> ProcessHost::ask(const std::vector<std::int32_t>& envs, nb::handle questions) {
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
  for (std::size_t i = 0; i < envs.size(); ++i)
    if (!answers[i].is_valid()) take(i);
  return answers;
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

std::vector<std::pair<std::int32_t, nb::object>> ProcessHost::take_posted() {
  for (const std::int32_t env : std::vector(posted_))
    if (processes().at_rest(env)) settle({&env, 1});
  return std::exchange(answers_, {});
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
      add_to_list(notes, nb::make_tuple(row, env, note));
    }
  }
  return notes;
}

// ---- measurements ------------------------------------------------------------------------------

void ProcessHost::add_stats(nb::dict& out) const { out["outbox_bytes"] = processes().outbox_bytes(); }

}  // namespace stepmill
