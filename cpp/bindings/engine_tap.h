// What those who watch a pool see of its engine: `stepmill._native.Tap`. And what `stepmill top` reads of the pools of
// other processes (core/counters/counter_reader.h). stepmill/hosts/observing.py makes snapshots of both.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "bindings/engine.h"
#include "core/counters/pool_counters.h"

namespace stepmill {

// Does not keep the engine: a pool ends with its last user, and that is not its watcher.
class Tap {
 public:
  explicit Tap(nanobind::handle engine);

  // The words of the pool, of its calling thread and of its workers (core/counters/pool_record.h), as bytes. Any thread
  // may ask, also when the pool has ended.
  nanobind::object counters() const;
  // What only the process itself knows, or knows better, in the thread that uses the pool.
  nanobind::dict figures() const;
  // Fills a book (core/watch_book.h) from every result. Now and then, when the book says, and for results with failures,
  // `look` is called with the result before it is given away, and with the error that goes with it, if any. It runs in
  // the calling thread, and may use the host, of whose envs those of the result are idle. None: nobody watches.
  void watch(nanobind::object book, nanobind::object look) const;

 private:
  nanobind::object engine() const { return engine_(); }  // None: it is gone

  const nanobind::object engine_;  // a weak reference
  const std::shared_ptr<const PoolCounters> counters_;
};

void register_tap(nanobind::module_& m);

}  // namespace stepmill
