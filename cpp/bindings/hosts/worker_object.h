// A worker process as Python sees it: `stepmill._native.Worker`.
//
// The loop of the process. Everything is C++, except the envs' own code and the pickling of what does not fit in
// arrays. If the envs wait for something, the loop is one of asyncio (stepmill/hosts/process/forked/event_loop.py), which
// takes the envs that have something to do.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <vector>

#include "bindings/hosts/python_env.h"
#include "bindings/hosts/simulator_states.h"
#include "bindings/hosts/turn.h"
#include "bindings/python/bytes.h"
#include "bindings/python/values.h"
#include "core/process/process_worker.h"
#include "core/surroundings.h"

namespace stepmill {

class WorkerObject {
 public:
  struct Arguments {
    int arena, outbox, rows_event;
    EnvSpec spec;
    ProcessPlan plan;
    WorkerPost post;
    // One of the two.
    std::optional<PythonEnvs> python;
    std::unique_ptr<EnvSet> native;
    bool is_loaded = false;  // native envs of a library, whose code may do anything
    nanobind::object simulators;  // of native envs: a list of one per env, or None
    // (env, mail: bytes) -> (options, objects, error) of an action; (note parts ...) -> bytes;
    // (env, question: bytes) -> bytes
    nanobind::object read_mail, write_note, answer;
    // None, or what runs the event loop: an EventLoop.
    nanobind::object loop;
  };

  explicit WorkerObject(Arguments arguments);

  // Serves until told to stop.
  void run();

  // ---- for an event loop ----

  void announce() { worker_.announce(); }
  bool told_to_stop() const { return worker_.told_to_stop(); }
  void rise() { worker_.rise(); }
  bool doze() { return worker_.doze(); }
  // Begins with the next env that has something to do and, as long as they do it at once, with those after it. Returns
  // the Turn of one that has to wait for something; None if there is none.
  nanobind::object take();
  // The coroutine of a task that an env has started.
  nanobind::object follow(int env, nanobind::object coroutine) {
    return nanobind::cast(new EnvCoroutine(*this, env, std::move(coroutine)), nanobind::rv_policy::take_ownership);
  }
  // The turns of actions that the pool no longer wants.
  nanobind::list cancelled();

  // ---- for a Turn ----

  // Says which env's code runs, as long as this object exists, and counts for how long.
  class Working {
   public:
    Working(WorkerObject& worker, std::int32_t env);
    ~Working();
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;

   private:
    WorkerObject& worker_;
    const std::int32_t env_;
    const std::uint64_t from_;
  };
  const char* phase(std::int32_t env) const;
  // What an env's method has come to: a value or an error. Returns what is to be awaited next; null: its row is written.
  nanobind::object go_on(std::int32_t env, nanobind::object value, nanobind::object error);
  void tell_waiting(Turn& turn);
  void break_off(nanobind::object error) { loop_.attr("broken")(error); }
  void leave_if_forked() const { worker_.leave_if_forked(); }

  // ---- for both ----

  // The env whose code is running; -1 if none is.
  int running() const { return python_ ? python_->kind().running : -1; }
  // Replaces an env that is about to be reset.
  void replace(int env, nanobind::object by);
  // Calls `function` right before the next reset of a Python env.
  void before_reset(int env, nanobind::object function) { python_->env(env).set_before_reset(std::move(function)); }
  // Tells a native env that its simulator has changed.
  void connect(int env);
  // The state of a native env's generator: see `random_state`.
  nanobind::object random_state(int env) const { return stepmill::random_state(envs_->random_state(env)); }
  // What a Python env has besides its own state: see `PythonEnv`.
  nanobind::object memory(int env) const { return python_->env(env).memory(); }
  void set_memory(int env, nanobind::handle memory) { python_->env(env).set_memory(memory); }
  // What decides the future of a native env.
  nanobind::object save(int env) const;
  void load(int env, nanobind::handle state) { load_env(*envs_, env, simulator(env), bytes_of(state)); }
  // Keeps what an env was before it was given a state, until its next action, in case it has to go back.
  void keep(int env, nanobind::object former) { kept_[nanobind::cast(env)] = std::move(former); }
  nanobind::object take_kept(int env) { return kept_.attr("pop")(env, nanobind::none()); }
  // What a drawing of a native env shows: see `picture`.
  nanobind::object picture(int env) const { return stepmill::picture(envs_->picture(env)); }

 private:
  nanobind::object simulator(std::int32_t env) const {
    return simulators_.is_valid() && !simulators_.is_none() ? nanobind::object(simulators_[env - first_env_]) : nanobind::none();
  }
  void read_mail(std::int32_t env);
  nanobind::object begin(std::int32_t env);
  nanobind::object act(std::int32_t env);
  nanobind::object note_of(std::int32_t env);

  ProcessWorker worker_;
  std::optional<PythonEnvs> python_;
  nanobind::object simulators_;  // before the envs that call them, so that they outlive them
  std::int32_t first_env_;
  std::unique_ptr<EnvSet> envs_;
  nanobind::object read_mail_, write_note_, answer_, loop_, waiting_;
  std::vector<nanobind::object> turns_;  // by env, from the first; of those that wait for something
  nanobind::dict kept_;
  std::optional<Surroundings> surroundings_;  // of envs of a library: as their constructors left them
};

}  // namespace stepmill
