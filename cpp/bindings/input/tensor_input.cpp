#include "bindings/python/numpy_api.h"

#include "bindings/input/tensor_input.h"

#include "bindings/python/dlpack.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// torch, if somebody has imported it; otherwise nothing is a tensor.
struct Torch {
  PyTypeObject* tensor = nullptr;
  const dlpack::ExchangeApi* api = nullptr;  // null in older versions
};

const Torch& torch() {
  static Torch found;
  if (found.tensor) return found;
  static PyObject* const name = PyUnicode_InternFromString("torch");
  PyObject* module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  PyObject* type = module ? PyObject_GetAttrString(module, "Tensor") : nullptr;
  if (type && PyType_Check(type)) {
    if (PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__")) {
      found.api = dlpack::find_api(capsule);
      if (found.api && !found.api->describe) found.api = nullptr;
      Py_DECREF(capsule);  // the table lives as long as the process
    }
    found.tensor = reinterpret_cast<PyTypeObject*>(type);  // kept for as long as the process lives
  } else {
    Py_XDECREF(type);
  }
  PyErr_Clear();  // torch is being imported at this moment, or is an older one
  return found;
}

int numpy_type_of(dlpack::DataType type) {
  const int width = type.bits == 8 ? 0 : type.bits == 16 ? 1 : type.bits == 32 ? 2 : type.bits == 64 ? 3 : -1;
  if (type.lanes != 1 || width < 0) return NPY_NOTYPE;
  constexpr int ints[] = {NPY_INT8, NPY_INT16, NPY_INT32, NPY_INT64};
  constexpr int unsigneds[] = {NPY_UINT8, NPY_UINT16, NPY_UINT32, NPY_UINT64};
  constexpr int floats[] = {NPY_NOTYPE, NPY_FLOAT16, NPY_FLOAT32, NPY_FLOAT64};
  switch (type.code) {
    case dlpack::kInt: return ints[width];
    case dlpack::kUInt: return unsigneds[width];
    case dlpack::kFloat: return floats[width];
    case dlpack::kBool: return width == 0 ? NPY_BOOL : NPY_NOTYPE;
    default: return NPY_NOTYPE;
  }
}

// Whether a tensor shows the negative of what is in its memory; only floats can. True also if it cannot tell.
bool may_be_negated(nb::handle tensor) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  nb::object answer = nb::steal(PyObject_CallMethodNoArgs(tensor.ptr(), name));
  if (!answer.is_valid()) PyErr_Clear();
  return answer.ptr() != Py_False;
}

// A read-only array over the memory of a tensor on the CPU. Invalid, with no error set, if it has none that numpy can
// read. Through the C functions of torch: by its methods it takes 8 µs, which is more than a step of 64 CartPoles.
nb::object over_memory(nb::handle tensor, const dlpack::ExchangeApi& api) {
  dlpack::Tensor seen{};
  if (api.describe(tensor.ptr(), &seen) != 0) {
    PyErr_Clear();
    return {};
  }
  const int type = numpy_type_of(seen.dtype);
  if (seen.device.type != dlpack::kCpu || type == NPY_NOTYPE || seen.ndim > NPY_MAXDIMS || !seen.strides) return {};
  if (seen.dtype.code == dlpack::kFloat && may_be_negated(tensor)) return {};
  npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
  for (int i = 0; i < seen.ndim; ++i) {
    shape[i] = seen.shape[i];
    strides[i] = seen.strides[i] * (seen.dtype.bits / 8);
  }
  nb::object array = nb::steal(PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(type), seen.ndim, shape,
                                                    strides, static_cast<char*>(seen.data) + seen.byte_offset, 0,
                                                    nullptr));
  if (!array.is_valid()) throw nb::python_error();
  auto* base = reinterpret_cast<PyArrayObject*>(array.ptr());
  if (PyArray_SetBaseObject(base, Py_NewRef(tensor.ptr())) != 0) throw nb::python_error();
  PyArray_UpdateFlags(base, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
  return array;
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
  if (PyArray_Check(value.ptr())) return nb::borrow(value);  // nearly always
  const Torch& known = torch();
  if (!known.tensor || !PyType_IsSubtype(Py_TYPE(value.ptr()), known.tensor)) return nb::borrow(value);
  if (known.api && Py_TYPE(value.ptr()) == known.tensor)  // subclasses may have no memory, or see it in another way
    if (nb::object array = over_memory(value, *known.api); array.is_valid()) return array;
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
