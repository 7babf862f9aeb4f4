// A file descriptor that is closed with its owner.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace stepmill {

class Descriptor {
 public:
  Descriptor() = default;  // none
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  // Another descriptor of the same file. Throws std::system_error if none is left.
  static Descriptor duplicate(int descriptor) {
    const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) throw std::system_error(errno, std::generic_category(), "duplicating a descriptor");
    return Descriptor(copy);
  }

  int get() const { return descriptor_; }  // -1: none

 private:
  int descriptor_ = -1;
};

}  // namespace stepmill
