#include "bindings/numpy_api.h"

#include "bindings/action_input.h"

#include "bindings/errors.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// The value of a key of a dict, or null. Never raises. A reference of our own, since user code that runs later may
// change the dict.
nb::object find(nb::handle dict, const char* key) {
  return nb::borrow(PyDict_GetItemString(dict.ptr(), key));
}

std::string keys_of(nb::handle dict) {
  return text_of(nb::repr(nb::list(dict.attr("keys")())));
}

std::string list_keys(const TreeNode& node) {
  std::string out;
  for (const auto& key : node.keys()) {
    if (!out.empty()) out += ", ";
    out += text_of(nb::repr(key));
  }
  return out;
}

// The owner of a row of the action table when an env has many players.
thread_local std::int32_t players_per_env = 1;
std::string player_owner(std::int64_t row) {
  return "env " + std::to_string(row / players_per_env) + ", player " +
         std::to_string(row % players_per_env);
}

}  // namespace

std::span<const std::int32_t> ActionInput::read(nb::handle action, nb::handle env_id,
                                                std::span<const std::int32_t> otherwise) {
  nb::object players, ids, inner;  // from the dict
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
    players = take("players.env_id");
    inner = take("action");
    if (inner.is_valid()) action = inner;
    else if (!tree_.is_dict())
      raise("ActionError", "expected the key 'action' in the dict passed as action, got the keys " + keys_of(given));
    // A misspelt "env_id" must not send the action to every env.
    const auto in_tree = inner.is_valid() ? 0 : static_cast<Py_ssize_t>(tree_.keys().size());
    if (PyDict_Size(given.ptr()) > in_tree + beside)
      raise("ActionError", "expected only the keys " + (in_tree ? list_keys(tree_) : std::string("'action'")) +
                               ", 'env_id' and 'players.env_id' in the dict passed as action, got the keys " +
                               keys_of(given));
  }
  if (!pool_.is_async()) all_envs_ = otherwise.data();
  const auto envs = env_id.is_none() ? otherwise : read_ids(env_id);
  if (envs.empty())
    raise("EnvIdError",
          "send without env_id means the envs of the last recv(), and there was none: call "
          "async_reset() and recv() first, or pass env_id");

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

  if (pool_.spec().max_num_players > 1)
    write_players(action, players, envs);
  else
    write(action, envs);
  return envs;
}

nb::object ActionInput::read_integers(nb::handle given, const char* name) {
  nb::object holder = nb::steal(PyArray_FromAny(given.ptr(), nullptr, 0, 0, 0, nullptr));
  if (!holder.is_valid()) {
    forget_error();
    raise("EnvIdError",
          name + std::string(": expected an array or a list of env ids, got ") + describe_object(given));
  }
  auto* array = reinterpret_cast<PyArrayObject*>(holder.ptr());
  const bool empty = PyArray_SIZE(array) == 0;  // its type says nothing
  if (PyArray_NDIM(array) != 1 || (!PyTypeNum_ISINTEGER(PyArray_TYPE(array)) && !empty))
    raise("EnvIdError", name + std::string(": expected a 1-d array of integers, got ") + describe_object(holder));
  return owned(PyArray_FROM_OTF(holder.ptr(), NPY_INT64, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
}

std::span<const std::int32_t> ActionInput::read_ids(nb::handle env_id) {
  nb::object holder = read_integers(env_id, "env_id");
  auto* array = reinterpret_cast<PyArrayObject*>(holder.ptr());
  const auto* from = static_cast<const std::int64_t*>(PyArray_DATA(array));
  const npy_intp count = PyArray_DIM(array, 0);
  if (count == 0) raise("EnvIdError", "env_id: expected at least one env id, got none");
  if (count > pool_.num_envs())
    raise("EnvIdError", "env_id: expected at most " + std::to_string(pool_.num_envs()) + " env ids, one per env, got " +
                            std::to_string(count));
  seen_.assign(static_cast<std::size_t>(pool_.num_envs()), 0);
  ids_.resize(static_cast<std::size_t>(count));
  for (npy_intp i = 0; i < count; ++i) {
    if (from[i] < 0 || from[i] >= pool_.num_envs())
      raise("EnvIdError", "env_id " + std::to_string(from[i]) + " is out of range [0, " +
                              std::to_string(pool_.num_envs()) + ")");
    auto& seen = seen_[static_cast<std::size_t>(from[i])];
    if (seen) raise("EnvIdError", "env_id " + std::to_string(from[i]) + " is given twice");
    seen = 1;
    ids_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(from[i]);
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

// One row per player: entry i goes to the next free player of its env.
void ActionInput::write_players(nb::handle action, nb::handle players,
                                std::span<const std::int32_t> envs) {
  const std::int32_t most = pool_.spec().max_num_players;
  players_per_env = most;
  std::vector<std::int32_t> owners;
  if (players.ptr() && !players.is_none()) {
    nb::object holder = read_integers(players, "players.env_id");
    auto* array = reinterpret_cast<PyArrayObject*>(holder.ptr());
    const auto* from = static_cast<const std::int64_t*>(PyArray_DATA(array));
    for (npy_intp i = 0; i < PyArray_SIZE(array); ++i) {
      if (from[i] < 0 || from[i] >= pool_.num_envs())
        raise("EnvIdError", "players.env_id " + std::to_string(from[i]) + " is out of range [0, " +
                                std::to_string(pool_.num_envs()) + ")");
      owners.push_back(static_cast<std::int32_t>(from[i]));
    }
  } else {
    for (const std::int32_t env : envs) owners.insert(owners.end(), static_cast<std::size_t>(most), env);
  }

  player_count_.assign(static_cast<std::size_t>(pool_.num_envs()), -1);
  for (const std::int32_t env : envs) player_count_[static_cast<std::size_t>(env)] = 0;
  rows_.clear();
  for (const std::int32_t env : owners) {
    std::int32_t& player = player_count_[static_cast<std::size_t>(env)];
    if (player < 0)
      raise("EnvIdError", "players.env_id names env " + std::to_string(env) + ", which env_id does not");
    if (player == most)
      raise("ActionError", "env " + std::to_string(env) + ": expected at most " +
                               std::to_string(most) + " players' actions, got more");
    rows_.push_back(env * most + player++);
  }
  if (pool_.spec().fixed_players)
    for (const std::int32_t env : envs)
      if (const std::int32_t got = player_count_[static_cast<std::size_t>(env)]; got != most)
        raise("ActionError", "env " + std::to_string(env) + ": expected an action of each of its " +
                                 std::to_string(most) + " players, got " + std::to_string(got));
  write_node(tree_, action, rows_, static_cast<std::int64_t>(rows_.size()), "");
  for (const std::int32_t env : envs)
    pool_.table().action_players()[env] = player_count_[static_cast<std::size_t>(env)];
}

void ActionInput::write_node(const TreeNode& node, nb::handle value,
                             std::span<const std::int32_t> rows, std::int64_t count,
                             const std::string& path) {
  if (node.is_leaf()) {
    if (node.leaf() < 0) return;  // Python objects: the host takes them to the envs
    const Leaf& leaf = pool_.spec().action[static_cast<std::size_t>(node.leaf())];
    LeafInput input{leaf, pool_.table().action(node.leaf()), rows, count, bounds_};
    input.helper = &pool_;
    if (pool_.spec().max_num_players > 1) {
      input.row_of = "player";
      input.owner = player_owner;
    }
    write_leaf(value, input);
    return;
  }
  const auto& children = node.children();
  if (node.is_dict()) {
    if (!PyDict_Check(value.ptr()))
      raise("ActionError", "action" + path + ": expected a dict with the keys " + list_keys(node) +
                               ", got " + describe_object(value));
    for (std::size_t i = 0; i < children.size(); ++i) {
      nb::object child = nb::borrow(PyDict_GetItemWithError(value.ptr(), node.keys()[i].ptr()));
      if (!child.is_valid()) forget_error();
      const std::string name = text_of(nb::repr(node.keys()[i]));
      if (!child.is_valid())
        raise("ActionError", "action" + path + ": expected the keys " + list_keys(node) + ", but " +
                                 name + " is missing");
      write_node(children[i], child, rows, count, path + "[" + name + "]");
    }
    if (!path.empty() && PyDict_Size(value.ptr()) != static_cast<Py_ssize_t>(children.size()))
      raise("ActionError", "action" + path + ": expected only the keys " + list_keys(node) + ", got " + keys_of(value));
    return;
  }
  nb::object items = nb::steal(PySequence_Tuple(value.ptr()));  // a copy: a list may change while we read it
  if (!items.is_valid() || PyTuple_GET_SIZE(items.ptr()) != static_cast<Py_ssize_t>(children.size())) {
    forget_error();
    raise("ActionError", "action" + path + ": expected a tuple of " +
                             std::to_string(children.size()) + " parts, got " + describe_object(value));
  }
  for (std::size_t i = 0; i < children.size(); ++i)
    write_node(children[i], PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)), rows,
               count, path + "[" + std::to_string(i) + "]");
}

}  // namespace stepmill
