// What an env of a worker with an event loop is at: an action or a call that waits for something, as a coroutine for a
// task of asyncio: `stepmill._native.Turn`.
//
// It drives what the env's method has returned. When that has ended, the worker goes on with the action, which may have
// something else to wait for: the reset after an episode's end. There is no `await` between the end of the last one and
// the row that is written.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace stepmill {

class WorkerObject;

class Turn {
 public:
  // `awaited`: what is to be driven first.
  Turn(WorkerObject& worker, std::int32_t env, nanobind::object awaited);

  // ---- for the task ----

  // As `PyIter_Send`: what the task is to wait for, or the end.
  PySendResult send(PyObject* value, PyObject** result);
  // Raises an exception, such as a CancelledError, where the env waits; as `throw` of a coroutine.
  nanobind::object raise_inside(nanobind::args exception);
  void close() {}  // a coroutine has it; no task calls it

  // ---- for the event loop ----

  std::int32_t env() const { return env_; }
  // "step", "reset" or "call"; empty: it has ended.
  const char* phase() const { return phase_; }
  // How many things it has waited for.
  std::uint32_t number() const { return number_; }
  // What it waits for now; None: nothing.
  nanobind::object awaited() const { return awaited_.is_valid() ? awaited_ : nanobind::none(); }
  nanobind::object task() const { return task_.is_valid() ? task_ : nanobind::none(); }
  void set_task(nanobind::object task) { task_ = std::move(task); }
  // Makes what it waits for fail with this error, however it ends.
  void fail_with(nanobind::object error) { failure_ = std::move(error); }

  int traverse(visitproc visit, void* arg) const;
  void clear_references();

 private:
  void begin(nanobind::object awaited);
  PySendResult drive(PySendResult status, nanobind::object value, PyObject** result);

  WorkerObject& worker_;  // serves as long as the process does
  const std::int32_t env_;
  std::uint32_t number_ = 0;
  const char* phase_ = "";
  bool executing_ = false;
  nanobind::object awaited_, driven_, task_, failure_;  // `driven_`: the iterator of `awaited_`
};

// The coroutine of a task that an env has started: `stepmill._native.EnvCoroutine`. While it runs, it is known whose code it
// is, as with a Turn.
class EnvCoroutine {
 public:
  EnvCoroutine(WorkerObject& worker, std::int32_t env, nanobind::object coroutine);

  PySendResult send(PyObject* value, PyObject** result);
  nanobind::object raise_inside(nanobind::args exception);
  void close() { coroutine_.attr("close")(); }

  // What it drives.
  nanobind::object awaited() const { return coroutine_; }

  int traverse(visitproc visit, void* arg) const;
  void clear_references() { coroutine_ = nanobind::none(); }

 private:
  WorkerObject& worker_;
  const std::int32_t env_;
  nanobind::object coroutine_;
};

// Makes both known to Python.
void register_turn(nanobind::module_& m);

}  // namespace stepmill
