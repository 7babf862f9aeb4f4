// Converts between Python bytes and the engine's spans.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "bindings/python/errors.h"

namespace stepmill {

inline nanobind::object to_bytes(std::span<const std::byte> bytes) {
  return owned(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                         static_cast<Py_ssize_t>(bytes.size())));
}

// Bytes of that size, which `write` is given to fill.
template <class Write>
nanobind::object bytes_with(std::size_t size, Write&& write) {
  nanobind::object out = owned(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  write(std::span<std::byte>(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(out.ptr())), size));
  return out;
}

// Valid as long as the object is.
inline std::span<const std::byte> bytes_of(nanobind::handle bytes) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes.ptr(), &data, &size) != 0) throw nanobind::python_error();
  return {reinterpret_cast<const std::byte*>(data), static_cast<std::size_t>(size)};
}

// The value that bytes hold.
template <class T>
T value_in(nanobind::handle bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto from = bytes_of(bytes);
  if (from.size() != sizeof(T)) throw nanobind::value_error("bytes of another build");
  T value;
  std::memcpy(&value, from.data(), sizeof(T));
  return value;
}

// What bytes, an array or a view of other memory hold, without a copy. Raises TypeError for anything else.
class Contents {
 public:
  explicit Contents(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  }
  ~Contents() { PyBuffer_Release(&view_); }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

inline nanobind::object or_none(const nanobind::object& value) {
  return value.is_valid() ? value : nanobind::none();
}

}  // namespace stepmill
