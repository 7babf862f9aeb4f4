// Reads what the user passed to `send` into rows of the action table. There are three action formats:
//
//     send(array)                 send(array, env_id)           send({"action": array, "env_id": ids})
//
// For a Dict space the dict has one key per leaf instead of "action"; for many players "players.env_id" says which env
// each row belongs to.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "bindings/array_input.h"
#include "bindings/tree.h"
#include "core/pool.h"

namespace stepmill {

class ActionInput {
 public:
  ActionInput(Pool& pool, TreeNode tree, Bounds bounds)
      : pool_(pool), tree_(std::move(tree)), bounds_(bounds) {}

  // Checks everything, writes the rows and returns the envs they belong to. `otherwise`: the envs if the user named
  // none.
  std::span<const std::int32_t> read(nanobind::handle action, nanobind::handle env_id,
                                     std::span<const std::int32_t> otherwise);

  // Checks the user's env ids: whole numbers, in range, none twice. Valid until the next call.
  std::span<const std::int32_t> read_ids(nanobind::handle env_id);

 private:
  void write(nanobind::handle action, std::span<const std::int32_t> envs);
  // Converts the user's ids to a 1-d array of int64. Messages call them `name`.
  static nanobind::object read_integers(nanobind::handle given, const char* name);
  void write_players(nanobind::handle action, nanobind::handle players,
                     std::span<const std::int32_t> envs);
  void write_node(const TreeNode& node, nanobind::handle value, std::span<const std::int32_t> rows,
                  std::int64_t count, const std::string& path);
  bool covers_all_in_order(std::span<const std::int32_t> envs) const;

  Pool& pool_;
  TreeNode tree_;
  Bounds bounds_;
  std::vector<std::int32_t> ids_, rows_, player_count_;
  const std::int32_t* all_envs_ = nullptr;  // the list of all envs, recognised by its address
  std::vector<std::uint8_t> seen_;
};

}  // namespace stepmill
