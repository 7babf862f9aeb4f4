#include "bindings/python/numpy_api.h"

#include "bindings/input/action_input.h"

#include "bindings/python/errors.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// The value of a key of a dict, or null. Never raises. A reference of our own, since user code that runs later may
// change the dict.
nb::object find(nb::handle dict, const char* key) {
  return nb::borrow(PyDict_GetItemString(dict.ptr(), key));
}

// How many rows a value has in its first array; -1 if it is no such value, which is found out later.
std::int64_t rows_in(const TreeNode& node, nb::handle value) {
  if (node.is_leaf()) {
    const Py_ssize_t length = PyObject_Length(value.ptr());
    if (length < 0) forget_error();
    return length;
  }
  if (node.children().empty()) return -1;
  nb::object first;
  if (node.is_dict())
    first = PyDict_Check(value.ptr()) ? nb::borrow(PyDict_GetItemWithError(value.ptr(), node.keys()[0].ptr()))
                                      : nb::object();
  else
    first = nb::steal(PySequence_GetItem(value.ptr(), 0));
  if (!first.is_valid()) {
    forget_error();
    return -1;
  }
  return rows_in(node.children()[0], first);
}

}  // namespace

std::span<const std::int32_t> ActionInput::read(nb::handle action, nb::handle env_id,
                                                std::span<const std::int32_t> otherwise) {
  PlayerKeys players;
  nb::object ids, inner;  // from the dict
  if (PyDict_Check(action.ptr())) {
    const nb::handle given = action;
    const auto in_space = [&](const char* key) {
      if (!tree_.is_dict()) return false;
      for (const auto& known : tree_.keys())
        if (PyUnicode_Check(known.ptr()) && PyUnicode_CompareWithASCIIString(known.ptr(), key) == 0)
          return true;
      return false;
    };
    // The keys that go with the action. A key that the space has too belongs to the space.
    Py_ssize_t beside = 0;
    const auto take = [&](const char* key) {
      nb::object value = in_space(key) ? nb::object() : find(given, key);
      beside += value.is_valid();
      return value;
    };
    ids = take("env_id");
    if (ids.is_valid()) {
      if (!env_id.is_none())
        raise("ActionError", "env_id was given twice: as an argument and as a key of the action");
      env_id = ids;
    }
    players.env_id = take("players.env_id");
    players.id = take("players.id");
    for (nb::object* key : {&players.env_id, &players.id})
      if (key->is_valid() && key->is_none()) *key = nb::object();
    inner = take("action");
    if (inner.is_valid()) action = inner;
    else if (!tree_.is_dict())
      raise("ActionError", "expected the key 'action' in the dict passed as action, got the keys " + keys_in(given));
    // A misspelt "env_id" must not send the action to every env.
    const auto in_tree = inner.is_valid() ? 0 : static_cast<Py_ssize_t>(tree_.keys().size());
    if (PyDict_Size(given.ptr()) > in_tree + beside)
      raise("ActionError", "expected only the keys " + (in_tree ? tree_.key_list() : std::string("'action'")) +
                               ", 'env_id', 'players.env_id' and 'players.id' in the dict passed as action, got the keys " +
                               keys_in(given));
  }
  if (!pool_.is_async()) all_envs_ = otherwise.data();
  const auto envs = env_id.is_none() ? envs_or(otherwise) : read_envs(env_id);
  check_can_act(envs);
  look_before_reading(action);
  if (players_.are_many())
    write_players(action, players, envs);
  else
    write(action, envs);
  return envs;
}

// The envs of an action that names none.
std::span<const std::int32_t> ActionInput::envs_or(std::span<const std::int32_t> otherwise) const {
  if (otherwise.empty())
    raise("EnvIdError",
          "send without env_id means the envs of the last recv(), and there was none: call "
          "async_reset() and recv() first, or pass env_id");
  return otherwise;
}

std::span<const std::int32_t> ActionInput::read_numbers(std::span<const Numbers> action, const Numbers* env_id,
                                                        std::span<const std::int32_t> otherwise) {
  if (!pool_.is_async()) all_envs_ = otherwise.data();
  std::span<const std::int32_t> envs;
  if (!env_id) {
    envs = envs_or(otherwise);
  } else {
    const auto count = static_cast<std::size_t>(env_id->shape.empty() ? 0 : env_id->shape[0]);
    const auto* narrow = static_cast<const std::int32_t*>(env_id->data);
    const auto* wide = static_cast<const std::int64_t*>(env_id->data);
    if (env_id->shape.size() != 1 || (env_id->type != DType::kInt32 && env_id->type != DType::kInt64))
      raise("EnvIdError", "env_id: expected a 1-d array of int32 or int64");
    if (env_id->type == DType::kInt32) wide_ids_.assign(narrow, narrow + count);
    else wide_ids_.assign(wide, wide + count);
    envs = check_ids(wide_ids_);
  }
  check_can_act(envs);
  const bool in_order = covers_all_in_order(envs);
  for (std::size_t leaf = 0; leaf < action.size(); ++leaf) {
    LeafInput input{pool_.spec().action[leaf], pool_.table().action(static_cast<int>(leaf)),
                    in_order ? std::span<const std::int32_t>() : envs, std::ssize(envs), bounds_};
    input.helper = &pool_;
    check_numbers(action[leaf].shape, input);
    write_numbers(action[leaf].data, action[leaf].type, input);
  }
  return envs;
}

void ActionInput::read_one(nb::handle action, std::int32_t env) {
  const std::span<const std::int32_t> envs(&env, 1);
  check_can_act(envs);
  look_before_reading(action);
  if (players_.are_many())
    write_players(action, {}, envs);
  else
    write_node(tree_, action, envs, 1, "", false);
}

void ActionInput::check_can_act(std::span<const std::int32_t> envs) const {
  if (pool_.in_flight_count() != 0)
    for (const std::int32_t env : envs)
      if (pool_.in_flight(env))
        raise("InFlightError", "env " + std::to_string(env) +
                                   " is in flight: its last action has no result yet. Call recv() "
                                   "until its id is in info['env_id'], then send to it again");
  if (pool_.options().table.autoreset == SM_DISABLED)
    for (const std::int32_t env : envs)
      if (pool_.table().state(env).phase == SM_ENDED)
        raise("NeedsResetError",
              "the episode of env " + std::to_string(env) +
                  " is over and autoreset is disabled: call reset(env_id=[" + std::to_string(env) +
                  "]) before the next action");
}

std::span<const std::int32_t> ActionInput::read_envs(nb::handle env_id) {
  const Ids given = read_ids(env_id, "env_id");
  return check_ids(given.numbers);
}

std::span<const std::int32_t> ActionInput::check_ids(std::span<const std::int64_t> from) {
  const auto count = std::ssize(from);
  if (count == 0) raise("EnvIdError", "env_id: expected at least one env id, got none");
  if (count > pool_.num_envs())
    raise("EnvIdError", "env_id: expected at most " + std::to_string(pool_.num_envs()) + " env ids, one per env, got " +
                            std::to_string(count));
  seen_.assign(static_cast<std::size_t>(pool_.num_envs()), 0);
  ids_.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] < 0 || from[i] >= pool_.num_envs())
      raise("EnvIdError", "env_id " + std::to_string(from[i]) + " is out of range [0, " +
                              std::to_string(pool_.num_envs()) + ")");
    auto& seen = seen_[static_cast<std::size_t>(from[i])];
    if (seen) raise("EnvIdError", "env_id " + std::to_string(from[i]) + " is given twice");
    seen = 1;
    ids_[i] = static_cast<std::int32_t>(from[i]);
  }
  return ids_;
}

bool ActionInput::covers_all_in_order(std::span<const std::int32_t> envs) const {
  if (static_cast<std::int32_t>(envs.size()) != pool_.num_envs()) return false;
  if (envs.data() == all_envs_) return true;
  for (std::size_t i = 0; i < envs.size(); ++i)
    if (envs[i] != static_cast<std::int32_t>(i)) return false;
  return true;
}

void ActionInput::write(nb::handle action, std::span<const std::int32_t> envs) {
  const auto count = static_cast<std::int64_t>(envs.size());
  static const std::string root;
  write_node(tree_, action, covers_all_in_order(envs) ? std::span<const std::int32_t>() : envs, count, root);
}

// A row per player, by kind if their spaces differ.
void ActionInput::write_players(nb::handle action, const PlayerKeys& keys, std::span<const std::int32_t> envs) {
  player_rows_.begin(envs);
  if (!players_.differ()) {
    write_kind(0, tree_, action, keys, envs, "");
  } else {
    if (!PyDict_Check(action.ptr()))
      raise("ActionError", "action: expected a dict with the rows of each kind of player, " + tree_.key_list() + ", got " +
                               describe_object(action));
    for (std::size_t kind = 0; kind < tree_.keys().size(); ++kind) {
      const nb::object& name = tree_.keys()[kind];
      const nb::object rows = part_of(action, name, "action");
      const PlayerKeys own{part_of(keys.env_id, name, "players.env_id"), part_of(keys.id, name, "players.id")};
      write_kind(kind, tree_.children()[kind], rows, own, envs, std::string("[") + text_of(nb::repr(name)) + "]");
    }
  }
  player_rows_.commit(envs, pool_.table().action_players());
}

// What a dict by kind of player has for one of them; null if there is no dict.
nb::object ActionInput::part_of(nb::handle given, const nb::object& kind, const std::string& name) const {
  if (!given.is_valid() || given.is_none()) return {};
  nb::object part;
  if (PyDict_Check(given.ptr())) part = nb::borrow(PyDict_GetItemWithError(given.ptr(), kind.ptr()));
  if (!part.is_valid()) {
    forget_error();
    raise("ActionError", name + ": expected a dict with the keys " + tree_.key_list() + ", got " +
                             (PyDict_Check(given.ptr()) ? "the keys " + keys_in(given) : describe_object(given)));
  }
  return part;
}

void ActionInput::write_kind(std::size_t kind, const TreeNode& node, nb::handle value, const PlayerKeys& keys,
                             std::span<const std::int32_t> envs, const std::string& path) {
  if (keys.id.is_valid() && !keys.env_id.is_valid())
    raise("ActionError", "players.id" + path + ": expected players.env_id beside it, got none");
  const auto rows = keys.env_id.is_valid() ? player_rows_.by_env(kind, envs, keys.env_id, keys.id, path)
                                           : player_rows_.in_order(kind, envs, rows_in(node, value));
  write_node(node, value, rows, static_cast<std::int64_t>(rows.size()), path);
}

void ActionInput::write_node(const TreeNode& node, nb::handle value, std::span<const std::int32_t> rows,
                             std::int64_t count, const std::string& path, bool batched) {
  const auto write = [&](int leaf, nb::handle part, const std::string&) {
    LeafInput input{pool_.spec().action[static_cast<std::size_t>(leaf)], pool_.table().action(leaf), rows, count, bounds_};
    input.helper = &pool_;
    input.batched = batched;
    if (players_.are_many()) input.players = &players_;
    write_leaf(part, input);
  };
  const auto refuse = [](const std::string& where, const std::string& text) {
    raise("ActionError", "action" + where + ": " + text);
  };
  node.take_apart(value, path, true, write, refuse);
}

}  // namespace stepmill
