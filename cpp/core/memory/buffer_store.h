// Batch buffers: lent to the ring, handed to the caller, taken back when the caller releases them.
//
// A buffer is never reused while the caller holds it, so the arrays that `recv` returned do not change; when all
// buffers are held, the arena grows. The store lives as long as its last buffer is held, even after the pool is closed.
// All of its bookkeeping is private memory of the process that made the pool.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/memory/arena.h"
#include "core/memory/batch_layout.h"
#include "core/memory/page_lock.h"

namespace stepmill {

class BufferStore;

// Buffers that return their memory together: as many small ones as fill some pages, or one large one.
struct Slab {
  std::size_t offset = 0, bytes = 0;
  std::size_t size = 0;  // buffers in it
  std::size_t cold = 0;  // how many of those may lose their memory
  // A device may read it by itself. Then it is never punched, replaced or unmapped: it is unlocked first.
  bool locked = false;
  bool lock_refused = false;  // since it last got its memory: asking again takes time
};

struct Buffer {
  std::size_t offset = 0;
  Slab* slab = nullptr;
  BatchHeader* header = nullptr;
  Columns columns;
  bool cold = false;  // idle, and its memory was not needed recently
  bool handed_out = false;  // only the caller may still write into it
  bool apart = false;       // a fork has happened since: only this process has its pages
};

class BufferStore {
 public:
  BufferStore(std::shared_ptr<Arena> arena, const BatchLayout& layout);
  ~BufferStore();

  // A buffer with no rows done: the most recently released one, because its memory is warm.
  Buffer* acquire();
  void release(Buffer* buffer);
  // From now on only the caller has it.
  void hand_out(Buffer* buffer);

  // From now on, buffers that are lent are locked for copies to a device, wherever the system allows it. Whoever copies
  // holds the buffer until the copy is done.
  void lock_pages(std::shared_ptr<PageLock> lock);

  // Before a fork: moves what the caller holds into memory that only this process has. So the child gets its own copy,
  // which does not change when workers write into the shared memory again. And unlocks everything: after a fork, the
  // first write to a page of private memory gives this process another page, and the device would keep the old one.
  void prepare_fork();

  // From now on a released buffer returns its memory at once.
  void close();

  const BatchLayout& layout() const { return layout_; }
  std::size_t held() const { return held_.load(std::memory_order_relaxed); }  // buffers lent out
  std::size_t made() const;  // buffers that exist
  std::size_t locked() const;  // bytes that are locked

 private:
  void tell_of_forks();
  void turn_window();
  void trim(std::size_t keep);
  void grow();
  void cool(Buffer& buffer);
  void warm(Buffer& buffer);
  void lock_slab(Slab& slab);
  bool unlock_slab(Slab& slab);
  bool unlock_all();

  // As many idle buffers keep their pages as were recently needed: the most that were held at once in the last two
  // windows of this many `acquire`s. So a rollout that holds a hundred batches and drops them finds warm memory the
  // next time, and one that stops holding them returns the memory.
  static constexpr std::size_t kWindow = 256;
  static constexpr std::size_t kSpare = 4;

  const std::shared_ptr<Arena> arena_;
  const BatchLayout layout_;
  const std::size_t span_;  // of one buffer
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Buffer*> idle_;  // the warm ones at the end
  // Written with the lock held, read without: a count and nothing else, so relaxed order is enough.
  std::atomic<std::size_t> held_{0};
  std::size_t acquired_ = 0, peak_ = 0, last_peak_ = 0;
  bool closed_ = false;
  bool told_of_forks_ = false;
  std::shared_ptr<PageLock> page_lock_;  // null: nothing is locked
};

}  // namespace stepmill
