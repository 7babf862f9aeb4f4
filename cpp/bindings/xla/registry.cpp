#include "bindings/xla/registry.h"

#include <atomic>
#include <random>
#include <vector>

#include "bindings/python/exit.h"
#include "bindings/python/forked.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

struct XlaRegistry {
  const std::uint32_t generation = process_generation();
  std::mutex mutex;
  std::vector<std::shared_ptr<XlaSeat>> seats;  // null: free
};

// Never freed: threads of XLA may look into it until the process is gone.
std::atomic<XlaRegistry*> the_registry{nullptr};

// With the interpreter lock. In a forked child, the lock of its parent's may be held by a thread that is not here.
XlaRegistry& own_registry() {
  XlaRegistry* now = the_registry.load(std::memory_order_acquire);
  if (!now || now->generation != process_generation()) {
    now = new XlaRegistry();
    the_registry.store(now, std::memory_order_release);
  }
  return *now;
}

}  // namespace

XlaHold::XlaHold(Engine& engine, PyObject* object, std::vector<XlaColumn> columns, std::vector<std::string> info_names)
    : columns_(std::move(columns)), info_names_(std::move(info_names)), seat_(std::make_shared<XlaSeat>()) {
  std::random_device random;
  XlaRegistry& registry = own_registry();
  const std::lock_guard lock(registry.mutex);
  std::size_t number = 0;
  while (number < registry.seats.size() && registry.seats[number]) ++number;
  if (number == registry.seats.size()) registry.seats.emplace_back();
  seat_->engine = &engine;
  seat_->object = object;
  seat_->handle = {static_cast<std::uint32_t>(number), random(), random()};
  registry.seats[number] = seat_;
}

XlaHold::~XlaHold() { give_up(); }

void XlaHold::give_up() {
  if (!seat_) return;
  XlaRegistry* registry = the_registry.load(std::memory_order_acquire);
  if (registry->generation == process_generation()) {
    const std::lock_guard lock(registry->mutex);
    auto& seat = registry->seats[seat_->handle[0]];
    if (seat == seat_) seat.reset();
  } else {
    new std::shared_ptr<XlaSeat>(std::move(seat_));  // leaked, with a lock that may be held
    return;
  }
  const nb::gil_scoped_release release;  // whoever is inside may need it to get out
  {
    std::unique_lock lock(seat_->mutex);
    seat_->left.wait(lock, [this] { return seat_->inside == 0; });
    seat_->engine = nullptr;
    seat_->object = nullptr;
  }
  seat_.reset();
}

XlaVisit::XlaVisit(const XlaHandle& handle) {
  XlaRegistry* registry = the_registry.load(std::memory_order_acquire);
  if (registry && registry->generation != process_generation())
    throw StaleHandle{"ForkedError: the handle belongs to the process that this one was forked from, whose pools are not served here: "
                      "make a pool in this process, and call its xla()"};
  if (registry) {
    const std::lock_guard lock(registry->mutex);
    if (handle[0] < registry->seats.size()) seat_ = registry->seats[handle[0]];
  }
  if (seat_ && seat_->handle == handle) {
    const std::lock_guard lock(seat_->mutex);
    if (seat_->engine) {
      seat_->inside += 1;
      return;
    }
  }
  throw StaleHandle{"ClosedError: no pool has this handle: expected the one that xla() has returned, or one that came from it, of a "
                    "pool of this process that still exists. Keep the pool as long as its programs run, and call xla() again "
                    "in a new process"};
}

XlaVisit::~XlaVisit() {
  {
    const std::lock_guard lock(seat_->mutex);
    seat_->inside -= 1;
    seat_->left.notify_all();
  }
  if (!held_ || exit_has_begun()) return;
  const nb::gil_scoped_acquire acquire;
  Py_DECREF(held_);  // perhaps the last one
}

bool XlaVisit::hold() {
  if (held_) return true;
  PyObject* object = seat_->object;
  if (!object || Py_REFCNT(object) == 0) return false;
  held_ = Py_NewRef(object);
  return true;
}

}  // namespace stepmill
