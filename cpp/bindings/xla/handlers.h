// The functions that programs of XLA call: `send`, `recv` and `step` of the pool whose handle is their first argument.
#pragma once

#include <nanobind/nanobind.h>

namespace stepmill {

void register_xla(nanobind::module_& m);

}  // namespace stepmill
