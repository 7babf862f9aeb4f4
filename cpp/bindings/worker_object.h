// A worker process as Python sees it: `stepmill._native.Worker`.
//
// The loop that the process spends its life in: all but the envs' own code, and the pickling of what no
// array holds, is C++.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <vector>

#include "bindings/python_env.h"
#include "bindings/values.h"
#include "core/process_worker.h"

namespace stepmill {

class WorkerObject {
 public:
  struct Arguments {
    int arena, outbox;
    EnvSpec spec;
    ProcessPlan plan;
    int worker;
    unsigned incarnation;
    // One of the two.
    std::optional<PythonEnvs> python;
    std::unique_ptr<EnvSet> native;
    // (env, mail: bytes) -> (options, objects, error) of an action; (note parts ...) -> bytes;
    // (env, question: bytes) -> bytes
    nanobind::object read_mail, write_note, answer;
  };

  explicit WorkerObject(Arguments arguments);

  // Serves until told to stop.
  void run();
  // The env whose code runs, -1 when none does.
  int running() const { return python_ ? python_->kind().running : -1; }
  // Puts another env in the place of one that is about to be reset.
  void replace(int env, nanobind::object by);
  // Where the generator of a native env stands: see `random_state`.
  nanobind::object random_state(int env) const { return stepmill::random_state(envs_->random_state(env)); }

 private:
  void act(std::int32_t env);
  nanobind::object note_of(std::int32_t env);

  ProcessWorker worker_;
  std::optional<PythonEnvs> python_;
  std::unique_ptr<EnvSet> envs_;
  nanobind::object read_mail_, write_note_, answer_;
};

}  // namespace stepmill
