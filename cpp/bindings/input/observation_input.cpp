#include "bindings/python/numpy_api.h"

#include "bindings/input/observation_input.h"

#include "bindings/input/array_input.h"
#include "bindings/python/errors.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// The env whose observation is being written: for messages.
thread_local int owner_env = 0;

}  // namespace

void ObservationInput::visit(const TreeNode& node, nb::handle value, int env, const std::string& path,
                             const Target& to) const {
  const auto reject = [&](const std::string& expected) {
    raise("ObservationError", "observation" + path + " of env " + std::to_string(env) + ": expected " +
                                  expected + ", got " + describe_object(value));
  };
  if (node.is_leaf()) {
    if (node.leaf() < 0) return;  // an object leaf, which the engine does not handle
    const std::string name = "observation" + path;
    const std::int32_t rows[1] = {0};
    LeafInput input{leaves_[static_cast<std::size_t>(node.leaf())], to(node.leaf()), rows, 1};
    input.check_values = false;
    input.batched = false;
    input.error = "ObservationError";
    input.what = name.c_str();
    owner_env = env;
    input.owner = [](std::int64_t) { return "env " + std::to_string(owner_env); };
    write_leaf(value, input);
    return;
  }
  const auto& children = node.children();
  if (node.is_dict()) {
    for (std::size_t i = 0; i < children.size(); ++i) {
      nb::object child;  // a reference of our own, since user code that runs later may change the dict
      if (PyDict_Check(value.ptr())) child = nb::borrow(PyDict_GetItemWithError(value.ptr(), node.keys()[i].ptr()));
      if (!child.is_valid()) forget_error();
      const std::string name = text_of(nb::repr(node.keys()[i]));
      if (!child.is_valid()) reject("a dict with the key " + name);
      visit(children[i], child, env, path + "[" + name + "]", to);
    }
    return;
  }
  nb::object items = nb::steal(PySequence_Tuple(value.ptr()));  // a copy: a list may change while we read it
  if (!items.is_valid() || PyTuple_GET_SIZE(items.ptr()) != static_cast<Py_ssize_t>(children.size())) {
    forget_error();
    reject("a tuple of " + std::to_string(children.size()) + " parts");
  }
  for (std::size_t i = 0; i < children.size(); ++i)
    visit(children[i], PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)), env,
          path + "[" + std::to_string(i) + "]", to);
}

}  // namespace stepmill
