#include "core/ready_lanes.h"

#include <array>
#include <atomic>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/zeroed_memory.h"

namespace stepmill::ready_lanes_test {

// Lanes in memory of their own.
struct Lanes {
  Lanes(std::int32_t envs, int hands, bool goes_round = false)
      : memory(ReadyLanes::bytes(envs, hands)),
        lanes(memory, envs, hands, goes_round) {}

  test::ZeroedMemory memory;
  ReadyLanes lanes;
};

std::vector<std::int32_t> all_envs(std::int32_t count) {
  std::vector<std::int32_t> envs(static_cast<std::size_t>(count));
  std::iota(envs.begin(), envs.end(), 0);
  return envs;
}

TEST(every_env_comes_out_once_for_any_number_of_envs_and_hands) {
  for (const std::int32_t envs : {1, 2, 63, 64, 65, 200, 1000, 4097})
    for (const int hands : {1, 2, 3, 16}) {
      Lanes l(envs, hands, envs % 2 == 1);
      const auto sent = all_envs(envs);
      std::array<std::int32_t, 100> out;
      for (int round = 0; round < 3; ++round) {
        l.lanes.push(sent);
        CHECK(l.lanes.size() == envs);
        std::multiset<std::int32_t> seen;
        for (std::int32_t count, turn = 0; (count = l.lanes.pop(turn % hands, hands, 100, out.data())) != 0; ++turn)
          seen.insert(out.begin(), out.begin() + count);
        CHECK((seen == std::multiset<std::int32_t>(sent.begin(), sent.end())) == true);
        CHECK(l.lanes.size() == 0);
      }
    }
}

// What `push_all` leaves in the lanes serves the next one, wherever other pushes moved them to in between.
TEST(all_envs_at_once_come_out_once_among_other_pushes) {
  for (const std::int32_t envs : {1, 63, 64, 65, 200, 256, 1000, 4097}) {
    Lanes l(envs, 2);
    const auto all = all_envs(envs);
    std::array<std::int32_t, 100> out;
    const auto comes_out = [&](std::span<const std::int32_t> sent) {
      CHECK(l.lanes.size() == static_cast<std::int64_t>(sent.size()));
      std::multiset<std::int32_t> seen;
      for (std::int32_t count, turn = 0; (count = l.lanes.pop(turn % 2, 2, 7, out.data())) != 0; ++turn)
        seen.insert(out.begin(), out.begin() + count);
      CHECK((seen == std::multiset<std::int32_t>(sent.begin(), sent.end())) == true);
      CHECK(l.lanes.size() == 0);
    };
    for (std::int32_t round = 0; round < 200; ++round) {
      l.lanes.push_all();
      comes_out(all);
      if (round % 3 != 0) continue;
      // Some, backwards: neither the places nor the order of a run.
      std::vector<std::int32_t> some;
      for (std::int32_t env = envs - 1; env >= 0; env -= round % 7 + 1) some.push_back(env);
      l.lanes.push(some);
      comes_out(some);
    }
  }
}

TEST(all_envs_at_once_are_taken_once_by_many_hands) {
  constexpr std::int32_t kEnvs = 1024;
  constexpr int kHands = 3;
  const int rounds = test::kSanitized ? 200 : 2000;
  Lanes l(kEnvs, kHands);
  std::vector<std::atomic<int>> taken(kEnvs);
  std::atomic<std::int64_t> total{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int hand = 0; hand < kHands; ++hand)
    threads.emplace_back([&, hand] {
      std::array<std::int32_t, 33> out;
      while (!stop.load()) {
        const std::int32_t count = l.lanes.pop(hand, kHands, 33, out.data());
        for (std::int32_t i = 0; i < count; ++i) taken[static_cast<std::size_t>(out[static_cast<std::size_t>(i)])] += 1;
        total += count;
        if (count == 0) std::this_thread::yield();
      }
    });
  for (std::int64_t round = 1; round <= rounds; ++round) {
    l.lanes.push_all();
    while (total.load() != round * kEnvs) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : taken) CHECK(count.load() == rounds);
}

TEST(a_hand_gets_the_same_envs_every_time) {
  constexpr std::int32_t kEnvs = 1024;
  constexpr int kHands = 4;
  Lanes l(kEnvs, kHands);
  std::array<std::int32_t, kEnvs> out;
  for (int round = 0; round < 5; ++round) {
    l.lanes.push(all_envs(kEnvs));
    // Each hand takes its share and no more.
    for (int hand = 0; hand < kHands; ++hand)
      for (std::int32_t taken = 0; taken < kEnvs / kHands;) {
        const std::int32_t count = l.lanes.pop(hand, kHands, 64, out.data());
        for (std::int32_t i = 0; i < count; ++i) CHECK(out[static_cast<std::size_t>(i)] / (kEnvs / kHands) == hand);
        taken += count;
      }
  }
}

TEST(a_hand_without_work_takes_from_the_others_what_they_reach_last) {
  Lanes l(256, 2);
  l.lanes.push(all_envs(128));  // the first hand's half
  std::array<std::int32_t, 256> out;
  CHECK(l.lanes.pop(1, 2, 256, out.data()) == 64);
  CHECK(out[0] == 64);
  CHECK(l.lanes.pop(0, 2, 256, out.data()) == 64);
  CHECK(out[0] == 0);
}

TEST(a_hand_goes_round_its_own_lanes_for_as_long_as_it_counts) {
  for (const std::uint32_t turn : {0u, 5u, 0x7fffffffu, 0x80000000u, 0x80000001u, 0xffffffffu}) {
    const int lane = ReadyLanes::lane_of_turn(turn, 3, 10);
    CHECK(lane >= 3);
    CHECK(lane < 10);
    CHECK(ReadyLanes::lane_of_turn(turn, 0, 7) + 3 == lane);
  }
}

// An env that is taken is pushed again at once, and only one of the hands ever comes by.
TEST(no_env_waits_forever_where_envs_come_back) {
  constexpr std::int32_t kEnvs = 512;
  for (const int hands : {1, 2, 4}) {
    Lanes l(kEnvs, hands, true);
    l.lanes.push(all_envs(kEnvs));
    std::vector<int> taken(kEnvs);
    std::array<std::int32_t, 64> out;
    for (int turn = 0; turn < 2'000; ++turn) {
      const std::int32_t count = l.lanes.pop(0, hands, 64, out.data());
      for (std::int32_t i = 0; i < count; ++i) taken[static_cast<std::size_t>(out[static_cast<std::size_t>(i)])] += 1;
      l.lanes.push({out.data(), static_cast<std::size_t>(count)});
    }
    for (const int count : taken) CHECK(count > 0);
  }
}

TEST(hands_that_compete_take_every_env_exactly_once) {
  constexpr std::int32_t kEnvs = 300;
  constexpr int kHands = 4, kRounds = test::kSanitized ? 200 : 3'000;
  Lanes l(kEnvs, kHands, true);
  std::vector<std::atomic<int>> taken(kEnvs);
  std::atomic<int> total{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int hand = 0; hand < kHands; ++hand)
    threads.emplace_back([&, hand] {
      std::array<std::int32_t, 16> out;
      while (!stop.load()) {
        const std::int32_t count = l.lanes.pop(hand, kHands, 16, out.data());
        for (std::int32_t i = 0; i < count; ++i) taken[static_cast<std::size_t>(out[static_cast<std::size_t>(i)])] += 1;
        total += count;
        if (count == 0) std::this_thread::yield();
      }
    });
  for (int round = 1; round <= kRounds; ++round) {
    l.lanes.push(all_envs(kEnvs));
    while (total.load() < round * kEnvs) std::this_thread::yield();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  for (const auto& count : taken) CHECK(count.load() == kRounds);
}

}  // namespace stepmill::ready_lanes_test
