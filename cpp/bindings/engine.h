// What views and managers talk to, wherever the envs live: `stepmill._native.Engine`.
//
// Every method first checks that the pool may be used at all (open, this process, no other thread inside), then its
// input, and only then changes anything. What depends on where the envs live is left to the host (host.h).
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <optional>
#include <unordered_map>

#include "bindings/input/action_input.h"
#include "bindings/output/batch_output.h"
#include "bindings/host.h"
#include "bindings/order.h"
#include "core/pool.h"
#include "core/watch_book.h"

namespace stepmill {

class XlaHold;

class Engine {
 public:
  // `host`: a Host, with the methods of stepmill/hosts/host.py. `has_object_actions`: parts of an action do not fit in
  // arrays. `bounds`: one of `Bounds`.
  Engine(nanobind::object host, nanobind::handle observation_tree, nanobind::handle action_tree, bool has_object_actions,
         int bounds, const std::vector<std::uint64_t>& seeds);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // `objects`: by env id, the parts of its action that do not fit in arrays, packed by the host; None: the host reads
  // them from the action.
  void send(nanobind::handle action, nanobind::handle env_id, nanobind::handle objects);
  // `at_least`: None, or, for async pools, how many rows are enough when the time is over. If none are there then and it is
  // 0, the result has none.
  nanobind::object recv(nanobind::handle timeout, nanobind::handle at_least);
  // The rows that are ready, as soon as there are `enough`, or after `timeout` (None: never) as soon as there are
  // `at_least`. None if there is none and `at_least` is 0. `steps_only`: resets are included but not counted. For pools
  // that return results as they are ready.
  nanobind::object recv_some(int enough, int at_least, nanobind::handle timeout, bool steps_only);
  // Rows of all envs were received where they live, or have been put together from several batches: counts those that
  // this engine has not counted. As after a batch of all envs, a `send` without ids is for all.
  void count_elsewhere(std::uint64_t steps, std::uint64_t episodes, std::uint64_t failures);
  nanobind::object step(nanobind::handle action, nanobind::handle env_id);
  // Steps all envs in lockstep, and returns all rows in order, also in async mode. Nothing else may be in flight.
  nanobind::object step_all(nanobind::handle action);
  // Queues a reset of the given envs; None: of all. `options`: a dict for all, or a list of dicts, one per env.
  // `preparation`: what the host does to the envs before, once nothing can refuse the reset any more.
  void send_reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options,
                  nanobind::handle preparation);
  // Resets and waits. With a mask, which covers all envs, the rows of the others show their present state.
  nanobind::object reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options,
                         nanobind::handle mask);
  void close();
  bool closed() const { return closed_; }
  // Functions that turn the results of steps and of resets into what the view returns; None: unchanged.
  void show_as(nanobind::object step, nanobind::object reset, bool players);
  // Calls a function during which results are those of the gymnasium view, in arrays of numpy, whatever was set. Not
  // within itself.
  nanobind::object plainly(nanobind::handle function, nanobind::args args);
  // From now on, batches are locked in memory, for copies to the GPU of this number that run by themselves. Whoever
  // starts one holds the arrays until it is done.
  void lock_pages(int gpu);
  // Writes the order in which results are received to a file, or repeats that of a file: from `offset` on, in words of four
  // bytes or two. `name`: for messages. For async pools that were not sent anything yet.
  void check_unused(const char* what);  // refuses others, in the name of the call
  void record_order(int file, std::int64_t offset, bool wide, const std::string& name);
  void replay_order(int file, std::int64_t offset, bool wide, const std::string& name);
  const nanobind::object& host() const { return host_object_; }

  // Raises if any other method would: closed, forked, another call inside.
  void check_usable();
  // The same, then calls a function, and refuses other calls until that has returned: for the host's own methods.
  nanobind::object use(nanobind::handle function, nanobind::args args);
  // Waits at most so many seconds until no thread is inside; whether that is so.
  bool wait_until_left(double most) const;
  // How many rows were received since the pool was made.
  std::uint64_t rows_received() const { return get(counters_->pool().steps); }
  std::int32_t in_flight_count() const {
    return (host_.has_ended() ? 0 : pool().in_flight_count()) + (pending_ ? static_cast<std::int32_t>(last_ids_.size()) : 0);
  }

  // For the garbage collector: an env may refer to its pool.
  int traverse(visitproc visit, void* arg) const;
  void clear_references();

  // The envs whose results have not been received yet.
  std::vector<std::int32_t> in_flight_ids() const;
  // For each env, the last seed it was given, and whether the seed still waits for its next reset.
  std::vector<std::pair<std::uint64_t, bool>> seeds(const std::vector<std::int32_t>& envs);

 private:
  class Entry;
  class Use;
  friend class ParcelServer;  // serves another engine with it
  friend class EngineStates;  // saves and restores its envs
  friend class EngineCheckpoint;  // takes all of it, and gives it to another one
  friend class EngineSessions;  // lends its envs one by one
  friend class Tap;            // shows it to those who watch
  friend class EngineXla;      // steps it inside of programs that XLA has compiled

  Pool& pool() const { return host_.pool(); }
  void go_inside();
  std::span<const std::int32_t> read_action(nanobind::handle action, nanobind::handle env_id, nanobind::handle objects,
                                            std::span<const std::int32_t> otherwise);
  ResetOrder read_reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options,
                        nanobind::handle preparation);
  void read_seeds(nanobind::handle seeds, ResetOrder& order) const;
  void check_gathering() const;
  void queue_reset(const ResetOrder& order, bool gather, nanobind::handle preparation);
  void prepare_reset(const ResetOrder& order, bool gather, nanobind::handle preparation);
  void start(std::span<const std::int32_t> envs, bool gather, bool recv_follows);
  std::optional<int> read_at_least(nanobind::handle given);
  void wait(std::optional<double> timeout);
  bool wait_in_order(int at_least, bool has_timeout);
  bool wait_until(std::optional<Clock::time_point> end);
  bool ready_some(int enough, int at_least, nanobind::handle timeout, bool steps_only,
                  std::optional<double> patience = std::nullopt);
  bool wait_patiently(int rows, double patience);
  bool wait_for_rows(int rows, bool steps_only, std::optional<Clock::time_point> end);
  void count(const Batch& batch);
  nanobind::object finish(bool is_reset);
  nanobind::object finish_without_rows();
  void take_pending();
  Batch take_rows(nanobind::object& notes);
  void add_extras();
  void keep_pending(Batch batch, const nanobind::object& notes);
  nanobind::object complete(bool as_reset);
  nanobind::object give_away(bool as_reset, nanobind::object& error);
  void show_pending();
  nanobind::object shown(bool as_reset);
  bool note(const Batch& batch);
  void refuse_pending(std::span<const std::int32_t> envs) const;
  nanobind::object take_notes(const Batch& batch);
  nanobind::object take_kept_notes(const Batch& batch, nanobind::object others);
  nanobind::object collect_extras(const nanobind::object& notes) const;
  void drain();

  const nanobind::object host_object_;
  Host& host_;  // the same
  const bool has_object_actions_;
  Players players_;
  const std::shared_ptr<PoolCounters> counters_;  // also when the host has ended
  std::optional<ActionInput> input_;
  std::optional<BatchOutput> output_;
  nanobind::object show_step_ = nanobind::none(), show_reset_ = nanobind::none();
  std::vector<std::int32_t> all_envs_;
  std::vector<std::int32_t> last_ids_;  // the envs of the last batch, also if it is pending; those of an async send without ids
  // A batch on its way to the caller. It stays here until nothing can go wrong any more: if an exception interrupts the
  // call (Ctrl-C, or from a signal handler), the batch counts as in flight, and the next `recv` starts over with it.
  struct Pending {
    nanobind::object result;
    nanobind::object error = nanobind::none();  // to be raised, with the result
    nanobind::object extras;                    // notes and faults, or nothing
    bool is_looked_at;      // whether `look` is to be called with it; never twice
    bool is_shown = false;  // whether the result is in the form that `recv` returns
  };
  std::optional<Pending> pending_;
  struct Watching {
    nanobind::object book_object, look;
    WatchBook* book;  // the same
    Clock::time_point next_look;
  };
  std::optional<Watching> watching_;
  std::vector<Fault> faults_;
  std::unique_ptr<OrderRecorder> recorder_;
  std::unique_ptr<OrderReplay> replay_;
  nanobind::object sessions_;  // who has the envs, as long as there are sessions: see `EngineSessions`
  bool was_sent_ = false;  // an action or a reset
  // By env, the notes of rows that were taken from the pool and put back: see `EngineCheckpoint`.
  std::unordered_map<std::int32_t, nanobind::object> kept_notes_;
  // What a program of XLA could not raise, for the next call, and for those who ask.
  nanobind::object xla_error_ = nanobind::none();
  bool xla_error_waits_ = false;
  bool closed_ = false;
  bool is_plain_ = false;  // inside `plainly`
  // The thread that is inside a method; 0 if none is. A second call is refused, even from the same thread (by an env or
  // a signal handler that the pool runs).
  std::atomic<std::uintptr_t> inside_{0};
  std::shared_ptr<XlaHold> xla_;  // last: it waits for programs that are inside
};

}  // namespace stepmill
