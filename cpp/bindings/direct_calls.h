// Calls from Python to Python without a Python frame around them.
//
// CPython lets signal handlers run after every call that Python code makes. A handler that raises right after a call
// returned a batch, in a frame of ours, would lose the batch. In C++ nothing comes between.
#pragma once

#include <nanobind/nanobind.h>

namespace stepmill {

void register_direct_calls(nanobind::module_& module);

}  // namespace stepmill
