#include "bindings/numpy_api.h"

#include "bindings/errors.h"

namespace nb = nanobind;

namespace stepmill {

void raise(const char* name, const std::string& message) {
  nb::object type = nb::module_::import_("stepmill.errors").attr(name);
  PyErr_SetObject(type.ptr(), nb::str(message.c_str()).ptr());
  throw nb::python_error();
}

std::string describe_object(nb::handle object) {
  if (PyArray_Check(object.ptr())) {
    nb::object shape = object.attr("shape");
    nb::object dtype = object.attr("dtype");
    return "an array of shape " + std::string(nb::str(shape).c_str()) + " and dtype " +
           nb::str(dtype).c_str();
  }
  return std::string("a ") + Py_TYPE(object.ptr())->tp_name;
}

}  // namespace stepmill
