// The memory of a pool: one reserved range of addresses that grows at its end.
//
// Nothing in an arena ever moves, so pointers into it and arrays over it stay good. A private arena
// is ordinary memory; a shared one is a memfd that other processes map by its descriptor, at an
// address of their own: what lies in it refers to other parts by offset, never by pointer. Its file is as long as the
// part that is in use, and sealed: it grows, and nobody can make it shorter, which would be a SIGBUS of everybody else. A
// process that writes beyond its end harms itself only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stepmill {

class Arena {
 public:
  enum class Kind { kPrivate, kShared };

  static std::shared_ptr<Arena> create(Kind kind);
  // Maps the shared arena that another process created, of which it says how much is `reserved`. Only its creator
  // makes it grow. Keeps no descriptor: code that runs in this process may close and reuse any number.
  static std::shared_ptr<Arena> attach(int descriptor, std::size_t reserved);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Adds zeroed memory and returns its offset. Throws std::bad_alloc when the machine or the
  // reserved range has no more; what was there before stays usable.
  std::size_t grow(std::size_t bytes, std::size_t alignment);

  // Gives the whole pages of a range back to the system. They read as zeros afterwards.
  void punch(std::size_t offset, std::size_t bytes);
  // Gets memory for a punched range before it is written to again. Throws std::bad_alloc.
  void restore(std::size_t offset, std::size_t bytes);

  // Replaces whole pages of a shared arena by memory of this process alone, with the same contents, and
  // undoes that. False, and nothing done, where there is no memory.
  bool make_private(std::size_t offset, std::size_t bytes);
  bool make_shared(std::size_t offset, std::size_t bytes);

  // Closes the descriptor of a shared arena that nobody else needs any more. What is mapped stays.
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
