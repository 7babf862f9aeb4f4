// The scalar types that an array in an arena can hold.
#pragma once

#include <cstdint>

namespace stepmill {

enum class DType : std::int32_t {
  kBool,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kFloat32,
  kFloat64,
};

inline constexpr int kDTypeCount = 12;

constexpr std::int64_t item_size(DType type) {
  constexpr std::int64_t sizes[kDTypeCount] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8};
  return sizes[static_cast<int>(type)];
}

// numpy's name of the type, which is also how messages name it.
constexpr const char* name_of(DType type) {
  constexpr const char* names[kDTypeCount] = {"bool",   "int8",    "uint8",   "int16",
                                              "uint16", "int32",   "uint32",  "int64",
                                              "uint64", "float16", "float32", "float64"};
  return names[static_cast<int>(type)];
}

template <class T>
struct dtype_of;
#define STEPMILL_DTYPE(T, K) \
  template <>                \
  struct dtype_of<T> {       \
    static constexpr DType value = DType::K; \
  }
STEPMILL_DTYPE(bool, kBool);
STEPMILL_DTYPE(std::int8_t, kInt8);
STEPMILL_DTYPE(std::uint8_t, kUInt8);
STEPMILL_DTYPE(std::int16_t, kInt16);
STEPMILL_DTYPE(std::uint16_t, kUInt16);
STEPMILL_DTYPE(std::int32_t, kInt32);
STEPMILL_DTYPE(std::uint32_t, kUInt32);
STEPMILL_DTYPE(std::int64_t, kInt64);
STEPMILL_DTYPE(std::uint64_t, kUInt64);
STEPMILL_DTYPE(float, kFloat32);
STEPMILL_DTYPE(double, kFloat64);
#undef STEPMILL_DTYPE

}  // namespace stepmill
