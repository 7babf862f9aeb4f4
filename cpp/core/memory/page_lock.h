// Pages that a device reads by itself, while the program goes on.
//
// Only then is a copy to a GPU asynchronous. Such pages must stay what they are: if they were returned to the system,
// unmapped or replaced while they are locked, the device would go on with the old ones. So a buffer store unlocks memory
// before it does any of this, and does not do it where unlocking fails.
#pragma once

#include <cstddef>

namespace stepmill {

class PageLock {
 public:
  virtual ~PageLock() = default;

  // Whole pages, none of them locked. Returns whether they are now: if not, they stay ordinary memory.
  virtual bool lock(std::byte* from, std::size_t bytes) noexcept = 0;
  // What was locked in one call. No copy may be reading it. Returns whether the device has let go of it.
  virtual bool unlock(std::byte* from) noexcept = 0;
  // Waits until no copy reads any memory.
  virtual void settle() noexcept = 0;
};

}  // namespace stepmill
