// A Python env for the engine's stepper: it uses the same autoreset machine as native envs, both in the calling process
// and in worker processes.
//
// The methods of an env may be coroutines: what they return is awaited. In the calling process that happens at once; the
// event loop of a worker process gets it (`take_awaited`), and when the answer is there (`answer`), the action is done
// once more, see `Suspended` in core/stepper.h.
//
// The arrays of a row go to the batch. What does not fit in arrays (the info dict, parts of observations that are
// Python objects, the env's own exception) waits in a Note until the batch is returned.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/python/tree.h"
#include "core/stepper.h"
#include "core/env_set.h"
#include "core/table_of.h"

namespace stepmill {

// An info that travels as an array: its key in the env's dict, and how messages name it.
struct InfoInput {
  nanobind::object key;
  std::string what;
  Leaf leaf;
};

// What the Python envs of a pool, or of a worker, have in common.
//
// An env of many players returns and takes the rows of all players at once: its arrays have one more axis, in front. If
// players come and go, its attribute `presence` says after each call which of the rows count.
struct PythonKind {
  PythonKind(const EnvSpec& env_spec, TreeNode observations, TreeNode actions);

  const EnvSpec spec;
  const std::vector<Leaf> observation, action;
  const TreeNode observation_tree, action_tree;
  std::vector<InfoInput> infos;  // those that travel as arrays, one per leaf of `spec.info`
  // Copies a value with its arrays: with `same_step`, an episode's end is returned after the env was reset.
  nanobind::object snapshot = nanobind::none();
  // observation -> the list of its object leaves, copied; None if the space has none.
  nanobind::object objects_of = nanobind::none();
  bool same_step = false;
  bool keep_last = false;  // a failure shows the last good observation
  // A KeyboardInterrupt that an env raised, most likely Ctrl-C: raised again once the env's row is written.
  nanobind::object interrupt;
  // The env whose code is running; -1 if none is.
  int running = -1;
  // (env, awaitable) -> its result, for envs in the calling process; None: nobody can, here.
  nanobind::object await_now = nanobind::none();
  bool may_suspend = false;  // whoever steps the envs has an event loop
  // (env): an episode is over, or is about to be, by a reset; None for envs without coroutines.
  nanobind::object episode_over = nanobind::none();
  // Called when a reset starts inside the step that ended the episode: the reset has its own deadline, and if it fails,
  // the episode's end still counts.
  std::function<void(int env)> reset_after_end;
};

struct Note {
  nanobind::object info, final_info;        // null: none, or an empty one
  nanobind::object objects, final_objects;  // lists; null if the space has no object leaves
  nanobind::object error;                   // null: no failure
  const char* phase = "";                   // of the failure

  bool empty() const {
    return !info.is_valid() && !final_info.is_valid() && !objects.is_valid() && !error.is_valid();
  }
};

class PythonEnv {
 public:
  static constexpr bool kManyPlayers = true;  // writes its rewards itself: one, or one per player

  PythonEnv(std::shared_ptr<PythonKind> kind, int id, nanobind::object env, std::int32_t max_episode_steps)
      : kind_(std::move(kind)), env_(std::move(env)), id_(id), limit_(max_episode_steps) {}

  // ---- for the stepper ----

  void reset(Rng&, const Options& options);
  Outcome step(const ActionRow& action, Rng&);
  void observe(const Row& row);

  // ---- around it ----

  // The options of the next reset, and the parts of the next action that do not fit in arrays.
  void set_options(nanobind::object options) { options_ = std::move(options); }
  void set_objects(nanobind::object objects) { action_objects_ = std::move(objects); }
  // Called once, right before the env's next reset, whoever asks for it; null or None: nothing is.
  void set_before_reset(nanobind::object function) { before_reset_ = std::move(function); }
  // Makes the next action fail with this error: what was sent with it could not be read.
  void set_failure(nanobind::object error) { failure_ = std::move(error); }
  // What has to be awaited before the action can be done; null: it was done.
  nanobind::object take_awaited() { return std::exchange(awaited_, nanobind::object()); }
  const char* phase() const { return phase_; }  // what it belongs to: "step" or "reset"
  // What came of it: a value or an error.
  void answer(nanobind::object value, nanobind::object error);
  // The action was done: its answers are of no use any more.
  void forget_answers() { stepped_ = reset_ = Answer{}; }
  // Replaces the env: nothing of the old one is left.
  void replace(nanobind::object env);
  // What belongs to the row that was written last.
  Note take_note();
  // What decides its future, and what it has shown last, besides the state of the env itself; Python pickles both together:
  // (elapsed steps, (observation,) or (), info or None, options of the next reset or None, presence of players).
  nanobind::object memory() const;
  // Takes what another env's `memory` was. The row that is written next shows it.
  void set_memory(nanobind::handle memory);
  int traverse(visitproc visit, void* arg) const;
  void clear_references();

 private:
  // What came of a method in the present action, if a coroutine is part of it; neither: it was not asked, or has not
  // answered.
  struct Answer {
    nanobind::object value, error;
    nanobind::object objects;  // what goes with a step that ended the episode: see Note
    std::int32_t elapsed = 0;  // steps of the episode before it

    bool is_there() const { return value.is_valid() || error.is_valid(); }
  };

  template <class F>
  auto attempt(const char* phase, F body);
  [[noreturn]] void keep_failure();
  template <class F>
  nanobind::object result_of(Answer& answer, F call);
  void tell_end() const;
  void keep_end();
  nanobind::object call_reset(const Options& options);
  nanobind::object build_action(const ActionRow& action) const;
  double read_rewards(nanobind::handle given);
  void write_infos(const Row& row);
  void write_value(nanobind::handle value, const Leaf& leaf, const char* error, const char* what, std::byte* to) const;
  void write_info(const InfoInput& info, nanobind::handle value, std::byte* to) const;
  void read_presence();
  static void check_info(nanobind::handle info);
  [[noreturn]] static void refuse_result(const char* call, nanobind::handle result);
  [[noreturn]] void refuse_arguments() const;

  std::shared_ptr<PythonKind> kind_;
  nanobind::object env_;
  int id_;
  std::int32_t limit_, elapsed_ = 0;
  nanobind::object options_, action_objects_, failure_, before_reset_;
  nanobind::object awaited_;
  Answer stepped_, reset_;
  Answer* expected_ = nullptr;     // where the answer to `awaited_` goes
  nanobind::object observation_;   // the last good one, as the env returned it
  nanobind::object info_;          // the one that came with it, if it was not empty
  nanobind::object last_objects_;  // its object leaves, if a failure shows it again
  std::vector<double> rewards_;    // of the last step, one per player
  std::vector<std::uint8_t> presence_;  // of each player; empty: all are always here
  bool ending_ = false;            // the last step ended the episode
  bool inside_ = false;            // the running reset is part of that step
  const char* phase_ = "reset";
  Note note_;
};

// The envs of a pool or a worker. The EnvSet that the engine steps owns them.
class PythonEnvs {
 public:
  PythonEnvs(std::shared_ptr<PythonKind> kind, nanobind::handle envs, nanobind::handle limits, std::int32_t first_id);

  std::unique_ptr<EnvSet> take_set() { return std::move(set_); }
  PythonEnv& env(std::int32_t id) const { return stepper_->env(id - first_id_); }
  PythonKind& kind() const { return *kind_; }

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear_references();

 private:
  std::shared_ptr<PythonKind> kind_;
  Stepper<PythonEnv>* stepper_;  // in `set_`
  std::int32_t first_id_, count_;
  std::unique_ptr<EnvSet> set_;
};

}  // namespace stepmill
