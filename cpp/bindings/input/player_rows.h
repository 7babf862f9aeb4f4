// Which rows of the action table the rows of an action go to, where envs have many players.
//
//     send(rows)                                                  in the order of the last batch
//     send({"action": rows, "players.env_id": envs})              by env; within one in the order of its players
//     send({"action": rows, "players.env_id": envs, "players.id": numbers})              in any order
//
// An action has a row for each player that goes on. Rows of players that the last batch has shown for the last time may be
// there too: they are discarded, like the action of an env whose episode is over.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bindings/input/array_input.h"
#include "bindings/input/players.h"

namespace stepmill {

class PlayerRows {
 public:
  PlayerRows(const Players& players, std::int32_t num_envs)
      : players_(players),
        named_(players.are_many() ? static_cast<std::size_t>(num_envs) : 0),
        sent_(named_.size() * static_cast<std::size_t>(players.most)) {}

  // An action for these envs. Then, for each kind of players, one of the two below.
  void begin(std::span<const std::int32_t> envs);
  // `given`: how many rows there are. As many as the action space has are a row for every player, there or not.
  std::span<const std::int32_t> in_order(std::size_t kind, std::span<const std::int32_t> envs, std::int64_t given);
  // `which`: for messages, the kind as a key: "['prey']".
  std::span<const std::int32_t> by_env(std::size_t kind, std::span<const std::int32_t> envs, nanobind::handle owners,
                                       nanobind::handle ids, const std::string& which);
  // Tells the envs which players have acted: `table` is ActionTable::action_players.
  void commit(std::span<const std::int32_t> envs, std::uint8_t* table) const;

 private:
  void add(std::int32_t env, std::int32_t player);
  bool has_sent(std::int32_t env, std::int32_t player) const {
    return sent_[static_cast<std::size_t>(env) * static_cast<std::size_t>(players_.most) +
                 static_cast<std::size_t>(player)] != 0;
  }
  Ids read_owners(nanobind::handle owners, const std::string& which) const;
  void add_numbered(std::size_t kind, std::span<const std::int64_t> owners, nanobind::handle ids,
                    const std::string& which);
  void add_unnumbered(std::size_t kind, std::span<const std::int32_t> envs, std::span<const std::int64_t> owners);

  const Players& players_;
  std::vector<std::uint8_t> named_;  // by env: the action is for it
  std::vector<std::uint8_t> sent_;   // by env and player: the action has one of it
  std::vector<std::int32_t> rows_, next_, seats_;
};

}  // namespace stepmill
