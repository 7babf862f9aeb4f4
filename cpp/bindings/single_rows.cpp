#include "bindings/numpy_api.h"

#include "bindings/single_rows.h"

#include <cstring>

#include "bindings/errors.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

// Whether its bytes are its values, one after the other.
bool is_plain(PyArrayObject* array) {
  return PyArray_IS_C_CONTIGUOUS(array) && !PyDataType_REFCHK(PyArray_DESCR(array));
}

nb::object empty_array(PyArray_Descr* type, int axes, const npy_intp* shape) {
  Py_INCREF(type);  // which the new array takes
  return owned(PyArray_NewFromDescr(&PyArray_Type, type, axes, shape, nullptr, nullptr, 0, nullptr));
}

nb::object copy_of(PyArrayObject* array) {
  if (!is_plain(array)) return owned(PyArray_NewCopy(array, NPY_CORDER));
  nb::object copy = empty_array(PyArray_DESCR(array), PyArray_NDIM(array), PyArray_DIMS(array));
  std::memcpy(PyArray_DATA(as_array(copy.ptr())), PyArray_DATA(array), static_cast<std::size_t>(PyArray_NBYTES(array)));
  return copy;
}

// A batch of numbers, a row an env, its bytes in one piece.
nb::object plain_batch(nb::handle batch) {
  if (!PyArray_CheckExact(batch.ptr()) || PyArray_NDIM(as_array(batch.ptr())) == 0 ||
      PyDataType_REFCHK(PyArray_DESCR(as_array(batch.ptr()))))
    raise("InputError", "expected an array of numbers with a row an env, got " + describe_object(batch));
  return is_plain(as_array(batch.ptr())) ? nb::borrow(batch) : copy_of(as_array(batch.ptr()));
}

// The rows of a plain batch, of that shape each.
nb::object rows_of(PyArrayObject* from, int axes, const npy_intp* shape) {
  const npy_intp count = PyArray_DIM(from, 0);
  const npy_intp bytes = count == 0 ? 0 : PyArray_NBYTES(from) / count;
  nb::object rows = owned(PyList_New(count));
  for (npy_intp i = 0; i < count; ++i) {
    nb::object row = empty_array(PyArray_DESCR(from), axes, shape);
    std::memcpy(PyArray_DATA(as_array(row.ptr())), PyArray_BYTES(from) + i * bytes, static_cast<std::size_t>(bytes));
    PyList_SET_ITEM(rows.ptr(), i, row.release().ptr());
  }
  return rows;
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

nb::object own_rows(nb::handle batch) {
  const nb::object plain = plain_batch(batch);
  PyArrayObject* from = as_array(plain.ptr());
  return rows_of(from, PyArray_NDIM(from) - 1, PyArray_DIMS(from) + 1);
}

nb::object own_copies(nb::list arrays) {
  const Py_ssize_t count = PyList_GET_SIZE(arrays.ptr());
  nb::object copies = owned(PyList_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* one = PyList_GET_ITEM(arrays.ptr(), i);
    if (!PyArray_CheckExact(one)) return nb::none();
    PyList_SET_ITEM(copies.ptr(), i, copy_of(as_array(one)).release().ptr());
  }
  return copies;
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
    raise("InputError", "expected a kind of tuple without attributes of its own, got " + describe_object(type));
  const Py_ssize_t count = PyList_GET_SIZE(observations.ptr());
  const npy_bool* ends[] = {flags_of(terminated, count), flags_of(truncated, count)};
  const nb::object plain = plain_batch(rewards);
  PyArrayObject* from = as_array(plain.ptr());
  if (PyArray_DIM(from, 0) != count)
    raise("InputError", "expected rewards of " + std::to_string(count) + " rows, got " + describe_object(rewards));
  const npy_intp one = 1;
  const bool single = PyArray_NDIM(from) == 1;
  const nb::object reward_rows =
      single ? rows_of(from, 1, &one) : rows_of(from, PyArray_NDIM(from) - 1, PyArray_DIMS(from) + 1);
  nb::object timesteps = owned(PyList_New(count));
  nb::list ended;
  for (Py_ssize_t row = 0; row < count; ++row) {
    const bool done = ends[0][row] || ends[1][row];
    nb::object timestep = owned(of->tp_alloc(of, 4));
    PyTuple_SET_ITEM(timestep.ptr(), 0, Py_NewRef(PyList_GET_ITEM(observations.ptr(), row)));
    PyTuple_SET_ITEM(timestep.ptr(), 1, Py_NewRef(PyList_GET_ITEM(reward_rows.ptr(), row)));
    PyTuple_SET_ITEM(timestep.ptr(), 2, Py_NewRef(done ? Py_True : Py_False));
    PyTuple_SET_ITEM(timestep.ptr(), 3, owned(PyDict_New()).release().ptr());
    PyList_SET_ITEM(timesteps.ptr(), row, timestep.release().ptr());
    if (done) ended.append(row);
  }
  return nb::make_tuple(timesteps, ended);
}

}  // namespace stepmill
