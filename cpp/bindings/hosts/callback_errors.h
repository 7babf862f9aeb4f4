// Exceptions of Python code of the user that a simulator calls while it steps an env, such as MuJoCo's callbacks.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <utility>

#include "bindings/python/errors.h"

namespace stepmill {

class CallbackErrors {
 public:
  // Called before the simulator is, on any thread. Python does not know threads of ours: whoever calls Python there makes a
  // thread state for that call alone, and an exception ends with it. So they get one for the whole call of the simulator.
  static void* enter() {
    if (PyGILState_GetThisThreadState()) return nullptr;
    PyGILState_Ensure();
    return PyEval_SaveThread();
  }

  // Called after the simulator was: keeps what is raised in this thread, which must not stay set there.
  static void leave(void* entered, bool has_failed) {
    if (!entered && !has_failed) return;
    PyGILState_STATE before = PyGILState_UNLOCKED;
    if (entered)
      PyEval_RestoreThread(static_cast<PyThreadState*>(entered));
    else
      before = PyGILState_Ensure();
    if (PyErr_Occurred()) {
      Py_XDECREF(raised_here_);
      raised_here_ = take_exception().release().ptr();
      is_of_caller_ = !entered;
    }
    PyGILState_Release(before);
  }

  // What was kept in this thread is the reason why this env failed.
  void keep(std::int32_t env) {
    if (!raised_here_) return;
    const nanobind::gil_scoped_acquire acquire;
    nanobind::object error = nanobind::steal(std::exchange(raised_here_, nullptr));
    if (is_of_caller_ && PyErr_GivenExceptionMatches(error.ptr(), PyExc_KeyboardInterrupt)) interrupt_ = error;
    raised_[env] = std::move(error);
  }

  // An invalid object if there is none.
  nanobind::object take(std::int32_t env) {
    auto found = raised_.extract(env);
    return found.empty() ? nanobind::object() : std::move(found.mapped());
  }
  nanobind::object take_interrupt() { return std::move(interrupt_); }

 private:
  inline static thread_local PyObject* raised_here_ = nullptr;
  inline static thread_local bool is_of_caller_ = false;

  // With the interpreter lock.
  std::map<std::int32_t, nanobind::object> raised_;
  nanobind::object interrupt_;
};

}  // namespace stepmill
