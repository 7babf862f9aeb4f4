#include "bindings/python/numpy_api.h"

#include "bindings/input/player_rows.h"

#include <algorithm>

#include "bindings/python/errors.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

std::string in_env(std::int32_t env) { return "env " + std::to_string(env); }

}  // namespace

void PlayerRows::begin(std::span<const std::int32_t> envs) {
  const auto most = static_cast<std::size_t>(players_.most);
  named_.assign(named_.size(), 0);
  for (const std::int32_t env : envs) {
    named_[static_cast<std::size_t>(env)] = 1;
    std::fill_n(sent_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(env) * most), most, 0);
  }
}

void PlayerRows::add(std::int32_t env, std::int32_t player) {
  rows_.push_back(env * players_.most + players_.place(player).rank);
  sent_[static_cast<std::size_t>(env) * static_cast<std::size_t>(players_.most) + static_cast<std::size_t>(player)] = 1;
}

std::span<const std::int32_t> PlayerRows::in_order(std::size_t kind, std::span<const std::int32_t> envs,
                                                   std::int64_t given) {
  rows_.clear();
  const auto& members = players_.of_kind(kind);
  const bool all = given == static_cast<std::int64_t>(envs.size() * members.size());
  for (const std::int32_t env : envs)
    for (const std::int32_t player : members) {
      if (players_.has_row(env, player))
        add(env, player);
      else if (all)
        rows_.push_back(env * players_.most + players_.place(player).rank);  // nobody reads it
    }
  return rows_;
}

std::span<const std::int32_t> PlayerRows::by_env(std::size_t kind, std::span<const std::int32_t> envs,
                                                 nb::handle owners, nb::handle ids, const std::string& which) {
  rows_.clear();
  const Ids of = read_owners(owners, which);
  if (ids.is_valid() && !ids.is_none())
    add_numbered(kind, of.numbers, ids, which);
  else
    add_unnumbered(kind, envs, of.numbers);
  for (const std::int32_t env : envs)
    for (const std::int32_t player : players_.of_kind(kind))
      if (players_.acts(env, player) && !has_sent(env, player))
        raise("ActionError", in_env(env) + ": expected an action of each of its players, got none of player " +
                                 std::to_string(player));
  return rows_;
}

Ids PlayerRows::read_owners(nb::handle owners, const std::string& which) const {
  Ids given = read_ids(owners, "players.env_id" + which);
  const auto num_envs = static_cast<std::int64_t>(named_.size());
  for (const std::int64_t env : given.numbers) {
    if (env < 0 || env >= num_envs)
      raise("EnvIdError", "players.env_id " + std::to_string(env) + " is out of range [0, " +
                              std::to_string(num_envs) + ")");
    if (!named_[static_cast<std::size_t>(env)])
      raise("EnvIdError", "players.env_id names env " + std::to_string(env) + ", which env_id does not");
  }
  return given;
}

// Each row says which player it is of.
void PlayerRows::add_numbered(std::size_t kind, std::span<const std::int64_t> owners, nb::handle ids,
                              const std::string& which) {
  const Ids given = read_ids(ids, "players.id" + which);
  const std::span<const std::int64_t> id = given.numbers;
  if (id.size() != owners.size())
    raise("ActionError", "players.id" + which + ": expected " + std::to_string(owners.size()) +
                             " numbers, one per row of players.env_id, got " + std::to_string(id.size()));
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const auto env = static_cast<std::int32_t>(owners[i]);
    if (id[i] < 0 || id[i] >= players_.most)
      raise("ActionError", in_env(env) + ": players.id " + std::to_string(id[i]) + " is out of range [0, " +
                               std::to_string(players_.most) + ")");
    const auto player = static_cast<std::int32_t>(id[i]);
    const std::string name = "player " + std::to_string(player);
    if (static_cast<std::size_t>(players_.place(player).kind) != kind)
      raise("ActionError", in_env(env) + ": " + name + " is of another kind than players.id" + which + " says");
    if (!players_.has_row(env, player))
      raise("ActionError", in_env(env) + ": " + name + " is not there: it has left, or has not joined yet. "
                                         "info['players']['id'] of the last batch has those that are");
    if (has_sent(env, player)) raise("ActionError", in_env(env) + ": " + name + " is given twice");
    add(env, player);
  }
}

// The rows of each env are those of its players, in the order of their numbers: of all that its last row has shown, or
// of those that go on. If nobody goes on, the action is discarded, and any number will do.
void PlayerRows::add_unnumbered(std::size_t kind, std::span<const std::int32_t> envs,
                                std::span<const std::int64_t> owners) {
  const auto& members = players_.of_kind(kind);
  next_.assign(named_.size(), 0);
  for (const std::int64_t env : owners) next_[static_cast<std::size_t>(env)] += 1;
  seats_.clear();
  for (const std::int32_t env : envs) {
    const std::int32_t got = next_[static_cast<std::size_t>(env)];
    std::int32_t shown = 0, acting = 0;
    for (const std::int32_t player : members) {
      shown += players_.has_row(env, player);
      acting += players_.acts(env, player);
    }
    const bool any = acting == 0 && got <= std::ssize(members);
    if (got != shown && got != acting && !any)
      raise("ActionError", in_env(env) + ": expected " + std::to_string(acting) + " actions, one per player that is there" +
                               (shown == acting ? "" : " (or " + std::to_string(shown) + ", with those that have just left)") +
                               ", got " + std::to_string(got));
    next_[static_cast<std::size_t>(env)] = static_cast<std::int32_t>(seats_.size());
    std::int32_t left = got;
    for (const std::int32_t player : members) {
      const bool takes = got == shown ? players_.has_row(env, player) : got == acting ? players_.acts(env, player) : true;
      if (takes && left-- > 0) seats_.push_back(player);
    }
  }
  for (const std::int64_t env : owners)
    add(static_cast<std::int32_t>(env), seats_[static_cast<std::size_t>(next_[static_cast<std::size_t>(env)]++)]);
}

void PlayerRows::commit(std::span<const std::int32_t> envs, std::uint8_t* table) const {
  const auto most = static_cast<std::size_t>(players_.most);
  for (const std::int32_t env : envs) {
    const auto first = static_cast<std::size_t>(env) * most;
    std::copy_n(sent_.begin() + static_cast<std::ptrdiff_t>(first), most, table + first);
  }
}

}  // namespace stepmill
