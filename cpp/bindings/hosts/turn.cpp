#include "bindings/python/numpy_api.h"

#include "bindings/hosts/turn.h"

#include "bindings/hosts/worker_object.h"
#include "bindings/python/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stepmill {
namespace {

// What `await` would iterate over.
nb::object iterator_of(nb::handle awaitable) {
  if (PyCoro_CheckExact(awaitable.ptr())) return nb::borrow(awaitable);  // itself, without a wrapper in between
  return owned(Py_TYPE(awaitable.ptr())->tp_as_async->am_await(awaitable.ptr()));
}

// An env finds its turn behind the current task: it must not go on with it from inside.
class Executing {
 public:
  explicit Executing(bool& flag) : flag_(flag) {
    if (flag_) throw nb::value_error("coroutine already executing");
    flag_ = true;
  }
  ~Executing() { flag_ = false; }
  Executing(const Executing&) = delete;
  Executing& operator=(const Executing&) = delete;

 private:
  bool& flag_;
};

}  // namespace

Turn::Turn(WorkerObject& worker, std::int32_t env, nb::object awaited) : worker_(worker), env_(env) {
  begin(std::move(awaited));
}

void Turn::begin(nb::object awaited) {
  awaited_ = std::move(awaited);
  driven_ = nb::object();
  phase_ = worker_.phase(env_);
  number_ += 1;
}

PySendResult Turn::send(PyObject* value, PyObject** result) {
  const Executing executing(executing_);
  const WorkerObject::Working working(worker_, env_);
  PyObject* got = nullptr;
  PySendResult status = PYGEN_ERROR;
  try {
    if (!driven_.is_valid()) driven_ = iterator_of(awaited_);
    status = PyIter_Send(driven_.ptr(), value, &got);
  } catch (nb::python_error& error) {  // its __await__ has raised
    error.restore();
  }
  return drive(status, nb::steal(got), result);
}

nb::object Turn::raise_inside(nb::args exception) {
  const Executing executing(executing_);
  const WorkerObject::Working working(worker_, env_);
  PyObject* got = nullptr;
  try {
    if (!driven_.is_valid()) driven_ = iterator_of(awaited_);
    got = driven_.attr("throw")(exception[0]).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  }
  PySendResult status = got ? PYGEN_NEXT : PYGEN_ERROR;
  if (!got && PyErr_ExceptionMatches(PyExc_StopIteration)) {
    const nb::object stop = take_exception();
    got = PyObject_GetAttrString(stop.ptr(), "value");
    status = got ? PYGEN_RETURN : PYGEN_ERROR;
  }
  PyObject* result = nullptr;
  status = drive(status, nb::steal(got), &result);
  if (status == PYGEN_NEXT) return nb::steal(result);
  if (status == PYGEN_RETURN) {
    Py_XDECREF(result);
    PyErr_SetNone(PyExc_StopIteration);
  }
  throw nb::python_error();
}

// Goes on from what the driven one has done, until something has to be waited for.
PySendResult Turn::drive(PySendResult status, nb::object value, PyObject** result) {
  try {
    for (;;) {
      worker_.leave_if_forked();
      if (status == PYGEN_NEXT) {
        *result = value.release().ptr();
        return PYGEN_NEXT;
      }
      nb::object error = status == PYGEN_ERROR ? take_exception() : nb::object();
      if (failure_.is_valid()) {
        error = std::move(failure_);
        failure_ = value = nb::object();
      }
      nb::object next = worker_.go_on(env_, std::move(value), std::move(error));
      if (!next.is_valid()) break;
      begin(std::move(next));
      worker_.tell_waiting(*this);
      driven_ = iterator_of(awaited_);
      PyObject* got = nullptr;
      status = PyIter_Send(driven_.ptr(), Py_None, &got);
      value = nb::steal(got);
    }
  } catch (nb::python_error& error) {  // not one of the env: the worker cannot go on
    worker_.break_off(nb::borrow(error.value()));
  } catch (const std::exception& error) {
    worker_.break_off(nb::borrow(PyExc_RuntimeError)(to_text(error.what())));
  }
  clear_references();
  phase_ = "";
  number_ += 1;
  *result = Py_NewRef(Py_None);
  return PYGEN_RETURN;
}

int Turn::traverse(visitproc visit, void* arg) const {
  for (const nb::object* one : {&awaited_, &driven_, &task_, &failure_}) Py_VISIT(one->ptr());
  return 0;
}

void Turn::clear_references() { awaited_ = driven_ = task_ = failure_ = nb::object(); }

// ---- tasks -------------------------------------------------------------------------------------

EnvCoroutine::EnvCoroutine(WorkerObject& worker, std::int32_t env, nb::object coroutine)
    : worker_(worker), env_(env), coroutine_(std::move(coroutine)) {}

PySendResult EnvCoroutine::send(PyObject* value, PyObject** result) {
  const WorkerObject::Working working(worker_, env_);
  const PySendResult status = PyIter_Send(coroutine_.ptr(), value, result);
  worker_.leave_if_forked();
  return status;
}

nb::object EnvCoroutine::raise_inside(nb::args exception) {
  const WorkerObject::Working working(worker_, env_);
  return coroutine_.attr("throw")(*exception);
}

int EnvCoroutine::traverse(visitproc visit, void* arg) const {
  Py_VISIT(coroutine_.ptr());
  return 0;
}

// ---- for Python --------------------------------------------------------------------------------

namespace {

// What the types of both have in common: the methods of a coroutine.
template <class T>
struct CoroutineType {
  static T& in(PyObject* self) { return *nb::inst_ptr<T>(self); }

  static PySendResult send(PyObject* self, PyObject* value, PyObject** result) {
    try {
      return in(self).send(value, result);
    } catch (const nb::builtin_exception& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
      return PYGEN_ERROR;
    }
  }
  static PyObject* next(PyObject* self) {
    PyObject* result = nullptr;
    const PySendResult status = send(self, Py_None, &result);
    if (status == PYGEN_RETURN) end(result);
    return status == PYGEN_NEXT ? result : nullptr;
  }
  static nb::object send_method(nb::handle self, nb::handle value) {
    PyObject* result = nullptr;
    const PySendResult status = in(self.ptr()).send(value.ptr(), &result);
    if (status == PYGEN_NEXT) return nb::steal(result);
    if (status == PYGEN_RETURN) end(result);
    throw nb::python_error();
  }
  static PyObject* itself(PyObject* self) { return Py_NewRef(self); }
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(self) ? in(self).traverse(visit, arg) : 0;
  }
  static int clear(PyObject* self) {
    if (nb::inst_ready(self)) in(self).clear_references();
    return 0;
  }

  static nb::class_<T> make(nb::module_& m, const char* name) {
    static PyType_Slot slots[] = {{Py_am_send, reinterpret_cast<void*>(send)},
                                  {Py_am_await, reinterpret_cast<void*>(itself)},
                                  {Py_tp_iter, reinterpret_cast<void*>(itself)},
                                  {Py_tp_iternext, reinterpret_cast<void*>(next)},
                                  {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                  {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                  {0, nullptr}};
    nb::class_<T> type(m, name, nb::type_slots(slots));
    type.def("send", &send_method, "value"_a.none()).def("throw", &T::raise_inside).def("close", &T::close);
    // Of the env's own coroutine: debuggers and anyio look at these.
    for (const char* attribute : {"cr_await", "cr_code", "cr_frame", "cr_running", "cr_suspended"})
      type.def_prop_ro(attribute, [attribute](const T& self) { return nb::getattr(self.awaited(), attribute, nb::none()); });
    return type;
  }

 private:
  // Raises StopIteration with the value that a coroutine has returned, which may be a tuple or an exception.
  static void end(PyObject* result) {
    const nb::object value = nb::steal(result);
    PyErr_SetObject(PyExc_StopIteration, nb::borrow(PyExc_StopIteration)(value).ptr());
  }
};

}  // namespace

void register_turn(nb::module_& m) {
  CoroutineType<Turn>::make(m, "Turn")
      .def("fail_with", &Turn::fail_with, "error"_a)
      .def_prop_ro("env_id", &Turn::env)
      .def_prop_ro("phase", &Turn::phase)
      .def_prop_ro("number", &Turn::number)
      .def_prop_ro("awaited", &Turn::awaited)
      .def_prop_rw("task", &Turn::task, &Turn::set_task);
  CoroutineType<EnvCoroutine>::make(m, "EnvCoroutine");
}

}  // namespace stepmill
