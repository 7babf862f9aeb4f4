// Calls from Python to Python without a Python frame around them.
//
// CPython may run signal handlers after every call that Python code makes. If a handler raised in a frame of ours,
// right after a call has returned a batch, the batch would be lost. In C++ no handler can run in between.
#pragma once

#include <nanobind/nanobind.h>

namespace stepmill {

void register_direct_calls(nanobind::module_& module);

}  // namespace stepmill
