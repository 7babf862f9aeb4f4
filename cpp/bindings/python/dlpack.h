// The part of DLPack that we need: how a library is told about an array that is not its own, and the table of C functions
// that a library offers for this (`type.__dlpack_c_exchange_api__`). The layouts are those of DLPack 1.
#pragma once

#include <Python.h>

#include <cstdint>

namespace stepmill::dlpack {

inline constexpr std::uint32_t kMajor = 1;

struct Version {
  std::uint32_t major, minor;
};

struct Device {
  std::int32_t type, id;
};
inline constexpr std::int32_t kCpu = 1;

struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
enum Code : std::uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBool = 6 };

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements
  std::uint64_t byte_offset;
};

struct ManagedTensor {
  Version version;
  void* owner;
  void (*deleter)(ManagedTensor*);
  std::uint64_t flags;
  Tensor tensor;
};

// For libraries that know no versions.
struct OldManagedTensor {
  Tensor tensor;
  void* owner;
  void (*deleter)(OldManagedTensor*);
};

struct ExchangeApiHeader {
  Version version;
  const ExchangeApiHeader* previous;  // for consumers that know only an older version
};

struct ExchangeApi {
  ExchangeApiHeader header;
  void (*allocate)();
  void (*from_object)();
  // Makes an object of the library, which takes over the tensor. Returns 0, or -1 with a Python error set.
  int (*to_object)(ManagedTensor* tensor, void** object);
  // Describes an object of the library's type, which keeps everything that the description points to. May be null.
  // Returns 0, or -1 with a Python error set.
  int (*describe)(void* object, Tensor* description);
};

// The table in the capsule that a library's type has; null, with no error set, if it is of another version.
inline const ExchangeApi* find_api(PyObject* capsule) {
  const void* found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  PyErr_Clear();
  const auto* header = static_cast<const ExchangeApiHeader*>(found);
  while (header && header->version.major != kMajor) header = header->previous;
  return reinterpret_cast<const ExchangeApi*>(header);
}

}  // namespace stepmill::dlpack
