#include "bindings/host.h"

#include "bindings/errors.h"
#include "bindings/exit.h"

namespace nb = nanobind;

namespace stepmill {

void look_for_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  end_thread_at_exit();
}

void Host::give_objects(std::int32_t, nb::handle) {
  raise("ActionError", "native envs take arrays only");  // their spaces have no other parts
}

void Host::work(std::chrono::nanoseconds most) {
  const nb::gil_scoped_release release;
  const auto end = Clock::now() + most;
  do pool_->work_or_wait(most);
  while (!pool_->ready() && Clock::now() < end && !wants_attention());
}

nb::object Host::random_state(std::int32_t) const {
  raise("UnsupportedError", "the generators of these envs are asked for where they live");
}

}  // namespace stepmill
