#include "bindings/tensor_input.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// torch.Tensor; null as long as nobody has imported torch, and so nothing is a tensor.
PyTypeObject* tensor_type() {
  static PyTypeObject* type = nullptr;
  if (type) return type;
  PyObject* torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
  PyObject* found = torch ? PyObject_GetAttrString(torch, "Tensor") : nullptr;
  if (found && PyType_Check(found))
    type = reinterpret_cast<PyTypeObject*>(found);  // kept for as long as the process lives
  else
    Py_XDECREF(found);
  PyErr_Clear();  // torch is being imported at this moment
  return type;
}

// `tensor.numpy(force=True)`: detached, and copied from where it is.
nb::object to_numpy(nb::handle tensor) {
  static PyObject* const name = PyUnicode_InternFromString("numpy");
  static PyObject* const keywords = Py_BuildValue("(s)", "force");
  PyObject* arguments[] = {tensor.ptr(), Py_True};
  return nb::steal(PyObject_VectorcallMethod(name, arguments, 1, keywords));
}

}  // namespace

nb::object without_torch(nb::handle value) {
  PyTypeObject* type = tensor_type();
  if (!type || !PyType_IsSubtype(Py_TYPE(value.ptr()), type)) return nb::borrow(value);
  nb::object array = to_numpy(value);
  if (array.is_valid() || !PyErr_ExceptionMatches(PyExc_TypeError)) return array;
  // numpy has no such type. Complex numbers would lose a part of themselves.
  nb::python_error unknown_type;
  if (!nb::cast<bool>(value.attr("is_floating_point")())) {
    unknown_type.restore();
    return {};
  }
  return to_numpy(value.attr("float")());
}

}  // namespace stepmill
