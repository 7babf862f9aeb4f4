// Puts actions into their spaces: those that are on a device are not looked at before they are used.
#pragma once

#include <cstdint>
#include <limits>

namespace stepmill::gpu {

// What is done with an element outside of its bounds.
enum class Outside { kIsBad, kIsClipped, kIsPassedOn };

// A bound in the type of the numbers: that of a whole type ends where the type does, as the space has it.
template <class T>
inline T bound_of(double bound) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::is_integer) {
    if (bound <= static_cast<double>(Limits::min())) return Limits::min();
    if (bound >= static_cast<double>(Limits::max())) return Limits::max();
  }
  return static_cast<T>(bound);
}

// Returns whether an element was bad. NaN always is, and is passed on. One bound may stand for all elements.
template <class T, Outside outside, int count, int bounds>
inline bool limit(void* action, const double (&low)[bounds], const double (&high)[bounds]) {
  T* values = static_cast<T*>(action);
  bool is_bad = false;
  for (int i = 0; i < count; ++i) {
    const T least = bound_of<T>(low[bounds == 1 ? 0 : i]), most = bound_of<T>(high[bounds == 1 ? 0 : i]);
    const T value = values[i];
    if (value != value) is_bad = true;
    if constexpr (outside == Outside::kIsBad) is_bad |= (value < least) | (value > most);
    if constexpr (outside != Outside::kIsPassedOn) values[i] = value < least ? least : value > most ? most : value;
  }
  return is_bad;
}

}  // namespace stepmill::gpu
