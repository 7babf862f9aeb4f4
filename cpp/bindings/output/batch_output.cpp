#include "bindings/python/numpy_api.h"

#include "bindings/output/batch_output.h"

#include <cstring>
#include <iterator>

#include "bindings/python/errors.h"
#include "bindings/python/forked.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// ---- the owner object ------------------------------------------------------------------------

struct Owner {
  PyObject_HEAD
  std::shared_ptr<BufferStore> store;
  Buffer* buffer;
  std::uint32_t generation;  // of the process that made it, see forked.h
};

PyTypeObject* owner_type = nullptr;

void owner_dealloc(PyObject* self) {
  auto* owner = reinterpret_cast<Owner*>(self);
  // In a forked child the store belongs to the parent's threads, and a thread that does not exist here may hold its
  // lock: leave it as it is.
  if (owner->generation == process_generation())
    owner->store->release(owner->buffer);
  else
    new std::shared_ptr<BufferStore>(owner->store);  // leaked, so that nothing is unmapped
  owner->store.~shared_ptr();
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// Takes the batch's hold on its buffer.
PyObject* make_owner(Batch& batch) {
  auto* owner = reinterpret_cast<Owner*>(owner_type->tp_alloc(owner_type, 0));
  if (!owner) {
    batch.store->release(batch.buffer);
    throw nb::python_error();
  }
  new (&owner->store) std::shared_ptr<BufferStore>(std::move(batch.store));
  owner->buffer = batch.buffer;
  owner->generation = process_generation();
  return reinterpret_cast<PyObject*>(owner);
}

// ---- info keys, interned once ----------------------------------------------------------------

struct Keys {
  PyObject* env_id = PyUnicode_InternFromString("env_id");
  PyObject* players = PyUnicode_InternFromString("players");
  PyObject* id = PyUnicode_InternFromString("id");
  PyObject* terminated = PyUnicode_InternFromString("terminated");
  PyObject* truncated = PyUnicode_InternFromString("truncated");
  PyObject* rows = PyUnicode_InternFromString("rows");
  PyObject* elapsed_step = PyUnicode_InternFromString("elapsed_step");
  PyObject* episode_return = PyUnicode_InternFromString("episode_return");
  PyObject* has_episode_return = PyUnicode_InternFromString("_episode_return");
  PyObject* episode_length = PyUnicode_InternFromString("episode_length");
  PyObject* has_episode_length = PyUnicode_InternFromString("_episode_length");
  PyObject* final_obs = PyUnicode_InternFromString("final_obs");
  PyObject* has_final_obs = PyUnicode_InternFromString("_final_obs");
  PyObject* final_info = PyUnicode_InternFromString("final_info");
  PyObject* has_final_info = PyUnicode_InternFromString("_final_info");
  PyObject* abnormal = PyUnicode_InternFromString("abnormal");
  PyObject* has_abnormal = PyUnicode_InternFromString("_abnormal");
};

const Keys& keys() {
  static const Keys keys;
  return keys;
}

// Steals `value`.
void set(PyObject* dict, PyObject* key, PyObject* value) {
  const bool failed = !value || PyDict_SetItem(dict, key, value) != 0;
  Py_XDECREF(value);
  if (failed) throw nb::python_error();
}

void drop(PyObject* dict, PyObject* key) {
  const int has = PyDict_Contains(dict, key);
  if (has < 0 || (has == 1 && PyDict_DelItem(dict, key) != 0)) throw nb::python_error();
}

// A view that cannot be written to, and cannot be made writable again: its base array is read-only too.
nb::object read_only(nb::object array) {
  auto* base = reinterpret_cast<PyArrayObject*>(array.ptr());
  PyArray_CLEARFLAGS(base, NPY_ARRAY_WRITEABLE);
  return owned(PyArray_View(base, nullptr, nullptr));
}

nb::object filled(std::int32_t rows, int type) {
  npy_intp size = rows;
  return owned(PyArray_ZEROS(1, &size, type, 0));
}

// ---- flags of rows, 0 or 1 -------------------------------------------------------------------

// The first row from `row` on that has the flag; `rows` if there is none.
std::size_t next_row(const std::uint8_t* flags, std::size_t row, std::size_t rows) {
  const void* found = std::memchr(flags + row, 1, rows - row);
  return found ? static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - flags) : rows;
}

// Whether all rows, or all that have the flag, have all infos.
bool have_all(const std::uint8_t* present, const std::uint8_t* flags, std::size_t rows, std::size_t leaves) {
  if (!flags) return !std::memchr(present, 0, rows * leaves);
  for (std::size_t row = next_row(flags, 0, rows); row < rows; row = next_row(flags, row + 1, rows))
    if (std::memchr(present + row * leaves, 0, leaves)) return false;
  return true;
}

// Clears the rows of a column without the flag: they hold what an older batch left there.
void clear_others(void* column, std::size_t row_bytes, const std::uint8_t* flags, std::size_t rows) {
  for (std::size_t row = 0; row < rows;) {
    const std::size_t next = next_row(flags, row, rows);
    std::memset(static_cast<std::byte*>(column) + row * row_bytes, 0, (next - row) * row_bytes);
    row = next + 1;
  }
}

nb::object mask_of(const std::vector<std::uint8_t>& flags) {
  nb::object mask = filled(static_cast<std::int32_t>(flags.size()), NPY_BOOL);
  std::memcpy(data_of<std::uint8_t>(mask), flags.data(), flags.size());
  return mask;
}

}  // namespace

void register_owner_type(nb::module_& module) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(owner_dealloc)}, {0, nullptr}};
  static PyType_Spec spec = {"stepmill._native.BatchOwner", sizeof(Owner), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  nb::object type = owned(PyType_FromSpec(&spec));
  owner_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  module.attr("BatchOwner") = type;
}

// One batch on its way out: makes arrays over its columns, which share one owner.
struct BatchOutput::Handout {
  const Batch& batch;
  nb::object owner;
  std::int32_t rows;         // one per env
  std::int32_t player_rows;  // one per player
  const PlayerColumns* players;  // null: one player per env

  PyObject* array(void* data, int type, std::int32_t count, const std::vector<Py_ssize_t>& tail) const {
    npy_intp shape[NPY_MAXDIMS];
    shape[0] = count;
    for (std::size_t i = 0; i < tail.size(); ++i) shape[i + 1] = tail[i];
    PyObject* out = PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(type),
                                         static_cast<int>(tail.size()) + 1, shape, nullptr, data,
                                         NPY_ARRAY_CARRAY, nullptr);
    // What PyArray_SetBaseObject does, without its checks, which a new array and our owner pass.
    if (out) reinterpret_cast<PyArrayObject_fields*>(out)->base = Py_NewRef(owner.ptr());
    return out;
  }
  PyObject* column(void* data, int type) const {
    static const std::vector<Py_ssize_t> scalar;
    return array(data, type, rows, scalar);
  }
};

BatchOutput::BatchOutput(const Pool& pool, Players& players, TreeNode observation_tree)
    : pool_(pool), players_(players), observation_tree_(std::move(observation_tree)) {
  const auto form = [](const Leaf& leaf) {
    return ArrayForm{numpy_type(leaf.dtype), {leaf.shape.begin(), leaf.shape.end()}, leaf.row_bytes(),
                     leaf.player_kind};
  };
  for (const Leaf& leaf : pool.spec().observation) observation_forms_.push_back(form(leaf));
  for (const Leaf& leaf : pool.spec().info)
    info_keys_.push_back({owned(PyUnicode_InternFromString(leaf.name.c_str())),
                          owned(PyUnicode_InternFromString(("_" + leaf.name).c_str())), form(leaf)});
  all_true_ = filled(pool.num_envs(), NPY_BOOL);
  std::memset(data_of<char>(all_true_), 1, static_cast<std::size_t>(pool.num_envs()));
  all_true_ = read_only(std::move(all_true_));
  all_ids_ = filled(pool.num_envs(), NPY_INT32);
  for (std::int32_t i = 0; i < pool.num_envs(); ++i) data_of<std::int32_t>(all_ids_)[i] = i;
  all_ids_ = read_only(std::move(all_ids_));
  players_template_ = owned(PyDict_New());
  set(players_template_.ptr(), keys().env_id, nb::object(all_ids_).release().ptr());
  show_players(false);
}

void BatchOutput::show_players(bool always) {
  always_players_ = always;
  with_players_ = always || players_.are_many();
  plain_template_ = info_template(false);
  ends_template_ = info_template(true);
}

nb::object BatchOutput::info_template(bool with_ends) const {
  nb::object dict = owned(PyDict_New());
  const auto add = [&](PyObject* key, nb::object value = nb::none()) { set(dict.ptr(), key, value.release().ptr()); };
  add(keys().env_id, all_ids_);
  if (with_players_) add(keys().players);
  add(keys().elapsed_step);
  for (const InfoKey& key : info_keys_) {
    add(key.key.ptr());
    add(key.mask.ptr(), all_true_);
  }
  if (with_ends)
    for (PyObject* key : {keys().episode_return, keys().has_episode_return, keys().episode_length,
                          keys().has_episode_length})
      add(key);
  return dict;
}

nb::object BatchOutput::step_result(Batch batch, const std::vector<Fault>& faults) {
  nb::object owner = nb::steal(make_owner(batch));
  PlayerColumns packed;
  const bool many = players_.are_many();
  if (many) packed = pack_players(batch);
  const Handout out{batch, owner, batch.rows, many ? static_cast<std::int32_t>(packed.env.size()) : batch.rows,
                    many ? &packed : nullptr};
  const sm_columns& c = batch.buffer->columns.c;
  nb::object parts[5] = {owned(observation(out, c.observation)), owned(reward(out)),
                         flags(out, batch.terminated, c.terminated), flags(out, batch.truncated, c.truncated),
                         owned(info(out, faults))};
  nb::object result = owned(PyTuple_New(5));
  for (int i = 0; i < 5; ++i) PyTuple_SET_ITEM(result.ptr(), i, parts[i].release().ptr());
  return result;
}

PyObject* BatchOutput::observation(const Handout& out, void* const* columns) const {
  return observation_tree_.build([&](int leaf) {
    const ArrayForm& form = observation_forms_[static_cast<std::size_t>(leaf)];
    std::int32_t rows = out.player_rows;
    if (players_.differ()) rows = static_cast<std::int32_t>(out.players->rows[static_cast<std::size_t>(form.player_kind)].size());
    return out.array(columns[leaf], form.type, rows, form.shape);
  });
}

// The last observations of the episodes that ended, in Gymnasium's form: an array of objects, each the observation of a
// single env (a view of the batch), or None if its episode did not end.
PyObject* BatchOutput::final_observations(const Handout& out) const {
  const sm_columns& c = out.batch.buffer->columns.c;
  std::vector<nb::object> leaves;
  for (std::size_t i = 0; i < observation_forms_.size(); ++i) {
    const ArrayForm& form = observation_forms_[i];
    leaves.push_back(owned(out.array(c.final_observation[i], form.type, out.rows, form.shape)));
  }
  npy_intp rows = out.rows;
  nb::object objects = owned(PyArray_SimpleNew(1, &rows, NPY_OBJECT));
  for (std::int32_t row = 0; row < out.rows; ++row) {
    PyObject* one = out.batch.ended[row] ? observation_tree_.build([&](int leaf) {
      PyObject* array = leaves[static_cast<std::size_t>(leaf)].ptr();
      PyObject* item = PySequence_GetItem(array, row);
      const Leaf& of = pool_.spec().observation[static_cast<std::size_t>(leaf)];
      if (!item || !of.shape.empty() || (of.kind != LeafKind::kBox && of.kind != LeafKind::kDiscrete)) return item;
      // Values of Box spaces are arrays, even without axes; discrete ones are Python's numbers, as envs return them.
      PyObject* value = of.kind == LeafKind::kBox ? PyArray_FromScalar(item, nullptr) : PyNumber_Index(item);
      Py_DECREF(item);
      return value;
    }) : Py_NewRef(Py_None);
    if (!one) throw nb::python_error();
    data_of<PyObject*>(objects)[row] = one;
  }
  return objects.release().ptr();
}

PyObject* BatchOutput::reward(const Handout& out) const {
  static const std::vector<Py_ssize_t> scalar;
  const int type = pool_.options().table.reward_is_float32 ? NPY_FLOAT32 : NPY_FLOAT64;
  return out.array(out.batch.buffer->columns.c.reward, type, out.player_rows, scalar);
}

nb::object BatchOutput::true_mask(std::int32_t rows) const {
  if (rows == pool_.num_envs()) return all_true_;
  nb::object mask = filled(rows, NPY_BOOL);
  std::memset(data_of<char>(mask), 1, static_cast<std::size_t>(rows));
  return mask;
}

nb::object BatchOutput::env_ids(const Handout& out) const {
  if (out.batch.all_in_order) return all_ids_;
  std::int32_t* column = out.batch.buffer->columns.c.env_id;
  if (out.batch.env_id == column) return owned(out.column(column, NPY_INT32));
  nb::object copy = filled(out.rows, NPY_INT32);
  std::memcpy(data_of<std::int32_t>(copy), out.batch.env_id, static_cast<std::size_t>(out.rows) * sizeof(std::int32_t));
  return copy;
}

// A column of flags: that of the batch or, if other processes can write into it, a copy. With an array of bools that
// holds anything but 0 and 1, numpy goes wrong, and may even leave its memory.
nb::object BatchOutput::flags(const Handout& out, const std::uint8_t* values, std::uint8_t* column) const {
  if (values == column) return owned(out.column(column, NPY_BOOL));
  nb::object copy = filled(out.rows, NPY_BOOL);
  std::memcpy(data_of<std::uint8_t>(copy), values, static_cast<std::size_t>(out.rows));
  return copy;
}

PyObject* BatchOutput::info(const Handout& out, const std::vector<Fault>& faults) const {
  const sm_columns& c = out.batch.buffer->columns.c;
  nb::object info = owned(PyDict_Copy((out.batch.any_ended ? ends_template_ : plain_template_).ptr()));
  nb::object ids = env_ids(out);
  if (!ids.is(all_ids_)) set(info.ptr(), keys().env_id, nb::object(ids).release().ptr());
  if (with_players_) set(info.ptr(), keys().players, players(out, ids));
  set(info.ptr(), keys().elapsed_step, out.column(c.elapsed_step, NPY_INT32));
  if (!info_keys_.empty()) add_own(out, info.ptr(), {c.info, c.info_present, nullptr, true_mask(out.rows)});

  if (out.batch.any_ended) {
    nb::object ended = flags(out, out.batch.ended, c.ended);
    set(info.ptr(), keys().episode_return, out.column(c.episode_return, NPY_FLOAT64));
    set(info.ptr(), keys().has_episode_return, nb::object(ended).release().ptr());
    set(info.ptr(), keys().episode_length, out.column(c.episode_length, NPY_INT32));
    set(info.ptr(), keys().has_episode_length, nb::object(ended).release().ptr());
    if (pool_.options().table.autoreset == SM_SAME_STEP) {
      set(info.ptr(), keys().final_obs, final_observations(out));
      set(info.ptr(), keys().has_final_obs, nb::object(ended).release().ptr());
      nb::object final_info = owned(PyDict_New());
      if (!info_keys_.empty())
        add_own(out, final_info.ptr(), {c.final_info, c.final_info_present, out.batch.ended, ended});
      set(info.ptr(), keys().final_info, final_info.release().ptr());
      set(info.ptr(), keys().has_final_info, nb::object(ended).release().ptr());
    }
  }
  if (!faults.empty()) add_faults(out, info.ptr(), faults);
  return info.release().ptr();
}

// Whose rows those of per-player arrays are.
PyObject* BatchOutput::players(const Handout& out, nb::object ids) const {
  nb::object players = owned(PyDict_Copy(players_template_.ptr()));
  if (!out.players) {
    if (!ids.is(all_ids_)) set(players.ptr(), keys().env_id, ids.release().ptr());
    return players.release().ptr();
  }
  const auto add = [](nb::object& to, PyObject* key, const auto& values, int type) {
    nb::object array = filled(static_cast<std::int32_t>(values.size()), type);
    std::memcpy(data_of<char>(array), values.data(), values.size() * sizeof(values[0]));
    set(to.ptr(), key, array.release().ptr());
  };
  add(players, keys().env_id, out.players->env, NPY_INT32);
  add(players, keys().id, out.players->id, NPY_INT32);
  add(players, keys().terminated, out.players->terminated, NPY_BOOL);
  add(players, keys().truncated, out.players->truncated, NPY_BOOL);
  if (players_.differ()) {
    nb::object rows = owned(PyDict_New());
    for (std::size_t kind = 0; kind < players_.kinds(); ++kind)
      add(rows, observation_tree_.keys()[kind].ptr(), out.players->rows[kind], NPY_INT64);
    set(players.ptr(), keys().rows, rows.release().ptr());
  }
  return players.release().ptr();
}

// As Gymnasium does it: keys that no row has are left out, and rows without a key that others have show zeros.
void BatchOutput::add_own(const Handout& out, PyObject* info, const OwnInfos& own) const {
  const auto rows = static_cast<std::size_t>(out.rows);
  const std::size_t leaves = info_keys_.size();
  const bool complete = have_all(own.present, own.among, rows, leaves);  // nearly always
  std::vector<std::uint8_t> some(complete ? 0 : rows);
  for (std::size_t leaf = 0; leaf < leaves; ++leaf) {
    const InfoKey& key = info_keys_[leaf];
    const std::uint8_t* has = own.among;
    nb::object mask = own.all;
    if (!complete) {
      const std::uint8_t* among = own.among ? own.among : data_of<std::uint8_t>(all_true_);
      // Read once, as 0 and 1: with process workers, others can write here.
      for (std::size_t row = 0; row < rows; ++row) some[row] = among[row] & (own.present[row * leaves + leaf] != 0);
      has = some.data();
      if (!std::memchr(has, 1, rows)) {
        drop(info, key.key.ptr());
        drop(info, key.mask.ptr());
        continue;
      }
      if (std::memcmp(has, among, rows) != 0) mask = mask_of(some);
    }
    if (has) clear_others(own.columns[leaf], static_cast<std::size_t>(key.form.row_bytes), has, rows);
    set(info, key.key.ptr(), out.array(own.columns[leaf], key.form.type, out.rows, key.form.shape));
    if (!mask.is(all_true_)) set(info, key.mask.ptr(), mask.release().ptr());
  }
}

void BatchOutput::add_faults(const Handout& out, PyObject* info, const std::vector<Fault>& faults) const {
  nb::object abnormal = filled(out.rows, NPY_BOOL);
  if (PyObject* own = PyDict_GetItem(info, keys().abnormal))  // what envs say of themselves
    std::memcpy(data_of<bool>(abnormal), data_of<bool>(nb::borrow(own)), static_cast<std::size_t>(out.rows));
  const std::int32_t* ids = out.batch.env_id;
  for (std::int32_t row = 0; row < out.rows; ++row)
    for (const Fault& fault : faults)
      if (fault.env == ids[row]) data_of<bool>(abnormal)[row] = true;
  set(info, keys().abnormal, nb::object(abnormal).release().ptr());
  set(info, keys().has_abnormal, true_mask(out.rows).release().ptr());
}

// Each env of many players fills up to max_num_players rows. If one fills fewer, the rows after it move up, so that the
// arrays hold only players. What ends an env ends its players too.
BatchOutput::PlayerColumns BatchOutput::pack_players(const Batch& batch) const {
  PlayerColumns packed;
  packed.rows.resize(players_.kinds());
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    const std::uint8_t* flags = batch.players + std::int64_t{row} * players_.most;
    const std::int32_t env = batch.env_id[row];
    for (std::int32_t player = 0; player < players_.most; ++player) {
      int shown = flags[player];
      if (!(shown & SM_HAS_ROW)) shown = 0;
      if (shown == SM_HAS_ROW)
        shown |= (batch.terminated[row] ? SM_PLAYER_TERMINATED : 0) | (batch.truncated[row] ? SM_PLAYER_TRUNCATED : 0);
      players_.show(env, player, static_cast<std::uint8_t>(shown));
      if (!shown) continue;
      move_player(batch.buffer->columns.c, row, player, packed);
      packed.rows[static_cast<std::size_t>(players_.place(player).kind)].push_back(std::ssize(packed.env));
      packed.env.push_back(env);
      packed.id.push_back(player);
      packed.terminated.push_back((shown & SM_PLAYER_TERMINATED) != 0);
      packed.truncated.push_back((shown & SM_PLAYER_TRUNCATED) != 0);
    }
  }
  return packed;
}

// Moves the rows of a player to the end of those that are packed.
void BatchOutput::move_player(const sm_columns& c, std::int64_t row, std::int32_t player,
                              const PlayerColumns& packed) const {
  const auto move = [](void* column, std::int64_t from, std::int64_t to, std::int64_t bytes) {
    if (from == to) return;
    auto* data = static_cast<char*>(column);
    std::memcpy(data + to * bytes, data + from * bytes, static_cast<std::size_t>(bytes));
  };
  const std::int64_t first = row * players_.most;
  const auto [kind, rank] = players_.place(player);
  for (std::size_t leaf = 0; leaf < observation_forms_.size(); ++leaf)
    if (const ArrayForm& form = observation_forms_[leaf]; form.player_kind == kind)
      move(c.observation[leaf], first + rank, std::ssize(packed.rows[static_cast<std::size_t>(kind)]), form.row_bytes);
  const bool is_float32 = pool_.options().table.reward_is_float32 != 0;
  move(c.reward, first + player, std::ssize(packed.env), is_float32 ? sizeof(float) : sizeof(double));
}

}  // namespace stepmill
