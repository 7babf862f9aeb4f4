// Makes tensors of another library over the memory of arrays, through the table of C functions that the library offers.
#pragma once

#include <nanobind/nanobind.h>

#include "bindings/python/dlpack.h"

namespace stepmill {

class TensorMaker {
 public:
  // `api`: the capsule `__dlpack_c_exchange_api__` of the library's type.
  explicit TensorMaker(nanobind::handle api);

  // The tuple with a tensor instead of each array, which the tensor keeps alive; what is not an array stays.
  nanobind::object convert(nanobind::tuple arrays) const;

 private:
  PyObject* make(PyObject* array) const;

  const dlpack::ExchangeApi* api_;
};

}  // namespace stepmill
