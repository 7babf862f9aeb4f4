// Wakes a caller that waits for rows in an event loop, as asyncio is one, where it cannot sleep on a futex: an eventfd,
// which the loop polls among its other descriptors.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace stepmill {

// In any process that has the descriptor; -1: nobody waits in this way. A counter that is full wakes the loop as well.
inline void ring_rows_event(int descriptor) {
  const std::uint64_t one = 1;
  if (descriptor >= 0) (void)!write(descriptor, &one, sizeof one);
}

class RowsEvent {
 public:
  RowsEvent() = default;  // none yet
  ~RowsEvent() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  RowsEvent(const RowsEvent&) = delete;
  RowsEvent& operator=(const RowsEvent&) = delete;

  void open() {
    if (descriptor_ >= 0) return;
    descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  int descriptor() const { return descriptor_; }
  void ring() const { ring_rows_event(descriptor_); }
  // To be called before one looks for rows: what is rung for afterwards wakes the loop again.
  void fall_silent() const {
    std::uint64_t rung;
    if (descriptor_ >= 0) (void)!read(descriptor_, &rung, sizeof rung);
  }

 private:
  int descriptor_ = -1;
};

}  // namespace stepmill
