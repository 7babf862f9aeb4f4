// The memory of a pool: one reserved range of addresses that grows at its end.
//
// Nothing in an arena ever moves, so pointers into it and arrays over it stay valid. A private arena is ordinary
// memory. A shared one is a memfd that other processes map by its descriptor, each at its own address: so its parts
// refer to each other by offset, never by pointer. Its file is as long as the part that is in use, and sealed: it can
// grow, but no process can make it shorter, which would cause a SIGBUS in all the others. A process that writes beyond
// the end harms only itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stepmill {

class Arena {
 public:
  enum class Kind { kPrivate, kShared };

  static std::shared_ptr<Arena> create(Kind kind);
  // Maps a shared arena that another process created with `reserved` bytes of addresses. Only its creator makes it
  // grow. Keeps no descriptor: code that runs in this process may close and reuse any number.
  static std::shared_ptr<Arena> attach(int descriptor, std::size_t reserved);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Adds zeroed memory and returns its offset. Throws std::bad_alloc if the machine or the reserved range has no more;
  // the memory from before stays usable.
  std::size_t grow(std::size_t bytes, std::size_t alignment);

  // Returns the whole pages of a range to the system. They read as zeros afterwards.
  void punch(std::size_t offset, std::size_t bytes);
  // Gets memory for a punched range before it is written to again. Throws std::bad_alloc.
  void restore(std::size_t offset, std::size_t bytes);

  // Replaces whole pages of a shared arena with memory that only this process has, with the same contents, and undoes
  // that. Returns false, and does nothing, if there is no memory.
  bool make_private(std::size_t offset, std::size_t bytes);
  bool make_shared(std::size_t offset, std::size_t bytes);

  // Closes the descriptor of a shared arena when no other process needs it any more. Mappings stay.
  void close_descriptor();

  std::byte* at(std::size_t offset) const { return base_ + offset; }
  std::size_t used() const { return used_; }
  std::size_t reserved() const { return reserved_; }
  bool shared() const { return shared_; }
  int descriptor() const { return descriptor_; }

 private:
  Arena() = default;
  bool reserve(std::size_t size);
  void shrink_to(std::size_t size);

  std::byte* base_ = nullptr;
  std::size_t reserved_ = 0;
  std::size_t committed_ = 0;  // whole pages, usable
  std::size_t used_ = 0;
  int descriptor_ = -1;
  bool shared_ = false;
};

}  // namespace stepmill
