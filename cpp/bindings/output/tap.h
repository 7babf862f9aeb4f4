// Where results are seen on their way to the caller, by somebody who watches the pool.
#pragma once

#include <nanobind/nanobind.h>

#include "core/memory/wait.h"
#include "core/watch_book.h"

namespace stepmill {

// Fills a book (core/watch_book.h) from every result. Now and then, when the book says, and for results with failures,
// `look` is called with the result before it is given away, and with the error that goes with it, if any. It runs in the
// calling thread, and may use the host, of whose envs those of the result are idle.
class Tap {
 public:
  Tap(nanobind::object book, nanobind::object look)
      : book_object_(std::move(book)), look_(std::move(look)), book_(&nanobind::cast<WatchBook&>(book_object_)) {}

  // Writes a batch into the book; whether it is time for a closer look.
  bool note(const Batch& batch, const Pool& pool, std::span<const Fault> faults) {
    book_->add(batch, pool.spec().max_num_players, pool.options().table.reward_is_float32 != 0, faults);
    const auto now = Clock::now();
    if (now < next_look_ && faults.empty()) return false;
    next_look_ = now + std::chrono::nanoseconds(book_->look_every_ns.load(std::memory_order_relaxed));
    return true;
  }
  const nanobind::object& look() const { return look_; }

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(book_object_.ptr());
    Py_VISIT(look_.ptr());
    return 0;
  }

 private:
  nanobind::object book_object_, look_;
  WatchBook* book_;  // the same
  Clock::time_point next_look_ = Clock::time_point::min();
};

}  // namespace stepmill
