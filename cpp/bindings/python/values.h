// Converts small values between Python and the core.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "bindings/python/errors.h"
#include "core/fault_log.h"
#include "core/env_set.h"

namespace stepmill {

// Seconds from the user, limited to longer than anyone waits, so that sums with the time of day stay in range.
inline std::uint64_t nanoseconds_of(double seconds) {
  constexpr double kForever = 1e9;
  return static_cast<std::uint64_t>(std::min(seconds, kForever) * 1e9);
}

inline std::chrono::nanoseconds interval_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds_of(seconds)));
}

// (state, increment, has_uint32, uinteger), the first two each as (high word, low word): see hosts/generators.py.
inline nanobind::object random_state(const sm_random_state& s) {
  return nanobind::make_tuple(nanobind::make_tuple(s.state[0], s.state[1]),
                              nanobind::make_tuple(s.increment[0], s.increment[1]), s.has_uint32, s.uinteger);
}

// A failure of an env, in the form that `Fault.read` in Python takes.
inline nanobind::object fault_tuple(const Fault& f) {
  return nanobind::make_tuple(f.env, f.phase, f.episode, f.step, f.failures, to_text(f.message),
                              static_cast<int>(f.kind));
}

// Adds to a list, which is made for its first item: `Host::take_notes` seldom has any.
inline void add_to_list(nanobind::object& list, nanobind::handle item) {
  if (!list.is_valid()) list = nanobind::list();
  if (PyList_Append(list.ptr(), item.ptr()) != 0) throw nanobind::python_error();
}

// (resets, numbers): see sources/drawing.py.
inline nanobind::object picture(const Picture& p) {
  nanobind::list numbers;
  for (const double number : p.numbers) numbers.append(number);
  return nanobind::make_tuple(p.resets, std::move(numbers));
}

}  // namespace stepmill
