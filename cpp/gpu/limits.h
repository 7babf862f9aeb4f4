// Puts actions into their spaces: those that are on a device are not looked at before they are used.
#pragma once

#include <cstdint>

namespace stepmill::gpu {

// What is done with an element outside of its bounds.
enum class Outside { kIsBad, kIsClipped, kIsPassedOn };

// Returns whether an element was bad. NaN always is, and is passed on. One bound may stand for all elements.
template <class T, Outside outside, int count, int bounds>
inline bool limit(void* action, const double (&low)[bounds], const double (&high)[bounds]) {
  T* values = static_cast<T*>(action);
  bool is_bad = false;
  for (int i = 0; i < count; ++i) {
    const T least = static_cast<T>(low[bounds == 1 ? 0 : i]), most = static_cast<T>(high[bounds == 1 ? 0 : i]);
    const T value = values[i];
    if (value != value) is_bad = true;
    if constexpr (outside == Outside::kIsBad) is_bad |= (value < least) | (value > most);
    if constexpr (outside != Outside::kIsPassedOn) values[i] = value < least ? least : value > most ? most : value;
  }
  return is_bad;
}

}  // namespace stepmill::gpu
