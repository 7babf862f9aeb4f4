// Rows as values, and a reference that steps one env at a time: what any pool must agree with.
#pragma once

#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/action_table.h"
#include "core/memory/batch_layout.h"
#include "core/env_set.h"
#include "core/table_of.h"

namespace stepmill::test {

// One row of a batch, all of its columns as bytes. The parts that the row's masks declare void are
// left out: they hold what an earlier batch left.
inline std::string row_bytes(const EnvSpec& spec, const TableOptions& options, const sm_columns& c,
                             std::int64_t row) {
  std::string out;
  const auto add = [&](const void* column, std::int64_t bytes) {
    out.append(static_cast<const char*>(column) + row * bytes, static_cast<std::size_t>(bytes));
  };
  const auto add_leaves = [&](void* const* columns, const std::vector<Leaf>& leaves, std::int64_t each) {
    for (std::size_t i = 0; i < leaves.size(); ++i) add(columns[i], leaves[i].row_bytes() * each);
  };
  const auto add_infos = [&](void* const* columns, const std::uint8_t* present) {
    const std::size_t leaves = spec.info.size();
    if (leaves) add(present, std::ssize(spec.info));
    for (std::size_t i = 0; i < leaves; ++i)
      if (present[static_cast<std::size_t>(row) * leaves + i]) add(columns[i], spec.info[i].row_bytes());
  };
  add_leaves(c.observation, spec.observation, spec.max_num_players);
  add_infos(c.info, c.info_present);
  add(c.reward, spec.max_num_players * (options.reward_is_float32 ? 4 : 8));
  add(c.terminated, 1);
  add(c.truncated, 1);
  add(c.ended, 1);
  add(c.env_id, 4);
  add(c.elapsed_step, 4);
  add(c.episode_length, 4);
  add(c.episode_return, 8);
  if (c.ended[row] && c.final_observation) {
    add_leaves(c.final_observation, spec.observation, spec.max_num_players);
    add_infos(c.final_info, c.final_info_present);
  }
  return out;
}

struct FaultRecord {
  std::int32_t env, phase;
  std::string message;
  bool operator==(const FaultRecord&) const = default;
};

// Does the action of an env that stands in the table. The row is the first of `columns`, faults are added up.
inline bool advance_one(EnvSet& envs, ActionTable& table, std::int32_t env, const sm_columns& columns,
                        std::vector<FaultRecord>& faults) {
  sm_job job{};
  job.shared = &table.shared();
  job.env = &env;
  job.columns = &columns;
  job.count = 1;
  job.context = &faults;
  job.fault = [](void* to, std::int32_t id, std::int32_t phase, const char* message) {
    static_cast<std::vector<FaultRecord>*>(to)->push_back({id, phase, message});
  };
  return envs.advance(job);
}

// Envs stepped one by one on the calling thread: an action table, the stepper and a buffer of one
// row, nothing else.
class Reference {
 public:
  Reference(const sm_env_table& table, const std::vector<Config>& configs, EnvSpec spec,
            const TableOptions& options)
      : spec_(std::move(spec)),
        options_(options),
        arena_(Arena::create(Arena::Kind::kPrivate)),
        table_(*arena_, spec_, options),
        envs_(table, configs),
        layout_(spec_, 1, options.autoreset == SM_SAME_STEP, options.reward_is_float32) {
    layout_.fill(columns_, arena_->at(arena_->grow(layout_.bytes(), kCacheLine)));
  }

  ActionTable& table() { return table_; }
  const sm_columns& columns() const { return columns_.c; }
  const std::vector<FaultRecord>& faults() const { return faults_; }

  // Does the action that stands in the table. The row is in `columns()`, faults are added up.
  bool advance(std::int32_t env) { return advance_one(envs_, table_, env, columns_.c, faults_); }

  bool step(std::int32_t env, std::int64_t action) {
    reinterpret_cast<std::int64_t*>(table_.action(0))[env] = action;
    return advance(env);
  }
  bool reset(std::int32_t env) {
    table_.state(env).command = SM_RESET;
    return advance(env);
  }
  void seed(std::int32_t env, std::uint64_t seed) {
    table_.reset_request(env).seed = seed;
    table_.reset_request(env).has_seed = 1;
  }

  std::string row() const { return row_bytes(spec_, options_, columns_.c, 0); }
  Picture picture(std::int32_t env) const { return envs_.picture(env); }
  std::vector<FaultRecord> take_faults() { return std::exchange(faults_, {}); }

 private:
  const EnvSpec spec_;
  const TableOptions options_;
  const std::shared_ptr<Arena> arena_;
  ActionTable table_;
  EnvSet envs_;
  const BatchLayout layout_;
  Columns columns_;
  std::vector<FaultRecord> faults_;
};

}  // namespace stepmill::test
