// What Python's stable ABI would cost: `CXXFLAGS="-include $PWD/benchmarks/stable_abi.h" pip wheel .` builds a module that
// counts references and reads tuples and lists by function calls, as that ABI makes it. docs/installing.md has the result.
// It is less than the whole cost: types, and calls of them, stay as they are.
#pragma once
#if __has_include(<Python.h>)  // the core is compiled without
#include <Python.h>

#undef Py_INCREF
#undef Py_DECREF
#undef Py_XINCREF
#undef Py_XDECREF
#undef Py_NewRef
#define Py_INCREF(object) Py_IncRef((PyObject*)(object))
#define Py_DECREF(object) Py_DecRef((PyObject*)(object))
#define Py_XINCREF(object) Py_IncRef((PyObject*)(object))
#define Py_XDECREF(object) Py_DecRef((PyObject*)(object))
#define Py_NewRef(object) _Py_NewRef((PyObject*)(object))

// Some of our code takes an item's address: it costs the call, and is given the address none the less.
inline PyObject** called_item(PyObject* tuple, Py_ssize_t index) {
  PyTuple_GetItem(tuple, index);
  return &((PyTupleObject*)tuple)->ob_item[index];
}

#undef PyTuple_GET_SIZE
#undef PyTuple_GET_ITEM
#undef PyTuple_SET_ITEM
#undef PyList_GET_SIZE
#undef PyList_GET_ITEM
#undef PyList_SET_ITEM
#define PyTuple_GET_SIZE(tuple) PyTuple_Size((PyObject*)(tuple))
#define PyTuple_GET_ITEM(tuple, index) (*called_item((PyObject*)(tuple), (index)))
#define PyTuple_SET_ITEM(tuple, index, item) ((void)PyTuple_SetItem((PyObject*)(tuple), (index), (item)))
#define PyList_GET_SIZE(list) PyList_Size((PyObject*)(list))
#define PyList_GET_ITEM(list, index) PyList_GetItem((PyObject*)(list), (index))
#define PyList_SET_ITEM(list, index, item) ((void)PyList_SetItem((PyObject*)(list), (index), (item)))
#endif
