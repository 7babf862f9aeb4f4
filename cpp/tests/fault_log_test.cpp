#include "core/fault_log.h"

#include <thread>

#include "tests/check.h"

namespace stepmill::fault_log_test {

Fault fault_of(std::int32_t env, const char* message) {
  Fault fault;
  fault.env = env;
  fault.message = message;
  return fault;
}

TEST(faults_wait_until_their_env_is_back_and_keep_their_order) {
  FaultLog log;
  std::vector<std::uint8_t> in_flight{1, 1, 1};
  log.add(fault_of(2, "first"));
  log.add(fault_of(0, "second"));
  log.add(fault_of(2, "third"));
  in_flight[2] = 0;
  std::vector<Fault> taken;
  log.take(in_flight, taken);
  CHECK(taken.size() == 2u);
  CHECK(taken.at(0).message == "first");
  CHECK(taken.at(1).message == "third");
  in_flight[0] = 0;
  log.take(in_flight, taken);
  CHECK(taken.size() == 1u);
  CHECK(taken.at(0).message == "second");
}

TEST(faults_come_in_the_order_of_the_envs) {
  FaultLog log;
  for (const std::int32_t env : {1, 2, 3, 0}) log.add(fault_of(env, "as threads happened to be done"));
  std::vector<Fault> taken;
  log.take({0, 0, 0, 0}, taken);
  for (std::int32_t env = 0; env < 4; ++env) CHECK(taken.at(static_cast<std::size_t>(env)).env == env);
}

TEST(without_faults_nothing_is_touched) {
  FaultLog log;
  std::vector<Fault> taken{fault_of(0, "of before")};
  log.take({0}, taken);
  CHECK(taken.size() == 1u);
}

TEST(faults_of_many_threads_all_arrive) {
  constexpr int kThreads = 4, kEach = 500;
  FaultLog log;
  const std::vector<std::uint8_t> in_flight(kThreads, 0);
  std::vector<int> counts(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&log, t] {
      for (int i = 0; i < kEach; ++i) log.add(fault_of(t, "one of many"));
    });
  const auto take = [&] {
    std::vector<Fault> taken;
    log.take(in_flight, taken);
    for (const Fault& fault : taken) counts[static_cast<std::size_t>(fault.env)] += 1;
  };
  for (int i = 0; i < kEach; ++i) take();
  for (std::thread& thread : threads) thread.join();
  take();
  for (const int count : counts) CHECK(count == kEach);
}

}  // namespace stepmill::fault_log_test
