// Raises the exceptions of stepmill/errors.py from C++.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <functional>
#include <string>

namespace stepmill {

// Throws stepmill.errors.<name>(message) as a Python exception. The only one here that may be called without the
// interpreter lock.
[[noreturn]] void raise(const char* name, const std::string& message);

// Throws an exception that exists already.
[[noreturn]] void raise_again(nanobind::handle error);

// Makes refusals of the system (descriptors, threads, memory) or of a GPU, anywhere in the core, raise a ResourceError, and
// broken memory a BrokenPoolError.
void translate_exceptions();

// Clears a pending Python error that the caller will report in other words. An error that no bad value caused (Ctrl-C,
// no memory) is thrown instead.
void forget_error();
// The same, but reports it: throws stepmill.errors.<name>(message()), with that error's text behind it and that error as
// its cause. `message` is called when no error is pending any more, so that it may call Python.
[[noreturn]] void raise_because(const char* name, const std::function<std::string()>& message);

// The pending Python error as an object, with its traceback.
nanobind::object take_exception();

// What the two above make of an exception of C++: for callers that Python has not called.
nanobind::object exception_of(const std::exception& error);

// Takes ownership of a new reference; throws the pending Python error if it is null.
nanobind::object owned(PyObject* made);

// From C++ to a Python str and back; neither fails on invalid bytes or characters.
nanobind::object to_text(const std::string& text);
std::string text_of(nanobind::handle str);

// "['a', 'b']": the keys of a dict, for messages.
std::string keys_in(nanobind::handle dict);

// "an array of shape (3, 2) and dtype float64", "a list of 3", ...: how a message names what it got.
std::string describe_object(nanobind::handle object);

}  // namespace stepmill
