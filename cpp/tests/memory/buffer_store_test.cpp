#include "core/memory/buffer_store.h"

#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <new>
#include <thread>

#include "tests/check.h"
#include "tests/obedient_env.h"

namespace stepmill::buffer_store_test {

// Rows enough for a buffer of several pages.
constexpr std::int32_t kRows = 1000;

std::shared_ptr<BufferStore> make_store(const std::shared_ptr<Arena>& arena, std::int32_t rows = kRows) {
  return std::make_shared<BufferStore>(arena, BatchLayout(test::obedient_spec(), rows, false, false));
}

TEST(a_held_buffer_is_never_lent_again) {
  const auto store = make_store(Arena::create(Arena::Kind::kPrivate));
  Buffer* first = store->acquire();
  Buffer* second = store->acquire();
  CHECK(first != second);
  CHECK(store->held() == 2);
  store->release(first);
  store->release(second);
  CHECK(store->acquire() == second);  // the warmest first
  CHECK(store->acquire() == first);
  CHECK(store->made() == 2);
  Buffer* third = store->acquire();
  CHECK(third->offset != first->offset);
  CHECK(store->made() == 3);
}

TEST(a_lent_buffer_has_no_rows) {
  const auto store = make_store(Arena::create(Arena::Kind::kPrivate));
  Buffer* buffer = store->acquire();
  buffer->header->done = 5;
  buffer->header->want = 5;
  buffer->header->any_ended = 1;
  store->release(buffer);
  buffer = store->acquire();
  CHECK(buffer->header->done.load() == 0u);
  CHECK(buffer->header->want.load() == 0u);
  CHECK(buffer->header->any_ended.load() == 0u);
}

TEST(a_burst_gives_its_memory_back_and_a_steady_use_does_not) {
  const auto store = make_store(Arena::create(Arena::Kind::kPrivate));
  std::vector<Buffer*> burst;
  for (int i = 0; i < 100; ++i) burst.push_back(store->acquire());
  for (Buffer* buffer : burst) store->release(buffer);
  const auto resident = [&] {
    int count = 0;
    for (const Buffer* buffer : burst) count += !buffer->cold;
    return count;
  };
  CHECK(resident() == 100);
  for (int i = 0; i < 3 * 256; ++i) store->release(store->acquire());
  CHECK(resident() <= 8);
  CHECK(resident() >= 1);
  CHECK(store->made() == 100);
}

// What is lent must be backed: a write to a hole in shared memory is a SIGBUS where memory is short.
TEST(shared_memory_that_was_given_back_is_backed_before_it_is_lent_again) {
  const auto arena = Arena::create(Arena::Kind::kShared);
  const auto store = make_store(arena);
  const auto backed = [&] {
    struct stat status{};
    fstat(arena->descriptor(), &status);
    return status.st_blocks;
  };
  std::vector<Buffer*> burst;
  for (int i = 0; i < 100; ++i) burst.push_back(store->acquire());
  const auto full = backed();
  for (Buffer* buffer : burst) store->release(buffer);
  for (int i = 0; i < 3 * 256; ++i) store->release(store->acquire());
  CHECK(backed() <= full / 2);
  for (int i = 0; i < 100; ++i) CHECK(!store->acquire()->cold);
  CHECK(backed() == full);
}

TEST(an_arena_without_memory_is_an_error_and_the_store_goes_on) {
  EnvSpec huge = test::obedient_spec();
  huge.observation[0].shape = {std::int64_t{1} << 35};  // 256 GiB a row, never touched
  BufferStore store(Arena::create(Arena::Kind::kPrivate), BatchLayout(huge, 1, false, false));
  std::vector<Buffer*> held;
  bool refused = false;
  for (int i = 0; i < 16 && !refused; ++i) try {
      held.push_back(store.acquire());
    } catch (const std::bad_alloc&) {
      refused = true;
    }
  CHECK(refused);
  CHECK(store.held() == held.size());
  CHECK(store.made() == held.size());
  if (held.empty()) return;  // a machine that does not overcommit
  store.release(held.back());
  CHECK(store.acquire() == held.back());
}

TEST(a_store_outlives_its_pool_while_a_buffer_is_held) {
  auto store = make_store(Arena::create(Arena::Kind::kPrivate));
  Buffer* held = store->acquire();
  Buffer* idle = store->acquire();
  store->release(idle);
  held->columns.c.env_id[kRows - 1] = 77;
  store->close();
  CHECK(idle->cold);
  CHECK(held->columns.c.env_id[kRows - 1] == 77);
  store->release(held);
  CHECK(held->cold);
  CHECK(store->held() == 0);
}

// Batches are dropped by whichever thread collects the caller's garbage.
TEST(buffers_may_be_released_by_any_thread) {
  const auto store = make_store(Arena::create(Arena::Kind::kPrivate), 1);
  constexpr int kRounds = test::kSanitized ? 5'000 : 100'000;
  std::atomic<Buffer*> handover{nullptr};
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      Buffer* buffer;
      while (!(buffer = handover.exchange(nullptr))) std::this_thread::yield();
      CHECK(*buffer->columns.c.env_id == i);
      store->release(buffer);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    Buffer* buffer = store->acquire();
    *buffer->columns.c.env_id = i;
    while (handover.load()) std::this_thread::yield();
    handover = buffer;
    test::gets_on(static_cast<std::uint64_t>(i));
  }
  other.join();
  CHECK(store->held() == 0);
  const auto fresh = make_store(Arena::create(Arena::Kind::kPrivate), 1);
  fresh->acquire();
  CHECK(store->made() == fresh->made());  // what is made at once, and no more
}

// Small buffers share pages, which go back when all of them are idle.
TEST(small_buffers_give_their_memory_back_together) {
  const auto arena = Arena::create(Arena::Kind::kPrivate);
  const auto store = make_store(arena, 1);
  std::vector<Buffer*> held;
  for (int i = 0; i < 1000; ++i) {
    held.push_back(store->acquire());
    *held.back()->columns.c.env_id = 7;
  }
  Buffer* kept = held[500];
  store->close();
  for (Buffer* buffer : held)
    if (buffer != kept) store->release(buffer);
  CHECK(*kept->columns.c.env_id == 7);
  // Punched memory reads as zeros.
  CHECK(*held[0]->columns.c.env_id == 0);
  CHECK(*held[999]->columns.c.env_id == 0);
  store->release(kept);
  CHECK(*kept->columns.c.env_id == 0);
}

}  // namespace stepmill::buffer_store_test
