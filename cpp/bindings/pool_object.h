// The pool as Python sees it: `stepmill._native.Pool`.
//
// Every method checks first that the pool may be used at all (open, this process, no other thread
// inside), then its input, and only then changes anything.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <optional>

#include "bindings/action_input.h"
#include "bindings/batch_output.h"
#include "bindings/python_env.h"
#include "core/pool.h"
#include "core/process_pool.h"

namespace stepmill {

class PoolObject {
 public:
  struct Arguments {
    std::unique_ptr<Pool> pool;
    const sm_env_table* table = nullptr;     // native envs
    const EnvSet* native = nullptr;          // of `pool`, where they are in this process
    std::optional<PythonEnvs> python;        // Python envs, stepped in this process
    ProcessPool* processes = nullptr;        // `pool`, where worker processes step
    TreeNode observation_tree{nanobind::int_(0)}, action_tree{nanobind::int_(0)};
    Bounds bounds = Bounds::kPass;
    std::vector<std::uint64_t> seeds;
    // Called with (result, notes, faults) when a batch has more than arrays; returns (result, error), the error None
    // where none is to be raised. Changes nothing of what it is given: what was interrupted is done again.
    nanobind::object on_rows;
    // Called with nothing when worker processes should be started.
    nanobind::object on_attention;
  };

  explicit PoolObject(Arguments arguments);
  ~PoolObject();
  PoolObject(const PoolObject&) = delete;
  PoolObject& operator=(const PoolObject&) = delete;

  // `objects`: by env id, what no array holds of its action: a list (a pickled one, for worker processes).
  void send(nanobind::handle action, nanobind::handle env_id, nanobind::handle objects);
  nanobind::object recv(nanobind::handle timeout);
  // What is ready, as soon as these are `enough` rows, or once the time has passed (None: never) at least so many.
  // None where nothing is, and `at_least` is 0. `steps_only`: resets come along, and are not counted. For pools whose
  // results come as they are ready.
  nanobind::object recv_some(int enough, int at_least, nanobind::handle timeout, bool steps_only);
  nanobind::object step(nanobind::handle action, nanobind::handle env_id, nanobind::handle objects);
  // Queues a reset of the envs named, of all where none are. `options` are native ones by name, or for
  // Python envs one object (a pickled one, for worker processes); or a list of these, one an env. `prepare` is called
  // with the ids once nothing can refuse the reset any more, before it is queued.
  void send_reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options, nanobind::handle prepare);
  // Resets and waits. With a mask, which is for all envs, the others show where they stand.
  nanobind::object reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options,
                         nanobind::handle mask);
  void close();
  bool closed() const { return closed_; }
  // Functions that turn the results of steps, and of resets, into what the caller's view shows; None: as they are.
  void show_as(nanobind::object step, nanobind::object reset, bool players);
  bool is_native() const { return table_ != nullptr; }
  bool forked() const;

  // Raises where any other method would: closed, forked, another call inside.
  void check_usable();
  // The same, and refuses other calls until `leave` with the same token: for what is written in Python.
  void enter(nanobind::handle token);
  // Whether that token was inside; nothing happens where it was not.
  bool leave(nanobind::handle token);
  // Whether nobody is inside, or nobody is any more after so many seconds.
  bool wait_until_left(double most) const;
  nanobind::object stats() const;
  std::int32_t in_flight_count() const {
    return (pool_ ? pool_->in_flight_count() : 0) + (pending_ ? static_cast<std::int32_t>(pending_->ids.size()) : 0);
  }

  // For the garbage collector: an env may refer to its pool.
  int traverse(visitproc visit, void* arg) const;
  void clear_references();

  // Whose results are still to be received.
  nanobind::list in_flight_ids() const;
  // Of the last batch: whom an async send without ids means.
  nanobind::list last_ids() const;

  // Of each env, the last seed it was given, and whether that still waits for its next reset.
  nanobind::list seeds(nanobind::handle env_ids);
  // Of native envs of this process, where their generators stand: see `random_state`. None may be in flight.
  nanobind::list random_states(nanobind::handle env_ids);

  // For Python envs of this process, not in flight. Puts another env in the place of one that is about to be reset; or
  // has the reset fail.
  void replace(int env, nanobind::object by);
  void fail_next(int env, nanobind::object error);

  // ---- worker processes (pool_processes.cpp) ----

  nanobind::dict plan() const;
  int arena_descriptor() const { return processes_->arena_descriptor(); }
  void admit(int worker, unsigned incarnation, int pid, int pidfd, int stack, int outbox, double start_timeout);
  nanobind::list to_restart();
  void restart_failed(int worker, unsigned incarnation, const std::string& why);
  // Asks envs something, all at once, and waits: a list of the answers (bytes), or of faults (tuples).
  // An env whose action is running finishes it first.
  nanobind::object ask(nanobind::handle env_ids, nanobind::handle questions);
  // The beginning of `close`, which ends with it: from now on the pool is closed.
  void ask_to_stop();
  bool wait_stopped(double most);
  void kill();

 private:
  class Entry;
  class Use;

  // How long a wait goes on before it looks whether the interpreter has a signal for us. A signal in
  // the waiting thread ends the wait at once; this is for one that another thread was given.
  static constexpr auto kSignalInterval = std::chrono::milliseconds(50);

  static nanobind::object fault_tuple(const Fault& fault);
  nanobind::dict process_stats(double age) const;
  void go_inside();
  std::span<const std::int32_t> implied_envs() const;
  // What a reset asks for, checked. Nothing is changed before it is.
  struct ResetOrder {
    std::span<const std::int32_t> envs;
    std::vector<sm_reset_request> options;            // of native envs: one an env, or one for all
    std::vector<nanobind::object> python_options;     // of Python envs, in the same way
    std::vector<std::optional<std::uint64_t>> seeds;  // one an env, or none at all

    const sm_reset_request& options_of(std::size_t i) const { return options[options.size() == 1 ? 0 : i]; }
    const nanobind::object& python_options_of(std::size_t i) const {
      return python_options[python_options.size() == 1 ? 0 : i];
    }
  };
  ResetOrder read_reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options);
  void queue_reset(const ResetOrder& order, bool gather, const std::uint8_t* mask, nanobind::handle prepare);
  void give_objects(nanobind::handle objects);
  void start(std::span<const std::int32_t> envs, bool gather, bool recv_follows);
  void wait(std::optional<double> timeout);
  bool wait_until(std::optional<Clock::time_point> end);
  bool wait_for_rows(int rows, bool steps_only, std::optional<Clock::time_point> end);
  void attend();
  void wait_for(std::int32_t env);
  void settle_calls(std::span<const std::int32_t> envs);
  nanobind::object finish(bool is_reset);
  nanobind::object complete(bool as_reset);
  void refuse_pending(std::span<const std::int32_t> envs) const;
  nanobind::object collect_extras(const Batch& batch);
  nanobind::list collect_notes(const Batch& batch);
  void lose_row(const Batch& batch, std::int32_t row);
  void require_something_in_flight() const;
  void drain();
  sm_reset_request read_options(nanobind::handle options) const;
  void stop(bool interruptible);

  std::unique_ptr<Pool> pool_;
  std::optional<ActionInput> input_;
  std::optional<BatchOutput> output_;
  const sm_env_table* table_;
  const EnvSet* native_;
  std::optional<PythonEnvs> python_;
  ProcessPool* processes_;
  nanobind::object on_rows_, on_attention_;
  nanobind::object show_step_ = nanobind::none(), show_reset_ = nanobind::none();
  std::vector<std::int32_t> all_envs_;
  std::vector<std::int32_t> last_ids_;  // of the last batch: who an async send without ids means
  // A batch that Python puts the last touches to. It stays here until they are done: where an exception comes in
  // between (Ctrl-C, or of a signal handler) it is as good as in flight, and `recv` begins with it anew.
  struct Pending {
    nanobind::object result;
    nanobind::object extras;  // notes and faults, or nothing
    std::vector<std::int32_t> ids;
  };
  std::optional<Pending> pending_;
  std::vector<std::int32_t> abandoned_;  // envs whose answer to a call nobody waited for: Ctrl-C
  std::vector<Fault> faults_;
  std::uint32_t generation_;
  struct {
    std::uint64_t batches = 0, steps = 0, episodes = 0;
    Clock::time_point since = Clock::now();
  } counts_;
  bool closed_ = false;
  // The thread that is inside a method, 0 when none is: a second call is refused, also one from the same
  // thread (by an env or a signal handler that the pool runs).
  std::atomic<std::uintptr_t> inside_{0};
  PyObject* token_ = nullptr;  // of `enter`
};

}  // namespace stepmill
