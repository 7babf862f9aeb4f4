#include "bindings/python/numpy_api.h"

#include "bindings/input/action_reader.h"

#include <numeric>

#include "bindings/input/config_input.h"
#include "bindings/input/array_input.h"
#include "bindings/python/errors.h"
#include "bindings/python/values.h"

namespace nb = nanobind;

namespace stepmill {

// Only the action table of a pool, and which envs are in flight: nothing is ever started.
class ActionReader::Table final : public Pool {
 public:
  Table(EnvSpec spec, const PoolOptions& options) : Pool(std::move(spec), options, 1, 0) {}
  void work_or_wait(std::chrono::nanoseconds) override {}
  double step_cost_ns() const override { return 0.0; }

 private:
  void open_batch(std::uint32_t, Buffer&) override {}
  std::int32_t seal_batch(std::uint32_t) override { return 0; }
  void start(std::span<const std::int32_t>, bool, bool) override {}
  Row take_row(std::int32_t) override { std::abort(); }  // for rows that were put back: there are none
};

namespace {

PoolOptions options_of(int num_envs, bool is_disabled) {
  PoolOptions options;
  options.table.num_envs = options.batch_size = num_envs;
  options.table.autoreset = is_disabled ? SM_DISABLED : SM_NEXT_STEP;
  return options;
}

}  // namespace

ActionReader::ActionReader(int num_envs, bool is_disabled, nb::handle spec, nb::handle action_tree, int bounds)
    : table_(std::make_unique<Table>(read_spec(spec), options_of(num_envs, is_disabled))),
      players_(table_->spec(), num_envs),
      all_envs_(static_cast<std::size_t>(num_envs)),
      input_(*table_, players_, TreeNode(action_tree), static_cast<Bounds>(bounds)) {
  std::iota(all_envs_.begin(), all_envs_.end(), 0);
}

ActionReader::~ActionReader() = default;

nb::object ActionReader::ids_of(std::span<const std::int32_t> envs) const {
  if (std::equal(envs.begin(), envs.end(), all_envs_.begin(), all_envs_.end())) return nb::none();
  auto count = static_cast<npy_intp>(envs.size());
  nb::object ids = owned(PyArray_SimpleNew(1, &count, NPY_INT32));
  std::copy(envs.begin(), envs.end(), data_of<std::int32_t>(ids));
  return ids;
}

nb::object ActionReader::read(nb::handle action, nb::handle env_id) {
  return ids_of(input_.read(action, env_id, all_envs_));
}

nb::object ActionReader::read_envs(nb::handle env_id) {
  return env_id.is_none() ? nb::none() : ids_of(input_.read_envs(env_id));
}

nb::list ActionReader::rows(nb::handle self) const {
  nb::list out;
  for (std::size_t i = 0; i < table_->spec().action.size(); ++i) {
    const Leaf& leaf = table_->spec().action[i];
    std::vector<npy_intp> shape{static_cast<npy_intp>(all_envs_.size())};
    shape.insert(shape.end(), leaf.shape.begin(), leaf.shape.end());
    nb::object array = owned(PyArray_New(&PyArray_Type, static_cast<int>(shape.size()), shape.data(),
                                         numpy_type(leaf.dtype), nullptr, table_->table().action(static_cast<int>(i)), 0,
                                         NPY_ARRAY_CARRAY_RO, nullptr));
    Py_INCREF(self.ptr());
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()), self.ptr()) != 0) throw nb::python_error();
    out.append(array);
  }
  return out;
}

void ActionReader::set_in_flight(nb::handle env_ids, bool is_in_flight) {
  const auto set = [&](std::int32_t env) {
    if (table_->in_flight(env) != is_in_flight) table_->set_kept(env, is_in_flight);
  };
  if (env_ids.is_none())
    for (const std::int32_t env : all_envs_) set(env);
  else
    for (const std::int64_t env : read_ids(env_ids, "env_id").numbers) set(static_cast<std::int32_t>(env));
}

void ActionReader::set_over(nb::handle flags) {
  const auto* over = data_of<const bool>(nb::borrow(flags));
  for (const std::int32_t env : all_envs_)
    table_->table().state(env).phase = over[env] ? SM_ENDED : SM_LIVE;
}

void register_action_reader(nb::module_& m) {
  nb::class_<ActionReader>(m, "ActionReader")
      .def(nb::init<int, bool, nb::handle, nb::handle, int>(), nb::kw_only(), nb::arg("num_envs"), nb::arg("is_disabled"),
           nb::arg("spec"), nb::arg("action_tree"), nb::arg("bounds"))
      .def("read", &ActionReader::read, nb::arg("action").none(), nb::arg("env_id").none() = nb::none())
      .def("read_envs", &ActionReader::read_envs, nb::arg("env_id").none())
      .def("rows", [](nb::handle self) { return nb::cast<ActionReader&>(self).rows(self); })
      .def("set_in_flight", &ActionReader::set_in_flight, nb::arg("env_ids").none(), nb::arg("is_in_flight"))
      .def("set_over", &ActionReader::set_over);
}

}  // namespace stepmill
