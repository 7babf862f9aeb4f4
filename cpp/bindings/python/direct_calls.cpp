#include "bindings/python/direct_calls.h"

#include <structmember.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>

namespace stepmill {
namespace {

// ---- bound calls -------------------------------------------------------------------------------

// `Bound(function, given, shown)`: a function and the first arguments of its calls. Like a bound method, and as fast as
// one of nanobind's, but Python can read its name, text and signature: they are those of `shown`.
struct Bound {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  vectorcallfunc call;  // of the function
  PyObject* given;      // a tuple
  PyObject* shown;
};

Bound* as_bound(PyObject* self) { return reinterpret_cast<Bound*>(self); }

PyObject* call_bound(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* names) {
  const Bound& bound = *as_bound(self);
  const std::size_t count = static_cast<std::size_t>(PyVectorcall_NARGS(flags));
  const std::size_t given = static_cast<std::size_t>(PyTuple_GET_SIZE(bound.given));
  if (given == 1 && (flags & PY_VECTORCALL_ARGUMENTS_OFFSET)) {  // the caller has left a place in front
    PyObject** const all = const_cast<PyObject**>(args) - 1;
    PyObject* const kept = all[0];
    all[0] = PyTuple_GET_ITEM(bound.given, 0);
    PyObject* const result = bound.call(bound.function, all, count + 1, names);
    all[0] = kept;
    return result;
  }
  const std::size_t total = given + count + (names ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0);
  std::array<PyObject*, 8> few;
  std::unique_ptr<PyObject*[]> many;
  PyObject** all = few.data();
  if (total > few.size()) {
    many.reset(new (std::nothrow) PyObject*[total]);
    if (!(all = many.get())) return PyErr_NoMemory();
  }
  std::copy_n(&PyTuple_GET_ITEM(bound.given, 0), given, all);
  std::copy_n(args, total - given, all + given);
  return bound.call(bound.function, all, given + count, names);
}

PyObject* new_bound(PyTypeObject* type, PyObject* args, PyObject* names) {
  PyObject *function, *given, *shown;
  if (names && PyDict_GET_SIZE(names) != 0) return PyErr_Format(PyExc_TypeError, "Bound: expected no keywords");
  if (!PyArg_ParseTuple(args, "OO!O:Bound", &function, &PyTuple_Type, &given, &shown)) return nullptr;
  const vectorcallfunc call = PyVectorcall_Function(function);
  if (!call) return PyErr_Format(PyExc_TypeError, "Bound: expected a function of C, got %R", function);
  PyObject* const self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  as_bound(self)->vectorcall = call_bound;
  as_bound(self)->call = call;
  as_bound(self)->function = Py_NewRef(function);
  as_bound(self)->given = Py_NewRef(given);
  as_bound(self)->shown = Py_NewRef(shown);
  return self;
}

int traverse_bound(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_bound(self)->function);
  Py_VISIT(as_bound(self)->given);
  Py_VISIT(as_bound(self)->shown);
  return 0;
}

// Takes what it is bound to: an empty tuple is left, so that a call from a finalizer finds an error and not a null.
int clear_bound(PyObject* self) {
  PyObject* const nothing = PyTuple_New(0);
  if (!nothing) return -1;
  Py_SETREF(as_bound(self)->given, nothing);
  return 0;
}

void delete_bound(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* const type = Py_TYPE(self);
  Py_CLEAR(as_bound(self)->function);
  Py_CLEAR(as_bound(self)->given);
  Py_CLEAR(as_bound(self)->shown);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* show_bound(PyObject* self) {
  PyObject* const name = PyObject_GetAttrString(as_bound(self)->shown, "__qualname__");
  if (!name) return nullptr;
  PyObject* const text = PyUnicode_FromFormat("<bound %U>", name);
  Py_DECREF(name);
  return text;
}

PyObject* read_shown(PyObject* self, void* name) {
  return PyObject_GetAttrString(as_bound(self)->shown, static_cast<const char*>(name));
}

// With a `__get__`, `inspect` and `help` take it for a routine. There is nothing left to bind.
PyObject* keep_bound(PyObject* self, PyObject*, PyObject*) { return Py_NewRef(self); }

constexpr PyGetSetDef read_from_shown(const char* name, const char* there) {
  return {name, read_shown, nullptr, nullptr, const_cast<char*>(there)};
}

PyGetSetDef bound_properties[] = {read_from_shown("__name__", "__name__"),
                                  read_from_shown("__qualname__", "__qualname__"),
                                  read_from_shown("__module__", "__module__"),
                                  read_from_shown("__doc__", "__doc__"),
                                  read_from_shown("__signature__", "bound_signature"),
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef bound_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Bound, vectorcall), READONLY, nullptr},
                               {nullptr, 0, 0, 0, nullptr}};

PyType_Slot bound_slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_bound)},
                             {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                             {Py_tp_repr, reinterpret_cast<void*>(show_bound)},
                             {Py_tp_traverse, reinterpret_cast<void*>(traverse_bound)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_bound)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(delete_bound)},
                             {Py_tp_descr_get, reinterpret_cast<void*>(keep_bound)},
                             {Py_tp_getset, bound_properties},
                             {Py_tp_members, bound_members},
                             {0, nullptr}};

PyType_Spec bound_type = {"stepmill._native.Bound", sizeof(Bound), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, bound_slots};

// ---- calls -------------------------------------------------------------------------------------

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
  PyObject* const type = PyType_FromSpec(&bound_type);
  if (!type || PyModule_AddObject(module.ptr(), "Bound", type) != 0) throw nanobind::python_error();
}

}  // namespace stepmill
