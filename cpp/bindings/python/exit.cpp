#include "bindings/python/exit.h"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>

namespace stepmill {
namespace {

std::atomic<unsigned long> exiting_thread{0};  // 0: the interpreter goes on

}  // namespace

void begin_exit() { exiting_thread.store(PyThread_get_thread_ident(), std::memory_order_relaxed); }

bool exit_has_begun() { return exiting_thread.load(std::memory_order_relaxed) != 0; }

void end_thread_at_exit() {
  const unsigned long exiting = exiting_thread.load(std::memory_order_relaxed);
  if (exiting == 0 || exiting == PyThread_get_thread_ident()) [[likely]]
    return;
  PyErr_SetNone(PyExc_SystemExit);
  throw nanobind::python_error();
}

void hang() {
  while (true) pause();
}

}  // namespace stepmill
