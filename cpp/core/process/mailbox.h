// What goes with the next action or call of an env and does not fit in arrays (reset options, objects, the call
// itself): bytes in the arena, where the env's worker reads them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/memory/arena.h"
#include "core/process/process_layout.h"

namespace stepmill {

class Mailbox {
 public:
  // Throws if there is no memory, and then changes nothing.
  void put(Arena& arena, std::span<const std::byte> mail) {
    if (mail.size() > capacity_) {
      const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(mail.size(), 256));
      offset_ = arena.grow(capacity, kCacheLine);
      capacity_ = capacity;
    }
    if (!mail.empty()) std::memcpy(arena.at(offset_), mail.data(), mail.size());
    bytes_ = mail.size();
  }
  void clear() { bytes_ = 0; }

  std::size_t offset() const { return offset_; }
  std::size_t bytes() const { return bytes_; }
  std::uint64_t seal(const Arena& arena, std::int32_t env, std::uint32_t epoch) const {
    return bytes_ == 0 ? 0 : seal_of({arena.at(offset_), bytes_}, env, epoch);
  }

 private:
  std::size_t offset_ = 0, capacity_ = 0;
  std::size_t bytes_ = 0;  // for the next order
};

}  // namespace stepmill
