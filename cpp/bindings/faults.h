// A failure of an env, as Python's `Fault.read` takes it.
#pragma once

#include "bindings/errors.h"
#include "core/pool.h"

namespace stepmill {

inline nanobind::object fault_tuple(const Fault& f) {
  return nanobind::make_tuple(f.env, f.phase, f.episode, f.step, f.failures, to_text(f.message),
                              static_cast<int>(f.kind));
}

}  // namespace stepmill
