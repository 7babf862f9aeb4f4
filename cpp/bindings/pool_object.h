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
#include "core/pool.h"

namespace stepmill {

class PoolObject {
 public:
  struct Arguments {
    const sm_env_table* table = nullptr;  // null: a Python env, stepped by Python
    std::vector<Config> configs;
    EnvSpec spec;
    PoolOptions options;
    TreeNode observation_tree{nanobind::int_(0)}, action_tree{nanobind::int_(0)};
    Bounds bounds = Bounds::kPass;
    std::vector<std::uint64_t> seeds;
    nanobind::object on_faults;  // called with (result, faults) when a batch has any
  };

  explicit PoolObject(Arguments arguments);
  ~PoolObject();
  PoolObject(const PoolObject&) = delete;
  PoolObject& operator=(const PoolObject&) = delete;

  void send(nanobind::handle action, nanobind::handle env_id);
  nanobind::object recv(nanobind::handle timeout);
  nanobind::object step(nanobind::handle action, nanobind::handle env_id);
  // Queues a reset of the envs named, of all where none are.
  void send_reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options);
  // Resets and waits. With a mask, which is for all envs, the others show where they stand.
  nanobind::object reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options,
                         nanobind::handle mask);
  void close();
  bool closed() const { return closed_; }
  bool is_native() const { return table_ != nullptr; }
  bool forked() const;

  // Raises where any other method would: closed, forked, another thread inside.
  void check_usable();
  nanobind::object stats() const;
  std::int32_t in_flight_count() const { return pool_ ? pool_->in_flight_count() : 0; }

  // ---- for Python envs: the inline worker ----

  // The env whose action is to be done next, or -1 when there is none. The same one again until its
  // row is written, so that a signal between the two loses nothing.
  int next_env();
  nanobind::object action_of(int env) const;
  // Fills the row of an env with what its step gave. `final_observation` is None except where an
  // ending step in same_step mode was followed by a reset.
  void write_row(int env, nanobind::handle observation, double reward, bool terminated, bool truncated,
                 int elapsed, bool ended, double episode_return, int episode_length, bool needs_reset,
                 nanobind::handle final_observation);
  // Raises where `write_row` would, and changes nothing.
  void check_observation(int env, nanobind::handle observation);
  void queue_external_reset(nanobind::handle env_id, bool gather);
  bool ready() const;
  // The finished batch as (obs, reward, terminated, truncated, info), once `ready`.
  nanobind::object take_result();

 private:
  class Entry;
  class Use;

  std::span<const std::int32_t> implied_envs() const;
  // What a reset asks for, checked. Nothing is changed before it is.
  struct ResetOrder {
    std::span<const std::int32_t> envs;
    sm_reset_request options;
    std::vector<std::optional<std::uint64_t>> seeds;  // one an env, or none at all
  };
  ResetOrder read_reset(nanobind::handle env_id, nanobind::handle seeds, nanobind::handle options);
  void queue_reset(const ResetOrder& order, bool gather, const std::uint8_t* mask);
  void wait(std::optional<double> timeout);
  nanobind::object finish(bool is_reset);
  void require_something_in_flight() const;
  void drain();
  std::byte* scratch(int observation);
  void convert_observation(const TreeNode& node, nanobind::handle value, std::byte* to, int env,
                           const std::string& path);
  void copy_observation(const std::byte* from, void* const* columns, std::int64_t row) const;
  sm_reset_request read_options(nanobind::handle options) const;
  void stop(bool interruptible);

  std::unique_ptr<Pool> pool_;
  TreeNode observation_tree_, action_tree_;
  std::optional<ActionInput> input_;
  std::optional<BatchOutput> output_;
  const sm_env_table* table_;
  nanobind::object on_faults_;
  std::vector<std::int32_t> all_envs_;
  std::vector<std::int32_t> last_ids_;  // of the last batch: who an async send without ids means
  std::vector<Fault> faults_;
  std::uint32_t generation_;
  int next_env_ = -1;  // given out by `next_env`, row not yet written
  // Where a Python env's observation is converted, leaf by leaf, before its row is claimed; a second
  // one for the last observation of an episode.
  std::vector<std::byte> scratch_;
  std::vector<std::size_t> leaf_offset_;  // in each of the two; the last is their size
  std::uint64_t batches_ = 0, steps_ = 0, episodes_ = 0;
  bool closed_ = false;
  // Set while a thread is inside a method. A second one finds it set and is refused.
  std::atomic<bool> in_use_{false};
};

}  // namespace stepmill
