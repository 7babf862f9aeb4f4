// What a worker sends besides arrays: pickled infos, results of calls, exceptions.
//
// Each life of a worker has a shared file of memory, in which only the worker allocates: one block per env. The worker
// writes the block before the row, and the pool reads it when the row is received. An env has at most one row on its
// way, so a block is never overwritten before it has been read; and there is no pipe that could fill up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace stepmill {

class Outbox {
 public:
  // A new, empty outbox; the caller owns the descriptor.
  static int create();
  // Maps one: the pool to read, the worker to write. The worker keeps no descriptor: the code of its envs may close and
  // reuse any number, and a system call on it would then be on their file. It works on the mapping instead.
  Outbox(int descriptor, bool writable);
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // ---- the pool ----

  // The bytes at `offset`, or nothing if they are outside, or were never written: the numbers come from a worker, and
  // reading a hole would fill it with memory.
  std::span<const std::byte> read(std::uint64_t offset, std::uint64_t bytes) const;
  std::size_t memory() const;  // that it takes

  // ---- the worker ----

  struct Block {
    std::uint64_t offset = 0, capacity = 0;
  };
  // Makes room for `bytes` in `block`, and moves it if necessary. Throws std::bad_alloc.
  std::byte* reserve(Block& block, std::uint64_t bytes);

 private:
  Block allocate(std::uint64_t bytes);
  bool back(const Block& block);
  void give_back(const Block& block);

  int descriptor_;  // -1 in a worker
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;     // of the mapping
  std::uint64_t used_ = 64;  // offset 0 means none
  std::map<std::uint64_t, std::vector<Block>> free_;  // by capacity
};

}  // namespace stepmill
