#include "bindings/python/numpy_api.h"

#include "bindings/output/single_rows.h"

#include <algorithm>
#include <cstring>

#include "bindings/python/errors.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

// Whether its bytes are its values, one after another.
bool is_plain(PyArrayObject* array) {
  return PyArray_IS_C_CONTIGUOUS(array) && !PyDataType_REFCHK(PyArray_DESCR(array));
}

nb::object empty_array(PyArray_Descr* type, int axes, const npy_intp* shape) {
  Py_INCREF(type);  // the new array steals it
  return owned(PyArray_NewFromDescr(&PyArray_Type, type, axes, shape, nullptr, nullptr, 0, nullptr));
}

// Whether it is an array as the engine returns them: contiguous rows of numbers.
bool is_batch(PyObject* object) {
  return PyArray_CheckExact(object) && is_plain(as_array(object)) && PyArray_NDIM(as_array(object)) > 0;
}

// A row of a batch, with its own memory and this shape.
nb::object own_row(PyArrayObject* batch, npy_intp row, int axes, const npy_intp* shape) {
  nb::object out = empty_array(PyArray_DESCR(batch), axes, shape);
  const npy_intp bytes = PyArray_NBYTES(as_array(out.ptr()));
  std::memcpy(PyArray_DATA(as_array(out.ptr())), PyArray_BYTES(batch) + row * bytes, static_cast<std::size_t>(bytes));
  return out;
}

const npy_bool* flags_of(nb::handle flags, Py_ssize_t count) {
  if (!PyArray_CheckExact(flags.ptr()) || PyArray_TYPE(as_array(flags.ptr())) != NPY_BOOL ||
      !is_plain(as_array(flags.ptr())) || PyArray_SIZE(as_array(flags.ptr())) != count)
    raise("InputError", "expected an array of " + std::to_string(count) + " flags, got " + describe_object(flags));
  return static_cast<const npy_bool*>(PyArray_DATA(as_array(flags.ptr())));
}

bool are_alike(PyArrayObject* a, PyArrayObject* b) {
  return PyArray_EquivTypes(PyArray_DESCR(a), PyArray_DESCR(b)) && PyArray_SAMESHAPE(a, b);
}

}  // namespace

nb::object own_rows(nb::list places) {
  const Py_ssize_t count = PyList_GET_SIZE(places.ptr());
  nb::object rows = owned(PyList_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* place = PyList_GET_ITEM(places.ptr(), i);
    if (!PyTuple_CheckExact(place) || PyTuple_GET_SIZE(place) != 2)
      raise("InputError", "expected pairs of a batch and a row, got " + describe_object(place));
    PyObject* batch = PyTuple_GET_ITEM(place, 0);
    const Py_ssize_t row = PyLong_AsSsize_t(PyTuple_GET_ITEM(place, 1));
    if (row == -1 && PyErr_Occurred()) throw nb::python_error();
    if (!is_batch(batch) || row < 0 || row >= PyArray_DIM(as_array(batch), 0))
      raise("InputError", "expected an array with a row " + std::to_string(row) + ", got " + describe_object(batch));
    PyList_SET_ITEM(rows.ptr(), i, own_row(as_array(batch), row, PyArray_NDIM(as_array(batch)) - 1,
                                           PyArray_DIMS(as_array(batch)) + 1).release().ptr());
  }
  return rows;
}

nb::object stack_alike(nb::list arrays) {
  const Py_ssize_t count = PyList_GET_SIZE(arrays.ptr());
  if (count == 0) return nb::none();
  const auto array_at = [&](Py_ssize_t i) -> PyArrayObject* {
    PyObject* one = PyList_GET_ITEM(arrays.ptr(), i);
    return PyArray_CheckExact(one) && is_plain(as_array(one)) ? as_array(one) : nullptr;
  };
  PyArrayObject* first = array_at(0);
  if (!first || PyArray_NDIM(first) + 1 > NPY_MAXDIMS) return nb::none();
  npy_intp shape[NPY_MAXDIMS] = {count};
  std::copy(PyArray_DIMS(first), PyArray_DIMS(first) + PyArray_NDIM(first), shape + 1);
  nb::object stacked = empty_array(PyArray_DESCR(first), PyArray_NDIM(first) + 1, shape);
  const auto bytes = static_cast<std::size_t>(PyArray_NBYTES(first));
  char* to = PyArray_BYTES(as_array(stacked.ptr()));
  for (Py_ssize_t i = 0; i < count; ++i, to += bytes) {
    PyArrayObject* one = array_at(i);
    if (!one || !are_alike(first, one)) return nb::none();
    std::memcpy(to, PyArray_DATA(one), bytes);
  }
  return stacked;
}

nb::object make_timesteps(nb::type_object type, nb::list observations, nb::handle rewards, nb::handle terminated,
                          nb::handle truncated) {
  auto* of = reinterpret_cast<PyTypeObject*>(type.ptr());
  if (!PyType_IsSubtype(of, &PyTuple_Type) || of->tp_basicsize != PyTuple_Type.tp_basicsize)
    raise("InputError", "expected a subclass of tuple without attributes of its own, got " + describe_object(type));
  const Py_ssize_t count = PyList_GET_SIZE(observations.ptr());
  const npy_bool* ends[] = {flags_of(terminated, count), flags_of(truncated, count)};
  if (!is_batch(rewards.ptr()) || PyArray_DIM(as_array(rewards.ptr()), 0) != count)
    raise("InputError", "expected rewards of " + std::to_string(count) + " rows, got " + describe_object(rewards));
  PyArrayObject* from = as_array(rewards.ptr());
  const npy_intp one = 1;
  const bool single = PyArray_NDIM(from) == 1;
  const int axes = single ? 1 : PyArray_NDIM(from) - 1;
  const npy_intp* shape = single ? &one : PyArray_DIMS(from) + 1;
  nb::object timesteps = owned(PyList_New(count));
  nb::list ended;
  for (Py_ssize_t row = 0; row < count; ++row) {
    const bool done = ends[0][row] || ends[1][row];
    nb::object timestep = owned(of->tp_alloc(of, 4));
#if PY_VERSION_HEX >= 0x030e0000
    reinterpret_cast<PyTupleObject*>(timestep.ptr())->ob_hash = -1;  // not known yet
#endif
    PyTuple_SET_ITEM(timestep.ptr(), 0, Py_NewRef(PyList_GET_ITEM(observations.ptr(), row)));
    PyTuple_SET_ITEM(timestep.ptr(), 1, own_row(from, row, axes, shape).release().ptr());
    PyTuple_SET_ITEM(timestep.ptr(), 2, Py_NewRef(done ? Py_True : Py_False));
    PyTuple_SET_ITEM(timestep.ptr(), 3, owned(PyDict_New()).release().ptr());
    PyList_SET_ITEM(timesteps.ptr(), row, timestep.release().ptr());
    if (done) ended.append(row);
  }
  return nb::make_tuple(timesteps, ended);
}

}  // namespace stepmill
