// The part of XLA's foreign function interface that we use: how XLA calls a function of ours inside of a compiled program.
//
// These are our own declarations of its documented layout, so that nothing of JAX is needed to build the package. Every
// structure begins with its size, as far as its sender knows it; later versions add fields at the end. The interface is
// stable within its major version; tests/views/xla/test_layout.py compares this file with the header that JAX brings.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stepmill::xla {

inline constexpr int kMajorVersion = 0;

struct Api;
struct Context;
struct Error;   // XLA's own; null is success
struct Future;

// A list of what later versions add to a structure.
struct Extension {
  std::size_t size;
  std::int32_t type;
  Extension* next;
};
inline constexpr std::int32_t kMetadataExtension = 1;

struct ApiVersion {
  std::size_t size;
  Extension* extensions;
  int major, minor;
};

// Element types, by XLA's numbers.
enum class Type : std::int32_t {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
};

// An array: row-major, its memory is XLA's.
struct Array {
  std::size_t size;
  Extension* extensions;
  Type type;
  void* data;
  std::int64_t rank;
  std::int64_t* extents;
};

// The arguments of a call, or its results; those of our functions are all arrays.
struct Arrays {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  std::int32_t* kinds;  // kArrayKind
  void** values;        // Array*

  const Array& operator[](std::int64_t i) const { return *static_cast<const Array*>(values[i]); }
};
inline constexpr std::int32_t kArrayKind = 1;

struct Attributes {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  std::int32_t* kinds;
  void** names;
  void** values;
};

// A handler is called once per program for what it is and, if it is registered for them, in the stages before the
// execution too.
enum class Stage : std::int32_t { kInstantiate, kPrepare, kInitialize, kExecute };

struct CallFrame {
  std::size_t size;
  Extension* extensions;
  const Api* api;
  Context* context;
  Stage stage;
  Arrays arguments;
  Arrays results;
  Attributes attributes;
  Future* future;  // not in the first versions
};

struct ErrorOrder {
  std::size_t size;
  Extension* extensions;
  const char* message;
  std::int32_t code;
};
inline constexpr std::int32_t kInternal = 13;

// The table of XLA's own functions, up to the last one that we call.
struct Api {
  std::size_t size;
  Extension* extensions;
  ApiVersion version;
  const void* internal;
  Error* (*create_error)(ErrorOrder*);
};

// What XLA asks of a handler before anything else.
struct Metadata {
  std::size_t size;
  ApiVersion version;
  std::uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

using Handler = Error*(CallFrame*);

static_assert(sizeof(void*) == 8 && sizeof(std::size_t) == 8);
static_assert(sizeof(Extension) == 24 && sizeof(ApiVersion) == 24);
static_assert(sizeof(Array) == 48 && offsetof(Array, data) == 24 && offsetof(Array, extents) == 40);
static_assert(sizeof(Arrays) == 40 && offsetof(Arrays, values) == 32);
static_assert(sizeof(Attributes) == 48);
static_assert(offsetof(CallFrame, stage) == 32 && offsetof(CallFrame, arguments) == 40 &&
              offsetof(CallFrame, results) == 80 && offsetof(CallFrame, attributes) == 120);
static_assert(offsetof(Api, create_error) == 48 && offsetof(ErrorOrder, code) == 24);
static_assert(offsetof(MetadataExtension, metadata) == 24 && offsetof(Metadata, version) == 8);

}  // namespace stepmill::xla
