// A thread that watches the workers of a process pool, without the interpreter lock: it sees processes end and
// deadlines pass, and answers for envs that cannot answer themselves. Of envs without a deadline it reports once if they
// run for very long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "core/process/process_books.h"
#include "core/process/process_checks.h"
#include "core/process/process_layout.h"

namespace stepmill {

struct Deadlines {
  // Nanoseconds; 0: none.
  std::uint64_t step = 0, reset = 0;
  std::uint64_t slow = 0;  // after this long, an env that has no deadline is reported
};

class ProcessMonitor {
 public:
  // Starts the thread. The arguments must outlive it.
  ProcessMonitor(ProcessBooks& books, const ProcessTables& tables, const ProcessChecks& checks,
                 const Deadlines& deadlines, std::int32_t num_envs);
  ~ProcessMonitor();
  ProcessMonitor(const ProcessMonitor&) = delete;
  ProcessMonitor& operator=(const ProcessMonitor&) = delete;

  // Waits until no worker is left, about as long as `most`.
  void wait_all_ended(std::chrono::nanoseconds most);
  // Ends the present life of a worker, if it has one, and waits until it is leaving. `lock`: that of the books.
  void replace(ProcessBooks::Lock& lock, std::int32_t worker);

 private:
  using Life = WorkerRoster::Life;
  using Lock = ProcessBooks::Lock;

  void watch();
  // With the lock held.
  void end_broken();
  void life_ended(Lock& lock, std::int32_t worker, std::uint32_t number);
  std::uint64_t check_deadlines(Lock& lock);
  std::uint64_t check_start(Lock& lock, std::int32_t worker);
  std::uint64_t check_env(Lock& lock, std::int32_t env);
  void miss_step(Lock& lock, std::int32_t env, EnvWord seen, bool resets, std::uint64_t limit);
  std::uint64_t report_slow(Lock& lock);
  bool is_slow(std::int32_t env, std::uint64_t& next) const;
  std::string describe_slow(Lock& lock, std::int32_t env, bool with_stack);
  std::uint64_t check_standstill(Lock& lock, std::int32_t worker, std::uint64_t limit);
  std::string read_stack(Lock& lock, const Life& life);

  ProcessBooks& books_;
  const ProcessTables& tables_;
  const ProcessChecks& checks_;
  const Deadlines deadlines_;
  const std::int32_t num_envs_;
  std::vector<std::uint8_t> reported_;  // by env: whether it was reported as slow
  bool quit_ = false;  // under the lock of the books
  std::condition_variable ended_;  // lives may have ended, or are leaving
  std::thread thread_;
};

}  // namespace stepmill
