// A failure of an env, in the form that `Fault.read` in Python takes.
#pragma once

#include "bindings/python/errors.h"
#include "core/pool.h"

namespace stepmill {

inline nanobind::object fault_tuple(const Fault& f) {
  return nanobind::make_tuple(f.env, f.phase, f.episode, f.step, f.failures, to_text(f.message),
                              static_cast<int>(f.kind));
}

}  // namespace stepmill
