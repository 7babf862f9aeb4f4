#include "bindings/python/numpy_api.h"

#include "bindings/input/action_input.h"

#include "bindings/python/errors.h"
#include "bindings/host.h"
#include "bindings/input/tensor_input.h"

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

// The owner of a row of the action table when an env has many players: for messages.
thread_local const Players* owner_players = nullptr;
thread_local std::size_t owner_kind = 0;
std::string player_owner(std::int64_t row) {
  const auto rank = static_cast<std::size_t>(row % owner_players->most);
  return "env " + std::to_string(row / owner_players->most) + ", player " +
         std::to_string(owner_players->of_kind(owner_kind)[rank]);
}

// numpy looks for signals while it reads a list, and what a handler raises there would be taken for an error of the list.
void look_before_reading(nb::handle value) {
  if (!PyArray_Check(value.ptr())) look_for_signals();
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
      raise("ActionError", "expected the key 'action' in the dict passed as action, got the keys " + keys_of(given));
    // A misspelt "env_id" must not send the action to every env.
    const auto in_tree = inner.is_valid() ? 0 : static_cast<Py_ssize_t>(tree_.keys().size());
    if (PyDict_Size(given.ptr()) > in_tree + beside)
      raise("ActionError", "expected only the keys " + (in_tree ? list_keys(tree_) : std::string("'action'")) +
                               ", 'env_id', 'players.env_id' and 'players.id' in the dict passed as action, got the keys " +
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

  look_before_reading(action);
  if (players_.are_many())
    write_players(action, players, envs);
  else
    write(action, envs);
  return envs;
}

nb::object ActionInput::read_integers(nb::handle given, const char* name) {
  look_before_reading(given);
  nb::object plain = without_torch(given);
  nb::object holder;
  if (plain.is_valid()) holder = nb::steal(PyArray_FromAny(plain.ptr(), nullptr, 0, 0, 0, nullptr));
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

// A row per player, by kind if their spaces differ.
void ActionInput::write_players(nb::handle action, const PlayerKeys& keys, std::span<const std::int32_t> envs) {
  owner_players = &players_;
  player_rows_.begin(envs);
  if (!players_.differ()) {
    write_kind(0, tree_, action, keys, envs, "");
  } else {
    if (!PyDict_Check(action.ptr()))
      raise("ActionError", "action: expected a dict with the rows of each kind of player, " + list_keys(tree_) + ", got " +
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
    raise("ActionError", name + ": expected a dict with the keys " + list_keys(tree_) + ", got " +
                             (PyDict_Check(given.ptr()) ? "the keys " + keys_of(given) : describe_object(given)));
  }
  return part;
}

void ActionInput::write_kind(std::size_t kind, const TreeNode& node, nb::handle value, const PlayerKeys& keys,
                             std::span<const std::int32_t> envs, const std::string& path) {
  owner_kind = kind;
  if (keys.id.is_valid() && !keys.env_id.is_valid())
    raise("ActionError", "players.id" + path + ": expected players.env_id beside it, got none");
  const auto rows = keys.env_id.is_valid() ? player_rows_.by_env(kind, envs, keys.env_id, keys.id, path)
                                           : player_rows_.in_order(kind, envs, rows_in(node, value));
  write_node(node, value, rows, static_cast<std::int64_t>(rows.size()), path);
}

void ActionInput::write_node(const TreeNode& node, nb::handle value,
                             std::span<const std::int32_t> rows, std::int64_t count,
                             const std::string& path) {
  if (node.is_leaf()) {
    if (node.leaf() < 0) return;  // Python objects: the host takes them to the envs
    const Leaf& leaf = pool_.spec().action[static_cast<std::size_t>(node.leaf())];
    LeafInput input{leaf, pool_.table().action(node.leaf()), rows, count, bounds_};
    input.helper = &pool_;
    if (players_.are_many()) {
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
