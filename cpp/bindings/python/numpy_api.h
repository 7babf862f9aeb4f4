// numpy's C API, imported once by module.cpp. We make arrays through it because that is the fastest way: one object, no
// copy, no intermediate.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL stepmill_array_api
#ifndef STEPMILL_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>

#include "core/env/dtype.h"

namespace stepmill {

inline int numpy_type(DType type) {
  constexpr int types[kDTypeCount] = {NPY_BOOL,   NPY_INT8,   NPY_UINT8, NPY_INT16,
                                      NPY_UINT16, NPY_INT32,  NPY_UINT32, NPY_INT64,
                                      NPY_UINT64, NPY_FLOAT16, NPY_FLOAT32, NPY_FLOAT64};
  return types[static_cast<int>(type)];
}

// The elements of an array, which the caller knows to be of type T and contiguous.
template <class T>
T* data_of(const nanobind::object& array) {
  return static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}

}  // namespace stepmill
