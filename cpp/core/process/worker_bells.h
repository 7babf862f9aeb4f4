// What wakes a worker: a futex or, if it has an event loop, a descriptor.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <vector>

#include "core/process/descriptor.h"
#include "core/process/process_layout.h"

namespace stepmill {

inline Descriptor make_event() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return Descriptor(event);
}

class WorkerBells {
 public:
  WorkerBells(const ProcessTables& tables, const ProcessOptions& options) : tables_(tables) {
    for (std::int32_t worker = 0; options.has_loops() && worker < options.num_workers; ++worker)
      events_.push_back(make_event());
  }

  int of(std::int32_t worker) const { return events_.empty() ? -1 : events_[static_cast<std::size_t>(worker)].get(); }

  // Called after words were written. The worker says that it sleeps before it looks at the bell for the last time, so
  // either we see that it sleeps, or it sees the bell.
  void ring(std::int32_t worker) const {
    WorkerBlock& block = tables_.worker(worker);
    block.bell.fetch_add(1, std::memory_order_seq_cst);
    if (block.sleeping.load(std::memory_order_seq_cst) == 0) return;
    if (events_.empty())
      futex_wake(block.bell, 1, true);
    else
      wake(worker);
  }

  // Asks a worker with an event loop whether it is alive: it says so as soon as its loop comes around, even if an env
  // has overwritten what it says of its sleep.
  std::uint32_t ask_alive(std::int32_t worker) const {
    const std::uint32_t number = tables_.worker(worker).asked_alive.fetch_add(1, std::memory_order_seq_cst) + 1;
    wake(worker);
    return number;
  }

 private:
  void wake(std::int32_t worker) const {
    const std::uint64_t one = 1;
    (void)!write(of(worker), &one, sizeof one);
  }

  const ProcessTables& tables_;
  std::vector<Descriptor> events_;  // by worker, the same for all of its lives
};

}  // namespace stepmill
