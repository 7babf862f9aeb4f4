// The core allocates nothing in steady state: every `new` of the program is counted here.

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>

#include "core/pool.h"
#include "tests/check.h"
#include "tests/pool_driver.h"

namespace {

std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined: the compiler would see `free` on what came from `new` and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes, 1); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace stepmill::allocation_test {

using test::Driver;
using test::DriverOptions;

constexpr int kWarm = test::kSanitized ? 200 : 2'000, kBatches = test::kSanitized ? 1'000 : 3'000;

// Receives a batch, keeps it for a few more as a caller does, and sends its envs again.
class Loop {
 public:
  explicit Loop(const DriverOptions& options) : driver_(options), ids_(static_cast<std::size_t>(options.num_envs)) {
    std::iota(ids_.begin(), ids_.end(), 0);
    driver_.send(ids_, test::kGoOn);
  }

  void run(int batches) {
    for (int i = 0; i < batches; ++i) {
      const Batch batch = driver_.recv();
      const std::int32_t* first = batch.buffer->columns.c.env_id;
      ids_.assign(first, first + batch.rows);
      Batch& oldest = held_[static_cast<std::size_t>(i) % held_.size()];
      if (oldest.buffer) driver_.drop(oldest);
      oldest = batch;
      for (const std::int32_t env : ids_) driver_.write(env, i % 7 == 0 ? test::kTerminate : test::kGoOn);
      driver_.pool.send(ids_, false, i % 2 == 0);
    }
  }
  int threads_started() const { return driver_.pool.threads_started(); }

 private:
  Driver driver_;
  std::vector<std::int32_t> ids_;
  std::array<Batch, 3> held_;
};

void expect_no_allocation(const DriverOptions& options) {
  Loop loop(options);
  loop.run(kWarm);
  // Threads are started when there is work worth one, and starting one allocates: a steady state is
  // one in which none was started.
  for (int attempt = 0; attempt < 10; ++attempt) {
    const int threads = loop.threads_started();
    const std::int64_t before = allocations;
    loop.run(kBatches);
    if (loop.threads_started() != threads) continue;
    CHECK(allocations == before);
    return;
  }
  CHECK(false);
}

DriverOptions options_for(std::int32_t envs, std::int32_t batch, std::int32_t threads, std::int64_t work,
                          sm_autoreset mode) {
  DriverOptions options;
  options.num_envs = envs;
  options.batch_size = batch;
  options.num_threads = threads;
  options.work = work;
  options.autoreset = mode;
  return options;
}

TEST(the_counter_counts) {
  const std::int64_t before = allocations;
  ::operator delete(::operator new(8));
  CHECK(allocations >= before + 1);
}

TEST(a_sync_pool_allocates_nothing_in_steady_state) {
  for (const std::int32_t threads : {0, 1, 4})
    for (const std::int64_t work : {1, 500})
      expect_no_allocation(options_for(16, 16, threads, work, SM_NEXT_STEP));
  expect_no_allocation(options_for(16, 16, 2, 500, SM_SAME_STEP));
}

TEST(an_async_pool_allocates_nothing_in_steady_state) {
  for (const std::int32_t threads : {0, 1, 4})
    for (const std::int64_t work : {1, 500})
      expect_no_allocation(options_for(16, 5, threads, work, SM_NEXT_STEP));
  expect_no_allocation(options_for(16, 5, 2, 500, SM_SAME_STEP));
}

TEST(shared_memory_is_no_different) {
  DriverOptions options = options_for(16, 5, 2, 500, SM_NEXT_STEP);
  options.arena = Arena::Kind::kShared;
  expect_no_allocation(options);
}

}  // namespace stepmill::allocation_test
