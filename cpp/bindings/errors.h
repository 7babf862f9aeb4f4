// Raises the exceptions of stepmill/errors.py from C++.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace stepmill {

// Throws stepmill.errors.<name>(message) as a Python exception.
[[noreturn]] void raise(const char* name, const std::string& message);

// Has what the system refuses (descriptors, threads, memory) raised as a ResourceError, wherever the core finds it.
void translate_refusals();

// For where a Python error is pending that the caller is told of in other words: forgets it. One that
// is no fault of a value (Ctrl-C, no memory) is thrown on instead.
void forget_error();
// The same, and gives back what the error said.
std::string take_error();

// Takes a new reference; throws the pending Python error where there is none.
nanobind::object owned(PyObject* made);

// Text from C++, whatever its bytes are, and the text of a Python str, whatever its characters are.
nanobind::object to_text(const std::string& text);
std::string text_of(nanobind::handle str);

// "array of shape (3, 2) and dtype float64", "list", ...: how a message names what came.
std::string describe_object(nanobind::handle object);

}  // namespace stepmill
