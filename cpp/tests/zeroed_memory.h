// Memory for what otherwise lies in an arena.
#pragma once

#include <cstddef>
#include <new>

namespace stepmill::test {

class ZeroedMemory {
 public:
  explicit ZeroedMemory(std::size_t bytes) : at_(new (kAlignment) std::byte[bytes]{}) {}
  ~ZeroedMemory() { ::operator delete[](at_, kAlignment); }
  ZeroedMemory(const ZeroedMemory&) = delete;
  ZeroedMemory& operator=(const ZeroedMemory&) = delete;

  operator std::byte*() const { return at_; }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  std::byte* at_;
};

}  // namespace stepmill::test
