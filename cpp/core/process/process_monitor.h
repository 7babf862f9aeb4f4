// A thread that watches the workers of a process pool, without the interpreter lock: it sees processes end and
// deadlines pass, and answers for envs that cannot answer themselves. Of envs without a deadline it reports once if they
// run for very long.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "core/process/process_books.h"
#include "core/process/process_checks.h"
#include "core/process/process_layout.h"
#include "core/process/worker_bells.h"

namespace stepmill {

struct Deadlines {
  // Nanoseconds; 0: none.
  std::uint64_t step = 0, reset = 0;
  std::uint64_t slow = 0;  // after this long, an env that has no deadline is reported
  // How much longer an env may take whose worker interrupts it at its deadline.
  std::uint64_t grace = 0;
};

class ProcessMonitor {
 public:
  // Starts the thread. The arguments must outlive it.
  ProcessMonitor(ProcessBooks& books, const ProcessTables& tables, const ProcessChecks& checks,
                 const WorkerBells& bells, const ProcessOptions& process, const Deadlines& deadlines,
                 std::int32_t num_envs);
  ~ProcessMonitor();
  ProcessMonitor(const ProcessMonitor&) = delete;
  ProcessMonitor& operator=(const ProcessMonitor&) = delete;

  // Waits until no worker is left, about as long as `most`.
  void wait_all_ended(std::chrono::nanoseconds most);
  // Whether it no longer looks after event loops, because nothing was in flight. It is for the caller to wake it then,
  // after it has queued something: whoever comes second, this or the monitor's last look, sees the other.
  bool rests() { return rests_.load(std::memory_order_seq_cst) && rests_.exchange(false, std::memory_order_seq_cst); }
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
  void give_up(Lock& lock, std::int32_t env, EnvWord seen, int phase, const std::string& what, const char* fault);
  bool blame_blocker(Lock& lock, std::int32_t late);
  std::uint64_t report_slow(Lock& lock);
  bool is_slow(std::int32_t env, std::uint64_t& next) const;
  std::string describe_slow(Lock& lock, std::int32_t env, bool with_stack);
  std::uint64_t check_standstill(Lock& lock, std::int32_t worker, std::uint64_t limit);
  std::string read_stack(Lock& lock, const Life& life);

  // An event loop, and what it was asked last.
  struct Pulse {
    std::uint32_t life = 0, number = 0;
    std::uint64_t at = 0;  // when
    bool is_told = false;  // the user knows that it does not answer
  };
  std::uint64_t check_loops(Lock& lock);
  std::uint64_t check_pulse(Lock& lock, std::int32_t worker);
  bool has_work(std::int32_t worker);
  std::string describe_blocked(Lock& lock, std::int32_t worker);

  ProcessBooks& books_;
  const ProcessTables& tables_;
  const ProcessChecks& checks_;
  const WorkerBells& bells_;
  const bool has_loops_;
  const Deadlines deadlines_;
  const std::int32_t num_envs_;
  std::vector<std::uint8_t> reported_;  // by env: whether it was reported as slow
  std::vector<Pulse> pulses_;           // by worker
  std::atomic<bool> rests_{false};
  bool quit_ = false;  // under the lock of the books
  std::condition_variable ended_;  // lives may have ended, or are leaving
  std::thread thread_;
};

}  // namespace stepmill
