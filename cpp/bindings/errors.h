// Raises the exceptions of stepmill/errors.py from C++.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace stepmill {

// Throws stepmill.errors.<name>(message) as a Python exception.
[[noreturn]] void raise(const char* name, const std::string& message);

// "array of shape (3, 2) and dtype float64", "list", ...: how a message names what came.
std::string describe_object(nanobind::handle object);

}  // namespace stepmill
