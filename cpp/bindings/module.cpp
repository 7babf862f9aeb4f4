// stepmill._native: the module. Nothing here is public; stepmill/make.py builds pools from it.
#define STEPMILL_IMPORTS_NUMPY
#include "bindings/numpy_api.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings/config_input.h"
#include "bindings/errors.h"
#include "bindings/pool_object.h"
#include "core/wait.h"
#include "envs/classic/numpy_float32.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stepmill {
namespace {

bool import_numpy() {
  import_array1(false);
  return true;
}

PoolObject* make_pool(nb::object env_class, nb::list configs, nb::object spec, nb::object observation_tree,
                      nb::object action_tree, nb::list seeds, int num_envs, int batch_size, int num_threads,
                      int affinity_offset, int autoreset, int max_episode_steps, bool reward_is_float32,
                      bool keep_last_observation, int bounds, nb::object on_faults) {
  PoolObject::Arguments a;
  a.observation_tree = TreeNode(observation_tree);
  a.action_tree = TreeNode(action_tree);
  if (env_class.is_none()) {
    a.spec = read_spec(spec);
  } else {
    a.table = find_table(env_class);
    for (nb::handle config : configs) a.configs.push_back(read_config(*a.table, config));
    a.spec = read_native_spec(*a.table, a.configs.at(0));
  }
  a.options.table = {num_envs, max_episode_steps, static_cast<sm_autoreset>(autoreset), reward_is_float32,
                     keep_last_observation};
  a.options.batch_size = batch_size;
  a.options.num_threads = num_threads;
  a.options.affinity_offset = affinity_offset;
  a.bounds = static_cast<Bounds>(bounds);
  a.on_faults = std::move(on_faults);
  for (nb::handle seed : seeds) a.seeds.push_back(nb::cast<std::uint64_t>(seed));
  try {
    return new PoolObject(std::move(a));
  } catch (const BuildError& error) {
    nb::object type = nb::module_::import_("stepmill.errors").attr("EnvError");
    nb::object value = type(to_text(error.what()), "env_id"_a = error.env, "phase"_a = "constructor");
    PyErr_SetObject(type.ptr(), value.ptr());
    throw nb::python_error();
  }
}

// np.sin or np.cos of a float32 array, as one of our routines gives it: for the self-test at import.
nb::object float32_trig(int kind, bool cosine, nb::handle values) {
  nb::object in = nb::steal(PyArray_FROM_OTF(values.ptr(), NPY_FLOAT32, NPY_ARRAY_CARRAY_RO));
  if (!in.is_valid()) throw nb::python_error();
  nb::object out = nb::steal(PyArray_NewLikeArray(reinterpret_cast<PyArrayObject*>(in.ptr()), NPY_CORDER, nullptr, 0));
  if (!out.is_valid()) throw nb::python_error();
  const auto* from = static_cast<const float*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(in.ptr())));
  auto* to = static_cast<float*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(out.ptr())));
  const auto routine = static_cast<Float32Trig>(kind);
  for (npy_intp i = 0; i < PyArray_SIZE(reinterpret_cast<PyArrayObject*>(in.ptr())); ++i)
    to[i] = cosine ? float32_cos(routine, from[i]) : float32_sin(routine, from[i]);
  return out;
}

}  // namespace

NB_MODULE(_native, m) {
  if (!import_numpy()) throw nb::python_error();
  register_owner_type(m);
  // Now, before any thread: a fork while one made it would leave the child waiting for that thread.
  SpinBudget::instance();

  m.def("env_classes", &env_classes, "Names of the env classes compiled into this build.");
  m.def("default_config", &default_config_of, "env_class"_a, "Configuration keys with their defaults.");
  m.def("reset_options", &reset_options_of, "env_class"_a, "Names of the reset options.");
  m.def("describe", &describe_class, "env_class"_a, "config"_a,
        "Leaves and trees of an env, without building it.");
  m.attr("FLOAT32_TRIG_COUNT") = kFloat32TrigCount;
  m.def("float32_trig", &float32_trig, "kind"_a, "cosine"_a, "values"_a,
        "sin or cos of a float32 array by one of the routines that numpy may use.");
  m.def("match_numpy", [](int trig, bool keep_float32) {
          select_float32_trig(static_cast<Float32Trig>(trig));
          select_scalar_promotion(keep_float32 ? ScalarPromotion::kKeepFloat32 : ScalarPromotion::kToFloat64);
        }, "float32_trig"_a, "keep_float32"_a, "Makes native envs compute as the installed numpy does.");
  m.def("available_cores", &available_cores, "Cores this process may use, cgroup quota included.");

  nb::class_<PoolObject>(m, "Pool", nb::is_weak_referenceable())
      .def_static("make", &make_pool, nb::kw_only(), "env_class"_a.none(), "configs"_a, "spec"_a.none(),
                  "observation_tree"_a, "action_tree"_a, "seeds"_a, "num_envs"_a, "batch_size"_a, "num_threads"_a,
                  "affinity_offset"_a, "autoreset"_a, "max_episode_steps"_a, "reward_is_float32"_a,
                  "keep_last_observation"_a, "bounds"_a, "on_faults"_a.none(), nb::rv_policy::take_ownership)
      .def("send", &PoolObject::send, "action"_a.none(), "env_id"_a = nb::none())
      .def("recv", &PoolObject::recv, "timeout"_a = nb::none())
      .def("step", &PoolObject::step, "actions"_a.none(), "env_id"_a = nb::none())
      .def("reset", &PoolObject::reset, "env_id"_a.none(), "seeds"_a.none(), "options"_a.none(),
           "mask"_a = nb::none())
      .def("send_reset", &PoolObject::send_reset, "env_id"_a.none(), "seeds"_a.none(), "options"_a.none())
      .def("close", &PoolObject::close)
      .def("check_usable", &PoolObject::check_usable)
      .def("stats", &PoolObject::stats)
      .def_prop_ro("closed", &PoolObject::closed)
      .def_prop_ro("is_native", &PoolObject::is_native)
      .def_prop_ro("in_flight_count", &PoolObject::in_flight_count)
      .def("next_env", &PoolObject::next_env)
      .def("action_of", &PoolObject::action_of, "env"_a)
      .def("check_observation", &PoolObject::check_observation, "env"_a, "observation"_a.none())
      .def("write_row", &PoolObject::write_row, "env"_a, "observation"_a.none(), "reward"_a, "terminated"_a,
           "truncated"_a, "elapsed"_a, "ended"_a, "episode_return"_a, "episode_length"_a, "needs_reset"_a,
           "final_observation"_a.none())
      .def("queue_external_reset", &PoolObject::queue_external_reset, "env_id"_a.none(), "gather"_a)
      .def("ready", &PoolObject::ready)
      .def("take_result", &PoolObject::take_result);
}

}  // namespace stepmill
