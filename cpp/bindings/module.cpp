// stepmill._native: the module. Nothing here is public; stepmill/hosts builds engines and their hosts from it.
#define STEPMILL_IMPORTS_NUMPY
#include "bindings/python/numpy_api.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>

#include "bindings/output/atari_frames.h"
#include "bindings/input/action_reader.h"
#include "bindings/input/config_input.h"
#include "bindings/python/bytes.h"
#include "bindings/python/crash_note.h"
#include "bindings/python/direct_calls.h"
#include "bindings/python/errors.h"
#include "bindings/python/exit.h"
#include "bindings/engine.h"
#include "bindings/engine_parcels.h"
#include "bindings/engine_checkpoint.h"
#include "bindings/engine_sessions.h"
#include "bindings/engine_states.h"
#include "bindings/engine_tap.h"
#include "bindings/gpu/gpu_object.h"
#include "bindings/hosts/inline_host.h"
#include "bindings/hosts/native_host.h"
#include "bindings/hosts/process_host.h"
#include "bindings/hosts/remote_host.h"
#include "bindings/output/single_rows.h"
#include "bindings/input/tensor_input.h"
#include "bindings/output/tensor_maker.h"
#include "bindings/python/values.h"
#include "bindings/xla/handlers.h"
#include "bindings/hosts/worker_object.h"
#include "core/env_libraries.h"
#include "core/local_pool.h"
#include "core/memory/wait.h"
#include "core/process/fork_aside.h"
#include "envs/mujoco/library.h"
#include "envs/numpy/float32.h"
#include "envs/numpy/sums.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stepmill {
namespace {

using Seeds = std::vector<std::uint64_t>;  // one per env

bool import_numpy() {
  import_array1(false);
  return true;
}

// ---- constructors: Python calls them with keywords; they build the object in memory from Python ----

template <class T>
T get(const nb::kwargs& given, const char* name) {
  return nb::cast<T>(given[name]);
}

PoolOptions read_pool_options(const nb::kwargs& given) {
  PoolOptions options;
  options.table = {get<int>(given, "num_envs"), get<int>(given, "max_episode_steps"),
                   static_cast<sm_autoreset>(get<int>(given, "autoreset")), get<bool>(given, "reward_is_float32"),
                   get<bool>(given, "keep_last_observation")};
  options.batch_size = get<int>(given, "batch_size");
  options.as_ready = get<bool>(given, "as_ready");
  options.slow_ns = nanoseconds_of(get<double>(given, "slow_after"));
  options.label = {get<std::string>(given, "name"), get<std::string>(given, "shown_backend"),
                   get<std::string>(given, "user")};
  return options;
}

PythonEnvs read_envs(const nb::kwargs& given, const EnvSpec& spec, sm_autoreset autoreset, bool keep_last,
                     std::int32_t first_env) {
  auto kind = std::make_shared<PythonKind>(spec, TreeNode(given["observation_tree"]), TreeNode(given["action_tree"]));
  kind->snapshot = given["snapshot"];
  kind->objects_of = given["objects_of"];
  kind->same_step = autoreset == SM_SAME_STEP;
  kind->keep_last = keep_last;
  if (given.contains("await_now")) {
    kind->await_now = given["await_now"];
    kind->episode_over = given["episode_over"];
  }
  return PythonEnvs(std::move(kind), given["envs"], given["limits"], first_env);
}

// The spec of a pool, described by Python or by the env class.
EnvSpec read_any_spec(const nb::kwargs& given) {
  nb::object env_class = given["env_class"];
  if (env_class.is_none()) return read_spec(given["spec"]);
  const sm_env_table& table = *find_table(env_class);
  return read_native_spec(table, read_config(table, given["configs"][0]), read_simulator(given["sizes"]));
}

// The table of native envs; null for Python envs.
const sm_env_table* read_table(const nb::kwargs& given) {
  nb::object env_class = given["env_class"];
  return env_class.is_none() ? nullptr : find_table(env_class);
}

void make_native_host(NativeHost* self, nb::kwargs given) {
  PoolOptions options = read_pool_options(given);
  options.num_threads = get<int>(given, "num_threads");
  options.affinity_offset = get<int>(given, "affinity_offset");
  const sm_env_table& table = *read_table(given);
  nb::object simulators = given["simulators"];
  auto errors = std::make_shared<CallbackErrors>();
  if (!simulators.is_none()) {
    options.after_fault = [errors](std::int32_t env) { errors->keep(env); };
    static const bool once = [] {  // before the first thread calls it
      MujocoLibrary::surround_callbacks({&CallbackErrors::enter, &CallbackErrors::leave});
      return true;
    }();
    (void)once;
  }
  auto envs = build_envs(table, read_runs(table, given["configs"], simulators));
  new (self) NativeHost(table, std::move(envs), read_any_spec(given), options, std::move(simulators),
                         std::move(errors));
}

void make_inline_host(InlineHost* self, nb::kwargs given) {
  PoolOptions options = read_pool_options(given);
  options.num_threads = 0;
  EnvSpec spec = read_any_spec(given);
  PythonEnvs envs = read_envs(given, spec, options.table.autoreset, options.table.keep_last_observation, 0);
  new (self) InlineHost(std::move(envs), std::move(spec), options, given["check_usable"]);
}

void make_process_host(ProcessHost* self, nb::kwargs given) {
  const PoolOptions options = read_pool_options(given);
  const auto limit = [&](const char* name) { return nanoseconds_of(get<double>(given, name)); };
  const auto first_envs = get<std::vector<std::int32_t>>(given, "first_envs");
  const ProcessOptions process{static_cast<std::int32_t>(first_envs.size()), options.table.keep_last_observation,
                               get<int>(given, "most_running"), get<double>(given, "grace") > 0};
  const Deadlines deadlines{limit("step_timeout"), limit("reset_timeout"), options.slow_ns, limit("grace")};
  auto pool = std::make_unique<ProcessPool>(read_any_spec(given), options, process, deadlines,
                                            first_envs, get<Seeds>(given, "seeds"), get<int>(given, "obituaries"));
  new (self) ProcessHost(std::move(pool), read_table(given));
}

void make_remote_host(RemoteHost* self, nb::kwargs given) {
  auto pool = std::make_unique<RemotePool>(read_any_spec(given), read_pool_options(given),
                                           get<std::vector<std::int32_t>>(given, "first_envs"),
                                           get<Seeds>(given, "seeds"));
  new (self) RemoteHost(std::move(pool), read_table(given));
}

void make_worker(WorkerObject* self, nb::kwargs given) {
  WorkerObject::Arguments a;
  a.arena = get<int>(given, "arena");
  a.outbox = get<int>(given, "outbox");
  a.rows_event = get<int>(given, "rows_event");
  a.post = {get<int>(given, "worker"), get<unsigned>(given, "incarnation"), get<int>(given, "first_env"),
            get<int>(given, "env_count")};
  a.spec = read_any_spec(given);
  a.plan = value_in<ProcessPlan>(given["plan"]);
  a.read_mail = given["read_mail"];
  a.write_note = given["write_note"];
  a.answer = given["answer"];
  a.loop = given["loop"];
  if (const sm_env_table* table = read_table(given)) {
    a.simulators = given["simulators"];
    a.native = build_envs(*table, read_runs(*table, given["configs"], a.simulators), a.post.first_env);
    a.is_loaded = find_loaded_env(get<std::string>(given, "env_class")) != nullptr;
  } else {
    a.python.emplace(read_envs(given, a.spec, a.plan.table.autoreset, a.plan.process.keep_last_observation,
                               a.post.first_env));
  }
  new (self) WorkerObject(std::move(a));
}

int fork_aside_with_python() {
  PyOS_BeforeFork();
  int pid = -1, error = 0;
  try {
    pid = fork_aside();
  } catch (const std::system_error& failed) {
    error = failed.code().value();
  }
  pid == 0 ? PyOS_AfterFork_Child() : PyOS_AfterFork_Parent();
  if (error != 0) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
  return pid;
}

// np.sin or np.cos of a float32 array, computed by one of our routines: for the self-test at import.
nb::object float32_trig(int kind, bool cosine, nb::handle values) {
  nb::object in = owned(PyArray_FROM_OTF(values.ptr(), NPY_FLOAT32, NPY_ARRAY_CARRAY_RO));
  nb::object out = owned(PyArray_NewLikeArray(reinterpret_cast<PyArrayObject*>(in.ptr()), NPY_CORDER, nullptr, 0));
  const auto routine = static_cast<Float32Trig>(kind);
  for (npy_intp i = 0; i < PyArray_SIZE(reinterpret_cast<PyArrayObject*>(in.ptr())); ++i) {
    const float value = data_of<float>(in)[i];
    data_of<float>(out)[i] = cosine ? float32_cos(routine, value) : float32_sin(routine, value);
  }
  return out;
}

double dot_of(bool fused, const std::vector<double>& x, const std::vector<double>& y) {
  return sum_of_products(fused, x.data(), 1, y.data(), 1, static_cast<std::int64_t>(std::min(x.size(), y.size())));
}

// An env of a pool may refer to the pool, so the garbage collector has to traverse both.
template <class T>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<T>(self)->traverse(visit, arg) : 0;
}

template <class T>
int clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<T>(self)->clear_references();
  return 0;
}

template <class T>
PyType_Slot collected[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<T>)},
                           {Py_tp_clear, reinterpret_cast<void*>(clear<T>)},
                           {0, nullptr}};

void refuse_copy(nb::handle, nb::handle) {
  raise("CopyError", "a pool cannot be copied or pickled: its threads, processes and envs exist once. Make another");
}

}  // namespace

NB_MODULE(_native, m) {
  if (!import_numpy()) throw nb::python_error();
  // The user need not care that a daemon thread still refers to a pool when the program ends. Our tests check for
  // leaks.
  nb::set_leak_warnings(std::getenv("STEPMILL_LEAK_WARNINGS") != nullptr);
  translate_exceptions();
  register_owner_type(m);
  register_direct_calls(m);
  // Made now, before any thread: after a fork while a thread made it, the child would wait for that thread forever.
  SpinBudget::instance();

  m.def("default_config", &default_config_of, "env_class"_a, "Configuration keys with their defaults.");
  m.def("load_env_library", &load_env_library, "name"_a, "path"_a,
        "Loads a library of an env class, which has that name from now on.");
  m.def("add_foreign_env", [](const std::string& name, std::uintptr_t functions) {
          add_foreign_env(name, *reinterpret_cast<const stepmill_env*>(functions));
        }, "name"_a, "functions"_a, "Keeps an env class of C functions, of which this is the address, under a name.");
  m.def("describe", &describe_class, "env_class"_a, "config"_a, "simulator"_a.none(),
        "Leaves and trees of an env, without building it.");
  m.attr("FLOAT32_TRIG_COUNT") = kFloat32TrigCount;
  m.def("float32_trig", &float32_trig, "kind"_a, "cosine"_a, "values"_a,
        "sin or cos of a float32 array by one of the routines that numpy may use.");
  m.def("sum_of_products", &dot_of, "fused"_a, "x"_a, "y"_a,
        "The sum of the products of two float64 arrays, as numpy may compute it.");
  m.def("check_mujoco", [](const std::string& bindings) { return MujocoLibrary::of(bindings).file(); }, "bindings"_a,
        "Raises if the MuJoCo of these bindings cannot be called; otherwise the file of its functions.");
  m.def("listen_to_mujoco", [](const std::string& bindings) { MujocoLibrary::of(bindings).listen(); }, "bindings"_a,
        "From now on keeps what MuJoCo warns of on this thread, until heard_from_mujoco returns it.");
  m.def("heard_from_mujoco", &MujocoLibrary::heard);
  m.def("match_numpy", [](int trig, bool keep_float32) {
          select_float32_trig(static_cast<Float32Trig>(trig));
          select_scalar_promotion(keep_float32 ? ScalarPromotion::kKeepFloat32 : ScalarPromotion::kToFloat64);
        }, "float32_trig"_a, "keep_float32"_a, "Makes native envs compute as the installed numpy does.");
  m.def("begin_exit", &begin_exit, "From now on, a call from a thread other than this one ends that thread.");
  m.def("available_cores", &available_cores, "Cores that this process may use, within its cgroup quota.");

  m.def("without_torch", [](nb::handle value) { return owned(without_torch(value).release().ptr()); }, "value"_a.none(),
        "A torch tensor as an array, wherever it is; anything else as it is.");
  m.def("own_rows", &own_rows, "places"_a, "An array for each pair of a batch and a row, with its own memory.");
  m.def("stack_alike", &stack_alike, "arrays"_a, "Stacks arrays of the same type and shape; None if they differ.");
  m.def("make_timesteps", &make_timesteps, "type"_a, "observations"_a, "rewards"_a, "terminated"_a,
        "truncated"_a, "One tuple (observation, reward, done, {}) of the type per row, and the rows that are done.");

  register_gpu(m);
  nb::class_<TensorMaker>(m, "TensorMaker")
      .def(nb::init<nb::handle>(), "api"_a)
      .def("convert", &TensorMaker::convert, "arrays"_a);

  nb::class_<Engine>(m, "Engine", nb::is_weak_referenceable(), nb::type_slots(collected<Engine>))
      .def(nb::init<nb::object, nb::handle, nb::handle, bool, int, const Seeds&>(), "host"_a, "observation_tree"_a,
           "action_tree"_a, "has_object_actions"_a, "bounds"_a, "seeds"_a)
      .def("send", &Engine::send, "action"_a.none(), "env_id"_a = nb::none(), "objects"_a = nb::none())
      .def("recv", &Engine::recv, "timeout"_a = nb::none(), "at_least"_a = nb::none())
      .def("recv_some", &Engine::recv_some, "enough"_a, "at_least"_a, "timeout"_a.none(),
           "steps_only"_a = false)
      .def("count_elsewhere", &Engine::count_elsewhere, "steps"_a, "episodes"_a, "failures"_a)
      .def_prop_ro("rows_received", &Engine::rows_received)
      .def("step_all", &Engine::step_all, "action"_a.none())
      .def("step", &Engine::step, "actions"_a.none(), "env_id"_a = nb::none())
      .def("step", &Engine::step, "action"_a.none(), "env_id"_a = nb::none())  // as the gym and dm views call it
      .def("reset", &Engine::reset, "env_id"_a.none(), "seeds"_a.none(), "options"_a.none(),
           "mask"_a = nb::none())
      .def("send_reset", &Engine::send_reset, "env_id"_a.none(), "seeds"_a.none(), "options"_a.none(),
           "preparation"_a = nb::none())
      .def("show_as", &Engine::show_as, "step"_a.none(), "reset"_a.none(), "players"_a = false)
      .def("lock_pages", &Engine::lock_pages, "gpu"_a)
      .def("check_unused", &Engine::check_unused, "what"_a)
      .def("record_order", &Engine::record_order, "file"_a, "offset"_a, "wide"_a, "name"_a)
      .def("replay_order", &Engine::replay_order, "file"_a, "offset"_a, "wide"_a, "name"_a)
      .def("close", &Engine::close)
      .def("__reduce_ex__", &refuse_copy)
      .def("check_usable", &Engine::check_usable)
      .def("use", &Engine::use, "function"_a, "args"_a)
      .def("plainly", &Engine::plainly, "function"_a, "args"_a)
      .def("wait_until_left", &Engine::wait_until_left, "most"_a)
      .def_prop_ro("closed", &Engine::closed)
      .def_prop_ro("in_flight_count", &Engine::in_flight_count)
      .def_prop_ro("in_flight_ids", &Engine::in_flight_ids)
      .def("seeds", &Engine::seeds, "env_ids"_a)
      .def_prop_ro("host", &Engine::host);

  nb::class_<Host>(m, "Host")
      .def("__reduce_ex__", &refuse_copy)
      .def_prop_ro("forked", &Host::forked)
      .def_prop_ro("has_ended", &Host::has_ended)
      .def_prop_ro("runs_beside_the_caller", &Host::runs_beside_the_caller)
      .def("serve_sessions", [](Host&, nb::handle) {}, "event"_a.none())  // those that have to know override it
      .def("ask_to_stop", &Host::ask_to_stop)
      .def("wait_stopped", &Host::wait_stopped, "most"_a)
      .def("close", &Host::close);
  nb::class_<NativeHost, Host>(m, "NativeHost")
      .def("__init__", &make_native_host)
      .def("random_states", &NativeHost::random_states, "env_ids"_a)
      .def("simulator", &NativeHost::simulator, "env"_a)
      .def("connect", &NativeHost::connect, "env"_a)
      .def("check_idle", &NativeHost::check_all_idle, "env_ids"_a, "what"_a)
      .def("pictures", &NativeHost::pictures, "env_ids"_a)
      .def_prop_ro("can_save", &NativeHost::can_save)
      .def("save_envs", &NativeHost::save_envs, "env_ids"_a, "by"_a.none())
      .def("load_envs", &NativeHost::load_envs, "env_ids"_a, "states"_a, "former"_a)
      .def("put_back", &NativeHost::put_back, "env_ids"_a, "former"_a);
  nb::class_<InlineHost, Host>(m, "InlineHost", nb::type_slots(collected<InlineHost>))
      .def("__init__", &make_inline_host)
      .def("replace", &InlineHost::replace, "env"_a, "by"_a)
      .def("fail_next", &InlineHost::fail_next, "env"_a, "error"_a)
      .def("before_reset", &InlineHost::before_reset, "env"_a, "function"_a.none())
      .def("memory", &InlineHost::memory, "env"_a)
      .def("set_memory", &InlineHost::set_memory, "env"_a, "memory"_a);
  nb::class_<ProcessHost, Host>(m, "ProcessHost")
      .def("__init__", &make_process_host)
      .def_prop_ro("arena", &ProcessHost::arena_descriptor)
      .def_prop_ro("rows_event", &ProcessHost::rows_event_descriptor)
      .def("plan", &ProcessHost::plan)
      .def("bell", &ProcessHost::bell_descriptor, "worker"_a)
      .def("admit", &ProcessHost::admit, "worker"_a, "incarnation"_a, "pid"_a, "pidfd"_a, "stack"_a, "outbox"_a,
           "start_timeout"_a)
      .def("to_restart", &ProcessHost::to_restart)
      .def("restart_failed", &ProcessHost::restart_failed, "worker"_a, "incarnation"_a, "why"_a)
      .def("next_incarnation", &ProcessHost::next_incarnation, "worker"_a)
      .def("name_successor", &ProcessHost::name_successor, "worker"_a, "incarnation"_a, "pid"_a, "pidfd"_a, "stack"_a,
           "outbox"_a)
      .def("drop_successors", &ProcessHost::drop_successors)
      .def("install_successors", &ProcessHost::install_successors)
      .def("ask", &ProcessHost::ask, "env_ids"_a, "questions"_a)
      .def("post", &ProcessHost::post, "env_id"_a, "question"_a)
      .def("take_posted", &ProcessHost::take_posted)
      .def("at_rest", &ProcessHost::at_rest, "env"_a)
      .def_prop_ro("can_save", &ProcessHost::can_save);

  nb::class_<RemoteHost, Host>(m, "RemoteHost")
      .def("__init__", &make_remote_host)
      .def("waiting", &RemoteHost::waiting, "group"_a)
      .def("away", &RemoteHost::away, "group"_a)
      .def("pack", &RemoteHost::pack, "group"_a, "most"_a, "spare"_a)
      .def("unpack", &RemoteHost::unpack, "group"_a, "answer"_a)
      .def("lose", &RemoteHost::lose, "group"_a, "why"_a, "kind"_a = "died")
      .def("lend", &RemoteHost::lend, "group"_a, "env_ids"_a)
      .def("take_back", &RemoteHost::take_back, "group"_a, "states"_a)
      .def("keep_last", &RemoteHost::keep_last, "env_ids"_a, "leaves"_a)
      .def("take_losses", &RemoteHost::take_losses, "env_ids"_a)
      .def_prop_ro("can_save", &RemoteHost::can_save);

  nb::class_<ParcelServer>(m, "ParcelServer")
      .def(nb::init<nb::object, nb::object, nb::object>(), "engine"_a, "read_mail"_a.none(), "write_note"_a.none())
      .def("exchange", &ParcelServer::exchange, "order"_a, "quick"_a, "patience"_a.none())
      .def("take_states", &ParcelServer::take_states, "states"_a)
      .def("give_states", &ParcelServer::give_states, "env_ids"_a);

  nb::class_<EngineStates>(m, "EngineStates")
      .def(nb::init<nb::object>(), "engine"_a)
      .def("save", &EngineStates::save, "env_id"_a.none(), "by"_a = nb::none())
      .def("restore", &EngineStates::restore, "buffer"_a, "bounds"_a, "env_id"_a.none(), "kept"_a = nb::none())
      .def("send_restore", &EngineStates::send_restore, "buffer"_a, "bounds"_a, "env_id"_a.none(),
           "kept"_a = nb::none());

  nb::class_<EngineCheckpoint>(m, "EngineCheckpoint")
      .def(nb::init<nb::object, nb::object, nb::object>(), "engine"_a, "write_note"_a.none(), "read_note"_a.none())
      .def("take", &EngineCheckpoint::take, "by"_a.none())
      .def("give", &EngineCheckpoint::give, "rest"_a, "on_its_way"_a.none());

  nb::class_<EngineSessions>(m, "EngineSessions", nb::type_slots(collected<EngineSessions>))
      .def(nb::init<nb::object>(), "engine"_a)
      .def("begin", &EngineSessions::begin, "owner"_a)
      .def("end", &EngineSessions::end)
      .def_prop_ro("has_begun", &EngineSessions::has_begun)
      .def_prop_ro("num_envs", &EngineSessions::num_envs)
      .def_prop_ro("event", &EngineSessions::event)
      .def("put_action", &EngineSessions::put_action, "env_id"_a, "action"_a.none(), "batch"_a = nb::none())
      .def("put_reset", &EngineSessions::put_reset, "env_id"_a, "seed"_a.none(), "options"_a.none())
      .def("is_asked", &EngineSessions::is_asked, "env_id"_a)
      .def("exchange", &EngineSessions::exchange, "rung"_a = false, "doubtful"_a = false)
      .def("watch", &EngineSessions::watch)
      .def("cancel", &EngineSessions::cancel, "env_id"_a);

  nb::class_<WorkerObject>(m, "Worker")
      .def("__init__", &make_worker)
      .def("run", &WorkerObject::run)
      .def("announce", &WorkerObject::announce)
      .def("rise", &WorkerObject::rise)
      .def("doze", &WorkerObject::doze)
      .def_prop_ro("told_to_stop", &WorkerObject::told_to_stop)
      .def("take", &WorkerObject::take)
      .def("cancelled", &WorkerObject::cancelled)
      .def("follow", &WorkerObject::follow, "env"_a, "coroutine"_a)
      .def_prop_ro("running", &WorkerObject::running)
      .def("replace", &WorkerObject::replace, "env"_a, "by"_a)
      .def("random_state", &WorkerObject::random_state, "env"_a)
      .def("connect", &WorkerObject::connect, "env"_a)
      .def("before_reset", &WorkerObject::before_reset, "env"_a, "function"_a.none())
      .def("picture", &WorkerObject::picture, "env"_a)
      .def("memory", &WorkerObject::memory, "env"_a)
      .def("set_memory", &WorkerObject::set_memory, "env"_a, "memory"_a)
      .def("save", &WorkerObject::save, "env"_a)
      .def("load", &WorkerObject::load, "env"_a, "state"_a)
      .def("keep", &WorkerObject::keep, "env"_a, "former"_a.none())
      .def("take_kept", &WorkerObject::take_kept, "env"_a);
  register_turn(m);
  register_atari_frames(m);
  register_action_reader(m);
  register_tap(m);
  register_xla(m);
  m.def("install_crash_note", &install_crash_note, "worker"_a,
        "Makes this process say which worker it is, and which env it ran, when it crashes.");
  m.def("set_crash_env", &set_crash_env, "env"_a, "The env whose code runs from now on; -1: none.");
  m.def("fork_aside", &fork_aside_with_python,
        "As os.fork, but the new process is a child of the subreaper above this one.");
  m.def("create_outbox", &Outbox::create, "A descriptor for what a worker sends besides arrays.");
}

}  // namespace stepmill
