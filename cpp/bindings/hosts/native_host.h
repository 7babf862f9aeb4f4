// Native envs in this process: on threads, in the calling one, or both. `stepmill._native.NativeHost`.
#pragma once

#include <algorithm>

#include "bindings/hosts/callback_errors.h"
#include "bindings/hosts/simulator_states.h"
#include "bindings/python/errors.h"
#include "bindings/host.h"
#include "bindings/python/values.h"
#include "core/local_pool.h"

namespace stepmill {

class NativeHost final : public Host {
 public:
  // `simulators` is None, or a list of one simulator per env, which the host keeps until its threads have stopped.
  // `errors`: those of the simulators, which the options let it keep.
  NativeHost(const sm_env_table& table, std::unique_ptr<EnvSet> envs, EnvSpec spec, const PoolOptions& options,
             nanobind::object simulators, std::shared_ptr<CallbackErrors> errors)
      : Host(std::make_unique<LocalPool>(std::move(envs), std::move(spec), options), &table),
        simulators_(std::move(simulators)),
        errors_(std::move(errors)) {}

  ~NativeHost() override { close_at_last(); }

  // The states of the envs' generators. None of the envs may be in flight.
  nanobind::list random_states(const std::vector<std::int32_t>& env_ids) const {
    nanobind::list out;
    for (const std::int32_t env : env_ids) {
      check_idle(env, "its generator");
      out.append(random_state(local_pool().envs().random_state(env)));
    }
    return out;
  }

  // What drawings of the envs show. None of the envs may be in flight.
  nanobind::list pictures(const std::vector<std::int32_t>& env_ids) const {
    nanobind::list out;
    for (const std::int32_t env : env_ids) {
      check_idle(env, "its state");
      out.append(picture(local_pool().envs().picture(env)));
    }
    return out;
  }

  // Whether the envs' class says how it can be saved.
  bool can_save() const { return local_pool().envs().can_save(); }

  nanobind::object save(std::span<const std::int32_t> envs, nanobind::handle, std::vector<std::byte>& to,
                        std::vector<std::size_t>& ends) override {
    const EnvSet& set = local_pool().envs();
    to.reserve(envs.size() * set.state_bytes());
    ends.reserve(envs.size());
    for (const std::int32_t env : envs) {
      save_env(set, env, simulator(env), to);
      ends.push_back(to.size());
      if (ends.size() == 1) to.reserve(envs.size() * to.size());  // nearly always, all have the same size
    }
    return {};
  }

  nanobind::object load(std::span<const std::int32_t> envs, std::span<const std::span<const std::byte>> states) override {
    const std::size_t bytes = local_pool().envs().state_bytes();
    std::vector<std::byte> before;  // to go back to if one of them does not take its state
    std::vector<std::size_t> ends;
    if (bytes == 0) save(envs, {}, before, ends);
    else if (std::any_of(states.begin(), states.end(), [bytes](const auto& one) { return one.size() != bytes; }))
      raise("StateError", "restore: a state of another size: expected " + std::to_string(bytes) + " bytes");
    std::size_t i = 0;
    const auto go_back = [&] {
      for (std::size_t j = 0, first = 0; j <= i; first = ends[j++])
        load_one(envs[j], std::span(before).subspan(first, ends[j] - first));
    };
    try {
      for (; i < envs.size(); ++i) load_one(envs[i], states[i]);
      return nanobind::none();
    } catch (const std::invalid_argument& error) {
      go_back();
      raise("StateError", "restore: the env did not take its state: " + std::string(error.what()));
    } catch (const nanobind::python_error&) {
      go_back();
      throw;
    }
  }

  // The three methods of hosts of Python envs (stepmill/hosts/host.py), for an engine elsewhere that has these envs.

  nanobind::list save_envs(const std::vector<std::int32_t>& env_ids, nanobind::handle by) {
    std::vector<std::byte> saved;
    std::vector<std::size_t> ends;
    save(env_ids, by, saved, ends);
    nanobind::list out;
    for (std::size_t i = 0, first = 0; i < ends.size(); first = ends[i++])
      out.append(to_bytes(std::span(saved).subspan(first, ends[i] - first)));
    return out;
  }

  void load_envs(const std::vector<std::int32_t>& env_ids, const nanobind::list& states, nanobind::list former) {
    const nanobind::list before = save_envs(env_ids, nanobind::none());
    load_list(env_ids, states);  // all of them or none
    former.extend(before);
  }

  void put_back(const std::vector<std::int32_t>& env_ids, const nanobind::list& former) {
    load_list(std::span(env_ids).first(former.size()), former);
  }

  // The simulator of an env, which belongs to the host: it ends with it. None if the envs have none.
  nanobind::object simulator(std::int32_t env) const {
    return simulators_.is_valid() && !simulators_.is_none() ? nanobind::object(simulators_[env]) : nanobind::none();
  }

  // Tells an env, which must be idle, that its simulator has changed: it uses what that says now from its next reset on.
  void connect(std::int32_t env) {
    check_idle(env, "its simulator");
    connect_simulator(local_pool().envs(), env, simulators_[env]);
  }

  bool writes_here() const override { return true; }
  bool needs_python() const override { return !simulators_.is_none(); }
  bool has_to_fetch() const override { return true; }  // what is too little for threads, the caller steps in `work`
  // A simulator may call Python code of the user, on other threads too: they need the interpreter lock meanwhile.
  bool is_brief() const override { return simulators_.is_none() && Host::is_brief(); }

  // A KeyboardInterrupt that fell into a callback in this thread is raised again: it may be the user's.
  void work(std::chrono::nanoseconds most) override {
    Host::work(most);
    if (nanobind::object interrupt = errors_->take_interrupt(); interrupt.is_valid()) raise_again(interrupt);
  }

  // What callbacks raised, in the form of `InlineHost`'s notes.
  nanobind::object take_notes(const Batch& batch, std::vector<Fault>& faults) override {
    nanobind::object notes;
    for (const Fault& fault : faults) {
      nanobind::object error = errors_->take(fault.env);
      if (!error.is_valid()) continue;
      const nanobind::object none = nanobind::none();
      const auto row = std::find(batch.env_id, batch.env_id + batch.rows, fault.env) - batch.env_id;
      add_to_list(notes, nanobind::make_tuple(row, fault.env, none, none, none, none, error, ""));
    }
    return notes;
  }

  // Calls `show_slow` of the derived class.
  void report_slow() override {
    for (const std::int32_t env : local_pool().take_slow()) nanobind::find(*this).attr("show_slow")(env);
  }

  // Raises if one of the envs is in flight: then `what` is in use.
  void check_all_idle(const std::vector<std::int32_t>& env_ids, const std::string& what) const {
    for (const std::int32_t env : env_ids) check_idle(env, what);
  }

 private:
  void load_list(std::span<const std::int32_t> envs, const nanobind::list& states) {
    std::vector<std::span<const std::byte>> bytes;
    for (nanobind::handle one : states) bytes.push_back(bytes_of(one));
    if (bytes.size() != envs.size()) throw nanobind::value_error("expected a state per env");
    load(envs, bytes);
  }

  void load_one(std::int32_t env, std::span<const std::byte> state) {
    load_env(local_pool().envs(), env, simulator(env), state);
  }

  void check_idle(std::int32_t env, const std::string& what) const {
    if (pool().in_flight(env))
      raise("InFlightError",
            "env " + std::to_string(env) + " is in flight, and " + what + " is in use: recv() its result first");
  }
  LocalPool& local_pool() const { return static_cast<LocalPool&>(pool()); }

  void end() override {
    Host::end();
    simulators_.reset();  // after the threads that call them
  }

  nanobind::object simulators_;
  const std::shared_ptr<CallbackErrors> errors_;
};

}  // namespace stepmill
