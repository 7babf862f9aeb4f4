// Reads what the user passed to `send` into rows of the action table. There are three action formats:
//
//     send(array)                 send(array, env_id)           send({"action": array, "env_id": ids})
//
// For a Dict space the dict has one key per leaf instead of "action". For envs of many players see player_rows.h; if their
// spaces differ, the action, "players.env_id" and "players.id" are dicts by kind of player.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "bindings/input/array_input.h"
#include "bindings/input/player_rows.h"
#include "bindings/python/tree.h"
#include "core/pool.h"

namespace stepmill {

class ActionInput {
 public:
  ActionInput(Pool& pool, const Players& players, TreeNode tree, Bounds bounds)
      : pool_(pool),
        players_(players),
        player_rows_(players, pool.num_envs()),
        tree_(std::move(tree)),
        bounds_(bounds) {}

  // Checks everything, writes the rows and returns the envs they belong to. `otherwise`: the envs if the user named
  // none.
  std::span<const std::int32_t> read(nanobind::handle action, nanobind::handle env_id,
                                     std::span<const std::int32_t> otherwise);

  // The same for an action in numbers that follow each other, without the interpreter lock: one array per leaf.
  struct Numbers {
    const void* data;
    DType type;
    std::span<const std::int64_t> shape;
  };
  std::span<const std::int32_t> read_numbers(std::span<const Numbers> action, const Numbers* env_id,
                                             std::span<const std::int32_t> otherwise);

  // The same for the action of one env, as a single env takes it: without the axis of the envs.
  void read_one(nanobind::handle action, std::int32_t env);

  // Checks the user's env ids: whole numbers, in range, none twice. Valid until the next call.
  std::span<const std::int32_t> read_envs(nanobind::handle env_id);

 private:
  std::span<const std::int32_t> envs_or(std::span<const std::int32_t> otherwise) const;
  std::span<const std::int32_t> check_ids(std::span<const std::int64_t> given);
  void check_can_act(std::span<const std::int32_t> envs) const;
  void write(nanobind::handle action, std::span<const std::int32_t> envs);
  // What the dict of an action says about players; both may be null.
  struct PlayerKeys {
    nanobind::object env_id, id;
  };
  void write_players(nanobind::handle action, const PlayerKeys& keys, std::span<const std::int32_t> envs);
  void write_kind(std::size_t kind, const TreeNode& node, nanobind::handle rows, const PlayerKeys& keys,
                  std::span<const std::int32_t> envs, const std::string& path);
  nanobind::object part_of(nanobind::handle given, const nanobind::object& kind, const std::string& name) const;
  void write_node(const TreeNode& node, nanobind::handle value, std::span<const std::int32_t> rows,
                  std::int64_t count, const std::string& path, bool batched = true);
  bool covers_all_in_order(std::span<const std::int32_t> envs) const;

  Pool& pool_;
  const Players& players_;
  PlayerRows player_rows_;
  TreeNode tree_;
  Bounds bounds_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> wide_ids_;
  const std::int32_t* all_envs_ = nullptr;  // the list of all envs, recognised by its address
  std::vector<std::uint8_t> seen_;
};

}  // namespace stepmill
