#include "core/ready_queue.h"

#include <array>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/zeroed_memory.h"

namespace stepmill::ready_queue_test {

// A queue in memory of its own.
struct Queue {
  explicit Queue(std::int32_t envs)
      : memory(ReadyQueue::bytes(envs)), queue(memory, envs) {}

  test::ZeroedMemory memory;
  ReadyQueue queue;
};

TEST(envs_come_out_in_the_order_they_went_in) {
  Queue q(5);
  std::array<std::int32_t, 5> envs{4, 2, 0, 1, 3}, out{};
  q.queue.push(envs);
  CHECK(q.queue.size() == 5);
  CHECK(q.queue.pop(2, out.data()) == 2);
  CHECK(out[0] == 4);
  CHECK(out[1] == 2);
  CHECK(q.queue.pop(9, out.data()) == 3);
  CHECK(out[2] == 3);
  CHECK(q.queue.pop(1, out.data()) == 0);
  CHECK(q.queue.size() == 0);
}

TEST(the_queue_goes_round_for_any_number_of_envs) {
  for (std::int32_t envs = 1; envs <= 9; ++envs) {
    Queue q(envs);
    std::vector<std::int32_t> all(static_cast<std::size_t>(envs)), out(all.size());
    std::iota(all.begin(), all.end(), 0);
    for (int round = 0; round < 50; ++round) {
      q.queue.push(all);
      CHECK(q.queue.pop(envs, out.data()) == envs);
      CHECK(out == all);
    }
  }
}

// The caller sends an env again as soon as it came back, while a thread that took another one has
// not moved on: places are reused under slow hands.
TEST(every_env_pushed_is_taken_exactly_once) {
  constexpr std::int32_t kEnvs = 3;
  constexpr int kThreads = 4;
  constexpr int kPushes = test::kSanitized ? 100'000 : 1'000'000;
  Queue q(kEnvs);
  std::array<std::atomic<int>, kEnvs> queued{};  // 1 from the push to the pop
  std::array<std::atomic<int>, kEnvs> back{};    // 1 when it came back
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      std::int32_t out[kEnvs];
      while (!stop.load(std::memory_order_relaxed)) {
        const std::int32_t count = q.queue.pop(2, out);
        if (count == 0) std::this_thread::yield();
        for (std::int32_t k = 0; k < count; ++k) {
          const auto env = static_cast<std::size_t>(out[k]);
          CHECK(env < std::size_t{kEnvs});
          CHECK(queued[env].exchange(0, std::memory_order_relaxed) == 1);
          back[env].store(1, std::memory_order_release);
        }
      }
    });
  for (auto& flag : back) flag = 1;
  // A lost env never comes back: stop asking when all have been silent for very long.
  std::int64_t idle = 0;
  for (int pushed = 0; pushed < kPushes && idle < 500'000'000 && test::failed_checks == 0;) {
    if (idle > 100) std::this_thread::yield();
    for (std::int32_t env = 0; env < kEnvs; ++env) {
      if (back[static_cast<std::size_t>(env)].load(std::memory_order_acquire) == 0) {
        idle += 1;
        continue;
      }
      idle = 0;
      back[static_cast<std::size_t>(env)].store(0, std::memory_order_relaxed);
      queued[static_cast<std::size_t>(env)].store(1, std::memory_order_relaxed);
      q.queue.push({&env, 1});
      test::gets_on(static_cast<std::uint64_t>(++pushed));
    }
  }
  CHECK(idle < 500'000'000);
  while (test::failed_checks == 0 && q.queue.size() > 0) std::this_thread::yield();
  stop = true;
  for (auto& thread : threads) thread.join();
}

}  // namespace stepmill::ready_queue_test
