// Station 1: one row per env. It holds what the env is told, and what it remembers between two actions.
//
// The caller writes an env's row only while the env is idle, and a worker reads it only while the env is in flight. So
// rows need no atomics: the ready queue and the batch header order the accesses.
#pragma once

#include <memory>
#include <vector>

#include "core/memory/arena.h"
#include "core/memory/batch_layout.h"
#include "core/env/env_table.h"
#include "core/env/spec.h"

namespace stepmill {

struct TableOptions {
  std::int32_t num_envs = 1;
  std::int32_t max_episode_steps = 0;
  sm_autoreset autoreset = SM_NEXT_STEP;
  bool reward_is_float32 = false;
  bool keep_last_observation = false;
};

class ActionTable {
 public:
  // In its own arena, or at `offset` of one that another process laid out.
  ActionTable(Arena& arena, const EnvSpec& spec, const TableOptions& options);
  ActionTable(const Arena& arena, std::size_t offset, const EnvSpec& spec,
              const TableOptions& options);
  ActionTable(const ActionTable&) = delete;
  ActionTable& operator=(const ActionTable&) = delete;

  const sm_shared& shared() const { return shared_; }
  sm_env_state& state(std::int32_t env) const { return shared_.state[env]; }
  sm_reset_request& reset_request(std::int32_t env) const { return shared_.reset[env]; }
  std::byte* action(int leaf) const { return static_cast<std::byte*>(action_[leaf]); }
  // Of all players, env by env.
  std::uint8_t* action_players() const { return action_players_; }
  std::size_t offset() const { return offset_; }

 private:
  // Lays the parts out one after another; `base` is null if only the size is needed.
  std::size_t lay_out(std::byte* base, const EnvSpec& spec, const TableOptions& options);

  std::size_t offset_;
  std::vector<void*> action_, last_observation_;
  std::vector<std::int64_t> action_bytes_, observation_bytes_, info_bytes_;
  std::uint8_t* action_players_ = nullptr;
  sm_shared shared_{};
};

}  // namespace stepmill
