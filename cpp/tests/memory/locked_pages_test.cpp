// A buffer store whose memory is locked for a device: what the device may read is never punched, replaced or unmapped.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "core/memory/buffer_store.h"
#include "tests/check.h"
#include "tests/obedient_env.h"

namespace stepmill::locked_pages_test {

constexpr std::int32_t kRows = 1000;  // enough for a buffer of several pages

// Locks nothing, but checks that locked memory is left alone: when it is unlocked, its last page still has the mark that
// it got when it was locked. A page that was punched has not.
struct Witness final : PageLock {
  std::map<std::byte*, std::size_t> locked;
  int settled = 0, refused = 0;
  bool refuse_lock = false, refuse_unlock = false;

  static std::byte& mark(std::byte* from, std::size_t bytes) { return from[bytes - 1]; }

  bool lock(std::byte* from, std::size_t bytes) noexcept override {
    refused += refuse_lock;
    if (refuse_lock) return false;
    CHECK(locked.emplace(from, bytes).second);
    CHECK(reinterpret_cast<std::uintptr_t>(from) % 4096 == 0);
    CHECK(bytes % 4096 == 0);
    mark(from, bytes) = std::byte{0x5a};
    return true;
  }
  bool unlock(std::byte* from) noexcept override {
    if (refuse_unlock) return false;
    const auto found = locked.find(from);
    CHECK(found != locked.end());
    CHECK(mark(from, found->second) == std::byte{0x5a});
    locked.erase(found);
    return true;
  }
  void settle() noexcept override { ++settled; }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& one : locked) sum += one.second;
    return sum;
  }
};

struct Locked {
  std::shared_ptr<Arena> arena;
  std::shared_ptr<Witness> witness = std::make_shared<Witness>();
  std::shared_ptr<BufferStore> store;

  explicit Locked(Arena::Kind kind, std::int32_t rows = kRows)
      : arena(Arena::create(kind)),
        store(std::make_shared<BufferStore>(arena, BatchLayout(test::obedient_spec(), rows, false, false))) {
    store->lock_pages(witness);
  }
};

// The child ends at once: only what the parent does before counts.
void fork_once() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
}

TEST(what_is_lent_is_locked_once_and_stays_so) {
  for (const auto kind : {Arena::Kind::kPrivate, Arena::Kind::kShared}) {
    Locked pool(kind);
    for (int i = 0; i < 1000; ++i) {
      Buffer* first = pool.store->acquire();
      Buffer* second = pool.store->acquire();
      CHECK(first->slab->locked);
      CHECK(second->slab->locked);
      pool.store->release(first);
      pool.store->release(second);
    }
    CHECK(pool.witness->locked.size() == 2);
    CHECK(pool.store->locked() == pool.witness->bytes());
  }
}

TEST(memory_is_unlocked_before_it_goes_back_to_the_system) {
  for (const auto kind : {Arena::Kind::kPrivate, Arena::Kind::kShared})
    for (const std::int32_t rows : {1, kRows}) {  // many buffers in a slab, and one
      Locked pool(kind, rows);
      std::vector<Buffer*> burst;
      for (int i = 0; i < 600; ++i) burst.push_back(pool.store->acquire());
      const std::size_t most = pool.store->locked();
      for (Buffer* buffer : burst) pool.store->release(buffer);
      for (int i = 0; i < 3 * 256; ++i) pool.store->release(pool.store->acquire());
      CHECK(pool.store->locked() < most / 2);
      CHECK(pool.store->locked() == pool.witness->bytes());
      // Lent again, it is locked again.
      for (int i = 0; i < 600; ++i) CHECK(pool.store->acquire()->slab->locked);
      CHECK(pool.store->locked() == most);
    }
}

TEST(a_buffer_that_is_held_stays_locked_after_the_pool) {
  Locked pool(Arena::Kind::kShared);
  Buffer* held = pool.store->acquire();
  Buffer* idle = pool.store->acquire();
  pool.store->release(idle);
  pool.store->close();
  CHECK(held->slab->locked);
  CHECK(!idle->slab->locked);
  pool.store->release(held);
  CHECK(pool.witness->locked.empty());
}

TEST(everything_is_unlocked_before_it_is_unmapped) {
  Locked pool(Arena::Kind::kPrivate);
  pool.store->acquire();
  CHECK(pool.witness->locked.size() == 1);
  pool.store.reset();
  CHECK(pool.witness->locked.empty());
}

TEST(memory_that_the_device_keeps_is_neither_punched_nor_unmapped) {
  Locked pool(Arena::Kind::kPrivate);
  Buffer* buffer = pool.store->acquire();
  std::byte* at = pool.arena->at(buffer->offset);
  const std::size_t bytes = buffer->slab->bytes;
  pool.store->release(buffer);
  pool.witness->refuse_unlock = true;
  pool.store->close();
  CHECK(Witness::mark(at, bytes) == std::byte{0x5a});
  pool.store.reset();
  pool.arena.reset();
  CHECK(Witness::mark(at, bytes) == std::byte{0x5a});  // mapped: else this ends the program
}

TEST(a_fork_finds_nothing_locked_and_no_copy_under_way) {
  for (const auto kind : {Arena::Kind::kPrivate, Arena::Kind::kShared}) {
    Locked pool(kind);
    Buffer* held = pool.store->acquire();
    held->columns.c.env_id[kRows - 1] = 77;
    pool.store->hand_out(held);
    fork_once();
    CHECK(pool.witness->settled == 1);
    CHECK(pool.witness->locked.empty());
    CHECK(held->columns.c.env_id[kRows - 1] == 77);
    pool.store->release(held);
    CHECK(pool.store->acquire() == held);
    CHECK(held->slab->locked);
    pool.store->release(held);
  }
}

TEST(a_fork_without_locked_memory_waits_for_nothing) {
  Locked pool(Arena::Kind::kShared);
  fork_once();
  CHECK(pool.witness->settled == 0);
}

TEST(memory_that_cannot_be_locked_is_lent_as_it_is) {
  Locked pool(Arena::Kind::kShared);
  pool.witness->refuse_lock = true;
  for (int i = 0; i < 100; ++i) pool.store->release(pool.store->acquire());
  CHECK(pool.store->locked() == 0);
  CHECK(pool.witness->refused == 1);  // asking takes time
}

}  // namespace stepmill::locked_pages_test
