// Reads tensors of torch, without being built against it.
//
// numpy reads a tensor by itself only if it is on the CPU, does not belong to a graph of gradients and has a type that
// numpy knows, and takes its time to find out how.
#pragma once

#include <nanobind/nanobind.h>

namespace stepmill {

// A tensor, wherever it is, as an array that shares its memory if it can: detached, on the CPU, and in float32 if numpy
// has no such type (bfloat16). Any other value is returned as it is. An invalid object if torch raises: its error is set.
nanobind::object without_torch(nanobind::handle value);

}  // namespace stepmill
