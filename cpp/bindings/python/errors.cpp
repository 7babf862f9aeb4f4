#include "bindings/python/numpy_api.h"

#include "bindings/python/errors.h"

#include <cerrno>
#include <new>
#include <system_error>

#include "core/gpu/cuda_driver.h"
#include "core/process/process_checks.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// stepmill.system.refusals says what to do about it.
void set_refusal(int number, const char* what) {
  try {
    nb::object error = nb::module_::import_("stepmill.system.refusals").attr("refusal")(number, to_text(what));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  } catch (nb::python_error& error) {  // there is no memory even for that
    error.restore();
  }
}

void set_error(const char* name, const std::exception& error) {
  nb::object type = nb::module_::import_("stepmill.errors").attr(name);
  PyErr_SetObject(type.ptr(), to_text(error.what()).ptr());
}

}  // namespace

void translate_exceptions() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {
      set_refusal(error.code().value(), error.what());
    } catch (const std::bad_alloc&) {
      set_refusal(ENOMEM, "no memory for the pool");
    } catch (const GpuError& error) {
      set_error(error.is_out_of_memory ? "OutOfMemoryError" : "ResourceError", error);
    } catch (const CaptureError& error) {
      set_error("UsageError", error);
    } catch (const BrokenMemory& error) {
      set_error("BrokenPoolError", error);
    }
  });
}

nb::object exception_of(const std::exception& error) {
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    set_refusal(system->code().value(), error.what());
  } else if (dynamic_cast<const std::bad_alloc*>(&error)) {
    set_refusal(ENOMEM, "no memory for the pool");
  } else {
    set_error(dynamic_cast<const BrokenMemory*>(&error) ? "BrokenPoolError" : "UsageError", error);
  }
  return take_exception();
}

void raise(const char* name, const std::string& message) {
  const nb::gil_scoped_acquire acquire;  // some callers have released it
  nb::object type = nb::module_::import_("stepmill.errors").attr(name);
  PyErr_SetObject(type.ptr(), to_text(message).ptr());
  throw nb::python_error();
}

void raise_again(nb::handle error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void forget_error() {
  if (!PyErr_Occurred()) return;
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) throw nb::python_error();
  PyErr_Clear();
}

void raise_because(const char* name, const std::function<std::string()>& message) {
  nb::python_error cause;
  if (!cause.matches(PyExc_Exception) || cause.matches(PyExc_MemoryError)) throw cause;
  std::string text = message() + ": " + reinterpret_cast<PyTypeObject*>(cause.type().ptr())->tp_name;
  const nb::object own = nb::steal(PyObject_Str(cause.value().ptr()));
  if (!own.is_valid()) forget_error();  // its class has a __str__ that raises
  else if (PyUnicode_GET_LENGTH(own.ptr()) != 0) text += ": " + text_of(own);
  nb::object error = nb::module_::import_("stepmill.errors").attr(name)(to_text(text));
  PyException_SetCause(error.ptr(), Py_NewRef(cause.value().ptr()));
  raise_again(error);
}

nb::object take_exception() {
#if PY_VERSION_HEX >= 0x030c0000
  return nb::steal(PyErr_GetRaisedException());
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return nb::steal(value);
#endif
}

nb::object owned(PyObject* made) {
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

nb::object to_text(const std::string& text) {
  return owned(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

std::string text_of(nb::handle str) {
  nb::object bytes = owned(PyUnicode_AsEncodedString(str.ptr(), "utf-8", "backslashreplace"));
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

std::string keys_in(nb::handle dict) {
  const nb::object keys = owned(PyDict_Keys(dict.ptr()));  // not the method, which a subclass may have of its own
  const nb::object text = nb::steal(PyObject_Repr(keys.ptr()));
  if (text.is_valid()) return text_of(text);
  forget_error();
  return std::to_string(PyList_GET_SIZE(keys.ptr())) + " whose repr() raises";
}

std::string describe_object(nb::handle object) {
  if (PyArray_Check(object.ptr())) {
    nb::object shape = object.attr("shape");
    nb::object dtype = object.attr("dtype");
    return "an array of shape " + text_of(nb::str(shape)) + " and dtype " + text_of(nb::str(dtype));
  }
  const std::string name = Py_TYPE(object.ptr())->tp_name;
  if (PyTuple_Check(object.ptr()) || PyList_Check(object.ptr()))
    return "a " + name + " of " + std::to_string(PySequence_Fast_GET_SIZE(object.ptr()));
  return (name.find_first_of("aeiouAEIOU") == 0 ? "an " : "a ") + name;
}

}  // namespace stepmill
