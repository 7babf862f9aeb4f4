#include "bindings/python/numpy_api.h"

#include "bindings/hosts/python_env.h"

#include <cxxabi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "bindings/input/array_input.h"
#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "bindings/python/exit.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

struct Names {
  PyObject* step = PyUnicode_InternFromString("step");
  PyObject* reset = PyUnicode_InternFromString("reset");
  PyObject* presence = PyUnicode_InternFromString("presence");
  PyObject* reset_arguments = Py_BuildValue("(NN)", PyUnicode_InternFromString("seed"),
                                            PyUnicode_InternFromString("options"));
};

const Names& names() {
  static const Names names;
  return names;
}

// "ValueError: what it says", even if its __str__ raises. The same as `summary` in stepmill/errors.py.
std::string text_of_exception(nb::handle error) {
  std::string text = Py_TYPE(error.ptr())->tp_name;
  if (const auto dot = text.rfind('.'); dot != std::string::npos) text.erase(0, dot + 1);
  nb::object message = nb::steal(PyObject_Str(error.ptr()));
  if (!message.is_valid()) {
    const nb::object broken = take_exception();
    return text + ": <its __str__ raised " + Py_TYPE(broken.ptr())->tp_name + ">";
  }
  const std::string said = text_of(message);
  return said.empty() ? text : text + ": " + said;
}

bool is_awaitable(nb::handle value) {
  const PyAsyncMethods* const methods = Py_TYPE(value.ptr())->tp_as_async;
  return methods && methods->am_await;
}

bool is_nothing(nb::handle info) { return PyDict_CheckExact(info.ptr()) && PyDict_GET_SIZE(info.ptr()) == 0; }

// Says which env runs, as long as this object exists.
class Running {
 public:
  Running(PythonKind& kind, int env) : kind_(kind) { kind_.running = env; }
  ~Running() { kind_.running = -1; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  PythonKind& kind_;
};

// The leaves of a whole team; those of one kind of player if their spaces differ.
std::vector<Leaf> for_all_players(std::vector<Leaf> leaves, const EnvSpec& spec) {
  if (spec.max_num_players == 1) return leaves;
  const auto& kinds = spec.player_kinds;
  for (Leaf& leaf : leaves) {
    const auto players = kinds.empty() ? spec.max_num_players : std::count(kinds.begin(), kinds.end(), leaf.player_kind);
    leaf.shape.insert(leaf.shape.begin(), players);
    if (leaf.kind == LeafKind::kDiscrete) leaf.kind = LeafKind::kMultiDiscrete;
  }
  return leaves;
}

const sm_env_table& python_table() {
  static const sm_env_table table = [] {
    sm_env_table t{};
    t.abi_version = SM_ABI_VERSION;
    t.size = sizeof(sm_env_table);
    t.name = "Python";
    t.release = [](void* envs) { delete static_cast<Stepper<PythonEnv>*>(envs); };
    t.advance = [](void* envs, std::int32_t first_id, const sm_job* job) {
      return static_cast<int>(static_cast<Stepper<PythonEnv>*>(envs)->advance(first_id, *job));
    };
    return t;
  }();
  return table;
}

}  // namespace

PythonKind::PythonKind(const EnvSpec& env_spec, TreeNode observations, TreeNode actions)
    : spec(env_spec),
      observation(for_all_players(spec.observation, spec)),
      action(for_all_players(spec.action, spec)),
      observation_tree(std::move(observations)),
      action_tree(std::move(actions)) {
  for (const Leaf& leaf : spec.info) {
    infos.push_back({owned(PyUnicode_InternFromString(leaf.name.c_str())), "info['" + leaf.name + "']", leaf});
    infos.back().leaf.name.clear();  // `what` has it
  }
}

template <class F>
auto PythonEnv::attempt(const char* phase, F body) {
  phase_ = phase;
  const Running running(*kind_, id_);
  try {
    if (const nb::object failure = std::move(failure_); failure.is_valid()) raise_again(failure);
    return body();
  } catch (nb::python_error& error) {
    error.restore();
    keep_failure();
  } catch (abi::__forced_unwind&) {
    hang();
  }
}

// What a method of the env returns or, if that has to be awaited, what comes of it; null: the env is suspended until then.
template <class F>
nb::object PythonEnv::result_of(Answer& answer, F call) {
  if (answer.error.is_valid()) raise_again(answer.error);
  if (answer.is_there()) return answer.value;
  answer.elapsed = elapsed_;
  nb::object result = call();
  if (!is_awaitable(result)) {
    if (kind_->may_suspend) answer.value = result;  // what follows may have to be awaited
    return result;
  }
  if (!kind_->await_now.is_none()) return kind_->await_now(id_, result);
  if (!kind_->may_suspend) return result;  // its form is refused
  awaited_ = std::move(result);
  expected_ = &answer;
  return {};
}

void PythonEnv::answer(nb::object value, nb::object error) {
  expected_->value = std::move(value);
  expected_->error = std::move(error);
}

void PythonEnv::tell_end() const {
  if (!kind_->episode_over.is_none()) kind_->episode_over(id_);
}

// Moves the pending Python exception to the note and throws what the stepper reports.
void PythonEnv::keep_failure() {
  nb::object error = take_exception();
  tell_end();
  const std::string text = text_of_exception(error);
  ending_ = false;
  if (std::exchange(inside_, false)) {  // the episode's end still counts, and is all there is to show
    note_.final_info = note_.info;
    note_.final_objects = note_.objects;
  } else {
    note_ = Note{};
    info_ = nb::object();
    if (last_objects_.is_valid()) note_.objects = last_objects_;
  }
  note_.phase = phase_;
  // A KeyboardInterrupt may be the user's Ctrl-C. Everything else, even SystemExit, is a failure of the env.
  if (PyErr_GivenExceptionMatches(error.ptr(), PyExc_KeyboardInterrupt)) kind_->interrupt = error;
  note_.error = std::move(error);
  throw std::runtime_error(text);
}

// Their texts are in Python, where adapters need them too.

void PythonEnv::refuse_result(const char* call, nb::handle result) {
  raise("EnvError", text_of(nb::module_::import_("stepmill.envs.results").attr("wrong_result")(call, result)));
}

// Throws the pending TypeError of `reset`. If the env's does not take the arguments that Gymnasium's has, it says so.
void PythonEnv::refuse_arguments() const {
  nb::python_error error;
  const nb::object text = nb::module_::import_("stepmill.envs.results").attr("wrong_reset")(env_);
  if (text.is_none()) throw error;
  nb::raise_from(error, PyExc_TypeError, "%s", text_of(text).c_str());
}

void PythonEnv::reset(Rng&, const Options& options) {
  inside_ = kind_->same_step && std::exchange(ending_, false);
  if (inside_ && kind_->reset_after_end && !reset_.is_there()) kind_->reset_after_end(id_);
  attempt("reset", [&] {
    if (inside_ && kind_->may_suspend) keep_end();
    const nb::object result = result_of(reset_, [&] { return call_reset(options); });
    if (!result.is_valid()) return;
    if (!PyTuple_Check(result.ptr()) || PyTuple_GET_SIZE(result.ptr()) != 2) refuse_result("reset", result);
    nb::object info = nb::borrow(PyTuple_GET_ITEM(result.ptr(), 1));
    check_info(info);
    if (std::exchange(inside_, false)) {  // what the step returned becomes the final info
      note_.final_info = std::move(note_.info);
      note_.final_objects = std::move(note_.objects);
    } else {
      note_ = Note{};
    }
    if (!is_nothing(info)) note_.info = std::move(info);
    else note_.info = nb::object();
    info_ = note_.info;
    read_presence();
    observation_ = nb::borrow(PyTuple_GET_ITEM(result.ptr(), 0));
    options_ = nb::object();
    elapsed_ = 0;
  });
}

// The reset that is awaited may overwrite what the step returned, which is read once more afterwards.
void PythonEnv::keep_end() {
  if (reset_.is_there()) {
    note_.objects = stepped_.objects;
  } else {
    stepped_.value = kind_->snapshot(stepped_.value);
    stepped_.objects = note_.objects;
  }
}

nb::object PythonEnv::call_reset(const Options& options) {
  tell_end();
  if (before_reset_.is_valid() && !before_reset_.is_none()) before_reset_();
  before_reset_ = nb::object();
  nb::object seed = nb::none();
  if (const auto given = options.seed()) seed = owned(PyLong_FromUnsignedLongLong(*given));
  nb::object extra = options_.is_valid() ? options_ : nb::none();
  PyObject* arguments[] = {env_.ptr(), seed.ptr(), extra.ptr()};
  PyObject* made = PyObject_VectorcallMethod(names().reset, arguments, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                             names().reset_arguments);
  if (!made && PyErr_ExceptionMatches(PyExc_TypeError)) refuse_arguments();
  return owned(made);
}

Outcome PythonEnv::step(const ActionRow& action, Rng&) {
  return attempt("step", [&] {
    const nb::object result = result_of(stepped_, [&] {
      nb::object given = build_action(action);
      action_objects_ = nb::object();  // they belong only to this action: the next one may have none
      return owned(PyObject_CallMethodOneArg(env_.ptr(), names().step, given.ptr()));
    });
    if (!result.is_valid()) return Outcome{};
    if (!PyTuple_Check(result.ptr()) || PyTuple_GET_SIZE(result.ptr()) != 5) refuse_result("step", result);
    PyObject* const* item = &PyTuple_GET_ITEM(result.ptr(), 0);
    Outcome outcome;
    outcome.reward = read_rewards(item[1]);
    const int terminated = PyObject_IsTrue(item[2]);
    const int truncated = terminated < 0 ? -1 : PyObject_IsTrue(item[3]);
    if (truncated < 0) throw nb::python_error();
    check_info(item[4]);
    read_presence();
    observation_ = nb::borrow(item[0]);
    elapsed_ = stepped_.elapsed + 1;
    outcome.terminated = terminated != 0;
    outcome.truncated = truncated != 0 || elapsed_ == limit_;
    ending_ = outcome.terminated || outcome.truncated;
    if (ending_ && !reset_.is_there()) tell_end();  // once: what has begun since belongs to the next episode
    note_ = Note{};
    if (!is_nothing(item[4])) {
      note_.info = nb::borrow(item[4]);
      // The reset that follows may overwrite what the step returned.
      if (kind_->same_step && ending_) note_.info = kind_->snapshot(note_.info);
    }
    info_ = note_.info;
    return outcome;
  });
}

// Stores the reward of each player, and returns that of the env: the sum, or the one that all players share.
double PythonEnv::read_rewards(nb::handle given) {
  const auto players = static_cast<std::size_t>(kind_->spec.max_num_players);
  const bool one_each = players > 1 && PyArray_Check(given.ptr());
  if (!one_each) {
    const double reward = PyFloat_AsDouble(given.ptr());
    if (reward == -1.0 && PyErr_Occurred()) {
      forget_error();
      raise("EnvError", "step: expected a number as reward, got " + describe_object(given));
    }
    rewards_.assign(players, reward);
    return reward;
  }
  nb::object array = nb::steal(PyArray_FROM_OTF(given.ptr(), NPY_FLOAT64, NPY_ARRAY_CARRAY_RO));
  if (!array.is_valid() || PyArray_SIZE(reinterpret_cast<PyArrayObject*>(array.ptr())) !=
                               static_cast<npy_intp>(players)) {
    forget_error();
    raise("EnvError", "step: expected " + std::to_string(players) + " rewards, one per player, got " +
                          describe_object(given));
  }
  const auto* from = data_of<const double>(array);
  rewards_.assign(from, from + players);
  return std::accumulate(rewards_.begin(), rewards_.end(), 0.0);
}

// Which players are here, if the env says so: a byte for each, of sm_player_flag.
void PythonEnv::read_presence() {
  if (!kind_->spec.players_vary) return;
  const auto players = static_cast<std::size_t>(kind_->spec.max_num_players);
  const nb::object given = owned(PyObject_GetAttr(env_.ptr(), names().presence));
  if (!PyBytes_Check(given.ptr()) || PyBytes_GET_SIZE(given.ptr()) != static_cast<Py_ssize_t>(players))
    raise("EnvError", "presence: expected " + std::to_string(players) + " bytes, one per player, got " +
                          describe_object(given));
  const auto* from = reinterpret_cast<const std::uint8_t*>(PyBytes_AS_STRING(given.ptr()));
  presence_.assign(from, from + players);
}

void PythonEnv::observe(const Row& row) {
  attempt(phase_, [&] {
    for (std::size_t i = 0; i < presence_.size(); ++i)
      row.set_presence(static_cast<int>(i), static_cast<Presence>(presence_[i]));
    for (std::size_t i = 0; i < rewards_.size(); ++i) row.set_reward(static_cast<int>(i), rewards_[i]);
    const auto to = [&](int leaf) { return row.observation<std::byte>(leaf); };
    const bool has_objects = !kind_->objects_of.is_none();
    if (!observation_.is_valid()) {  // the env has never returned an observation
      for (std::size_t i = 0; i < kind_->spec.observation.size(); ++i)
        std::memset(to(static_cast<int>(i)), 0,
                    static_cast<std::size_t>(kind_->observation[i].row_bytes()));
      return;
    }
    const auto write = [&](int leaf, nb::handle part, const std::string& path) {
      const std::string what = path.empty() ? path : "observation" + path;  // nearly always empty: nothing is built
      write_value(part, kind_->observation[static_cast<std::size_t>(leaf)], "ObservationError",
                  path.empty() ? "observation" : what.c_str(), to(leaf));
    };
    const auto refuse = [&](const std::string& path, const std::string& text) {
      raise("ObservationError", "observation" + path + " of env " + std::to_string(id_) + ": " + text);
    };
    kind_->observation_tree.take_apart(observation_, std::string(), false, write, refuse);
    if (!kind_->infos.empty() && note_.info.is_valid()) write_infos(row);
    if (has_objects) {
      note_.objects = kind_->objects_of(observation_);
      if (kind_->keep_last) last_objects_ = kind_->objects_of(observation_);
    }
  });
}

// Writes the infos that travel as arrays. The note keeps the others.
void PythonEnv::write_infos(const Row& row) {
  if (!PyDict_Check(note_.info.ptr())) return;  // another mapping: all of it stays in the note
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < kind_->infos.size(); ++i) {
    nb::object value = nb::borrow(PyDict_GetItemWithError(note_.info.ptr(), kind_->infos[i].key.ptr()));
    if (!value.is_valid()) {
      if (PyErr_Occurred()) throw nb::python_error();
      continue;
    }
    write_info(kind_->infos[i], value, row.info<std::byte>(static_cast<int>(i)));
    taken.push_back(i);
  }
  if (static_cast<Py_ssize_t>(taken.size()) == PyDict_Size(note_.info.ptr())) {
    note_.info = nb::object();
    return;
  }
  nb::object others = owned(PyDict_Copy(note_.info.ptr()));  // the dict is the env's own
  for (const std::size_t i : taken)
    if (PyDict_DelItem(others.ptr(), kind_->infos[i].key.ptr()) != 0) throw nb::python_error();
  note_.info = std::move(others);
}

void PythonEnv::write_info(const InfoInput& info, nb::handle value, std::byte* to) const {
  const Leaf& leaf = info.leaf;
  const auto put = [to](auto number) { std::memcpy(to, &number, sizeof(number)); };
  if (leaf.shape.empty()) {  // numbers of Python, quickly; what does not fit is refused below
    if (PyLong_CheckExact(value.ptr())) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
      if (!overflow && leaf.dtype == DType::kInt64) return put(static_cast<std::int64_t>(number));
      if (!overflow && leaf.dtype == DType::kInt32 && std::in_range<std::int32_t>(number))
        return put(static_cast<std::int32_t>(number));
    } else if (PyFloat_CheckExact(value.ptr())) {
      const double number = PyFloat_AS_DOUBLE(value.ptr());
      if (leaf.dtype == DType::kFloat64) return put(number);
      if (leaf.dtype == DType::kFloat32 && std::abs(number) < 0x1p100) return put(static_cast<float>(number));
    }
  }
  write_value(value, leaf, "EnvError", info.what.c_str(), to);
}

// Writes one value of the env, after checking its shape and type. Casts numbers if that cannot change them.
void PythonEnv::write_value(nb::handle value, const Leaf& leaf, const char* error, const char* what,
                            std::byte* to) const {
  LeafInput input{leaf, to, {}, 1};
  input.check_values = false;
  input.batched = false;
  input.error = error;
  input.what = what;
  input.env = id_;
  write_leaf(value, input);
}

void PythonEnv::replace(nb::object env) {
  clear_references();
  env_ = std::move(env);
  rewards_.clear();
  presence_.clear();
  elapsed_ = 0;
  ending_ = inside_ = false;
}

nb::object PythonEnv::memory() const {
  const nb::object seen = observation_.is_valid() ? nb::object(nb::make_tuple(observation_)) : nb::object(nb::make_tuple());
  return nb::make_tuple(elapsed_, seen, or_none(info_), or_none(options_), to_bytes(std::as_bytes(std::span(presence_))));
}

void PythonEnv::set_memory(nb::handle memory) {
  const nb::object seen = memory[1], info = memory[2], options = memory[3], presence = memory[4];
  elapsed_ = nb::cast<std::int32_t>(memory[0]);
  observation_ = nb::len(seen) == 0 ? nb::object() : nb::object(seen[0]);
  info_ = info.is_none() ? nb::object() : info;
  options_ = options.is_none() ? nb::object() : options;
  const auto* flags = reinterpret_cast<const std::uint8_t*>(bytes_of(presence).data());
  presence_.assign(flags, flags + bytes_of(presence).size());
  action_objects_ = failure_ = last_objects_ = nb::object();
  ending_ = inside_ = false;
  note_ = Note{};
  note_.info = info_;
}

Note PythonEnv::take_note() {
  Note note = std::move(note_);
  note_ = Note{};
  return note;
}

void PythonEnv::check_info(nb::handle info) {
  if (PyDict_Check(info.ptr())) return;
  if (PyMapping_Check(info.ptr()) && PyObject_HasAttrString(info.ptr(), "items")) return;
  PyErr_Format(PyExc_TypeError, "info: expected a dict, got a %s", Py_TYPE(info.ptr())->tp_name);
  throw nb::python_error();
}

// The action for `step`: scalars for Discrete spaces, otherwise copies of arrays, and objects as they were sent.
nb::object PythonEnv::build_action(const ActionRow& action) const {
  const auto array_leaf = [&](int index) -> PyObject* {
    const Leaf& leaf = kind_->action[static_cast<std::size_t>(index)];
    const auto* row = action.get<std::byte>(index);
    PyArray_Descr* type = PyArray_DescrFromType(numpy_type(leaf.dtype));
    if (leaf.kind == LeafKind::kDiscrete) {
      PyObject* scalar = PyArray_Scalar(const_cast<std::byte*>(row), type, nullptr);
      Py_DECREF(type);
      return scalar;
    }
    npy_intp shape[NPY_MAXDIMS];
    std::copy(leaf.shape.begin(), leaf.shape.end(), shape);
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, type, static_cast<int>(leaf.shape.size()), shape, nullptr,
                                           nullptr, 0, nullptr);
    if (array)
      std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)), row,
                  static_cast<std::size_t>(leaf.row_bytes()));
    return array;
  };
  const auto object_leaf = [&](int index) -> PyObject* {
    if (!action_objects_.is_valid() || action_objects_.is_none()) Py_RETURN_NONE;
    return PySequence_GetItem(action_objects_.ptr(), index);
  };
  return owned(kind_->action_tree.build(array_leaf, object_leaf));
}

PythonEnvs::PythonEnvs(std::shared_ptr<PythonKind> kind, nb::handle envs, nb::handle limits, std::int32_t first_id)
    : kind_(std::move(kind)), first_id_(first_id), count_(static_cast<std::int32_t>(nb::len(envs))) {
  const std::int32_t count = count_;
  auto stepper = std::make_unique<Stepper<PythonEnv>>(count);
  for (std::int32_t i = 0; i < count; ++i) {
    const nb::object limit = limits[i];
    stepper->emplace(i, kind_, first_id + i, nb::object(envs[i]),
                     limit.is_none() ? 0 : nb::cast<std::int32_t>(limit));
  }
  stepper_ = stepper.get();
  set_ = std::make_unique<EnvSet>(python_table(), stepper.release(), first_id);
}

// ---- the garbage collector ---------------------------------------------------------------------

int PythonEnv::traverse(visitproc visit, void* arg) const {
  for (const nb::object* one : {&env_, &options_, &action_objects_, &failure_, &before_reset_, &awaited_, &stepped_.value,
                                &stepped_.error, &stepped_.objects, &reset_.value, &reset_.error, &observation_, &info_,
                                &last_objects_, &note_.info, &note_.final_info, &note_.objects, &note_.final_objects, &note_.error})
    Py_VISIT(one->ptr());
  return 0;
}

void PythonEnv::clear_references() {
  for (nb::object* one :
       {&env_, &options_, &action_objects_, &failure_, &before_reset_, &awaited_, &observation_, &info_, &last_objects_})
    *one = nb::object();
  forget_answers();
  note_ = Note{};
}

int PythonEnvs::traverse(visitproc visit, void* arg) const {
  Py_VISIT(kind_->snapshot.ptr());
  Py_VISIT(kind_->objects_of.ptr());
  Py_VISIT(kind_->interrupt.ptr());
  Py_VISIT(kind_->await_now.ptr());
  Py_VISIT(kind_->episode_over.ptr());
  for (std::int32_t i = 0; i < count_; ++i)
    if (const int stop = stepper_->env(i).traverse(visit, arg)) return stop;
  return 0;
}

void PythonEnvs::clear_references() {
  for (std::int32_t i = 0; i < count_; ++i) stepper_->env(i).clear_references();
}

}  // namespace stepmill
