#include "bindings/host.h"

#include <exception>
#include <system_error>
#include <thread>

#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "bindings/python/exit.h"
#include "bindings/python/values.h"

namespace nb = nanobind;

namespace stepmill {

void look_for_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  end_thread_at_exit();
}

void Host::work(std::chrono::nanoseconds most) {
  const nb::gil_scoped_release release;
  const auto end = Clock::now() + most;
  do pool_->work_or_wait(most);
  while (!pool_->ready() && Clock::now() < end && !wants_attention());
}

// ---- states ------------------------------------------------------------------------------------

// Hosts whose envs are not in this process, or are Python objects, do both in Python.

nb::object Host::save(std::span<const std::int32_t> envs, nb::handle by, std::vector<std::byte>& to,
                      std::vector<std::size_t>& ends) {
  const nb::list saved(nb::find(*this).attr("save_envs")(list_of(envs), by));
  bool has_more = false;  // than bytes
  for (nb::handle one : saved) {
    has_more |= !PyBytes_CheckExact(one.ptr());
    const auto bytes = bytes_of(one);
    to.insert(to.end(), bytes.begin(), bytes.end());
    ends.push_back(to.size());
  }
  if (ends.size() != envs.size()) throw std::logic_error("save_envs: expected a state per env");
  return has_more ? nb::object(saved) : nb::object();
}

// Calls it where no signal handler can raise: they run in the main thread.
static void call_uninterrupted(const nb::object& method, const nb::list& ids, const nb::list& former) {
  std::exception_ptr error;
  const auto call = [&] {
    const nb::gil_scoped_acquire acquire;
    try {
      method(ids, former);
    } catch (nb::python_error&) {
      error = std::current_exception();
    }
  };
  {
    const nb::gil_scoped_release release;
    try {
      std::thread(call).join();
    } catch (const std::system_error&) {  // the system has no more threads
      call();
    }
  }
  if (error) std::rethrow_exception(std::move(error));
}

nb::object Host::load(std::span<const std::int32_t> envs, std::span<const std::span<const std::byte>> states) {
  nb::list given;
  for (const auto& one : states) given.append(to_bytes(one));
  const nb::list ids = list_of(envs), former;
  const nb::object put_back = nb::find(*this).attr("put_back");
  try {
    return nb::find(*this).attr("load_envs")(ids, given, former);
  } catch (nb::python_error&) {  // also one of a signal handler, at any instant: here alone all of them go back
    call_uninterrupted(put_back, ids, former);
    throw;
  }
}

// ---- ending ------------------------------------------------------------------------------------

void Host::ask_to_stop() {
  if (!has_ended() && !forked()) pool_->ask_to_stop();
}

bool Host::wait_stopped(double most) {
  if (has_ended() || forked()) return true;
  const nb::gil_scoped_release release;
  pool_->wait_stopped(interval_of(most));
  return pool_->stopped();
}

// Ends the threads or processes, each after its present step.
void Host::stop(bool interruptible) {
  if (forked()) (void)pool_.release();  // leaked: it goes with this process
  if (has_ended()) return;
  kill();  // `wait_stopped` was for those that should end by themselves
  pool_->ask_to_stop();
  const auto longest = longest_wait();
  const auto end_of_wait = Clock::now() + longest.value_or(std::chrono::seconds(0));
  while (!pool_->stopped() && !(longest && Clock::now() > end_of_wait)) {
    {
      const nb::gil_scoped_release release;
      pool_->wait_stopped(kSignalInterval);
    }
    if (interruptible && PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  end();
}

}  // namespace stepmill
