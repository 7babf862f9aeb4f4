#include "bindings/python/numpy_api.h"

#include "bindings/output/tensor_maker.h"

#include <cstdlib>

#include "bindings/python/errors.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// Called in whichever thread drops the last tensor, with or without the interpreter lock.
void let_go(dlpack::ManagedTensor* self) {
  if (Py_IsInitialized()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(static_cast<PyObject*>(self->owner));
    PyGILState_Release(state);
  }
  std::free(self);
}

dlpack::DataType type_of(PyArrayObject* array) {
  const int type = PyArray_TYPE(array);
  const auto bits = static_cast<std::uint8_t>(8 * PyArray_ITEMSIZE(array));
  if (PyTypeNum_ISBOOL(type)) return {dlpack::kBool, bits, 1};
  if (PyTypeNum_ISUNSIGNED(type)) return {dlpack::kUInt, bits, 1};
  if (PyTypeNum_ISINTEGER(type)) return {dlpack::kInt, bits, 1};
  if (PyTypeNum_ISFLOAT(type)) return {dlpack::kFloat, bits, 1};
  raise("InputError", "expected an array of numbers, got " + describe_object(reinterpret_cast<PyObject*>(array)));
}

}  // namespace

TensorMaker::TensorMaker(nb::handle api) : api_(dlpack::find_api(api.ptr())) {
  if (!api_) raise("UnsupportedError", "expected the C functions of DLPack 1, got " + describe_object(api));
}

nb::object TensorMaker::convert(nb::tuple arrays) const {
  const Py_ssize_t count = PyTuple_GET_SIZE(arrays.ptr());
  nb::object out = owned(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* one = PyTuple_GET_ITEM(arrays.ptr(), i);
    PyTuple_SET_ITEM(out.ptr(), i, PyArray_Check(one) ? make(one) : Py_NewRef(one));
  }
  return out;
}

PyObject* TensorMaker::make(PyObject* object) const {
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (!PyArray_ISCARRAY(array))
    raise("InputError", "expected a contiguous, writable array, got " + describe_object(object));
  const dlpack::DataType type = type_of(array);
  const int axes = PyArray_NDIM(array);
  // The extents and the strides come right behind it.
  auto* managed = static_cast<dlpack::ManagedTensor*>(
      std::malloc(sizeof(dlpack::ManagedTensor) + 2 * static_cast<std::size_t>(axes) * sizeof(std::int64_t)));
  if (!managed) throw std::bad_alloc();
  auto* shape = reinterpret_cast<std::int64_t*>(managed + 1);
  std::int64_t* strides = shape + axes;
  std::int64_t elements = 1;
  for (int i = axes - 1; i >= 0; --i) {
    shape[i] = PyArray_DIM(array, i);
    strides[i] = elements;
    elements *= shape[i];
  }
  *managed = {{dlpack::kMajor, 0}, Py_NewRef(object), &let_go, 0,
              {PyArray_DATA(array), {dlpack::kCpu, 0}, axes, type, shape, strides, 0}};
  void* made = nullptr;
  // If it fails, it may have taken over the tensor or not. So we do not free it.
  if (api_->to_object(managed, &made) != 0) throw nb::python_error();
  return static_cast<PyObject*>(made);
}

}  // namespace stepmill
