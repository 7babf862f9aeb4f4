#include "bindings/direct_calls.h"

namespace stepmill {
namespace {

PyObject* call_prepared(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "call_prepared: expected a function, and its arguments");
    return nullptr;
  }
  PyObject* call = PyObject_Vectorcall(args[0], args + 1, static_cast<std::size_t>(count - 1), names);
  if (!call) return nullptr;
  PyObject* result = nullptr;
  if (PyTuple_Check(call) && PyTuple_GET_SIZE(call) == 2 && PyTuple_Check(PyTuple_GET_ITEM(call, 1))) {
    PyObject* given = PyTuple_GET_ITEM(call, 1);
    result = PyObject_Vectorcall(PyTuple_GET_ITEM(call, 0), &PyTuple_GET_ITEM(given, 0),
                                 static_cast<std::size_t>(PyTuple_GET_SIZE(given)), nullptr);
  } else {
    PyErr_SetString(PyExc_TypeError, "call_prepared: expected the first function to return (function, arguments)");
  }
  Py_DECREF(call);
  return result;
}

PyObject* call_into(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count < 3) {
    PyErr_SetString(PyExc_TypeError, "call_into: expected an object, a name and a function, and its arguments");
    return nullptr;
  }
  PyObject* result = PyObject_Vectorcall(args[2], args + 3, static_cast<std::size_t>(count - 3), nullptr);
  if (!result) return nullptr;
  const int failed = PyObject_SetAttr(args[0], args[1], result);
  Py_DECREF(result);
  if (failed) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"call_prepared", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_prepared)),
     METH_FASTCALL | METH_KEYWORDS,
     "call_prepared(prepare, *args, **kwargs): `function(*arguments)`, as returned by `prepare(*args, **kwargs)`."},
    {"call_into", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_into)), METH_FASTCALL,
     "call_into(owner, name, function, *args): `owner.name = function(*args)`, with nothing in between."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void register_direct_calls(nanobind::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), methods) != 0) throw nanobind::python_error();
}

}  // namespace stepmill
