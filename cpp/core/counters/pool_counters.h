// The counters of one pool: `pool.stats()`, its page and, from outside, `stepmill top` show them.
//
// They are in the file of this process (`counter_file.h`) while the pool exists. Where the system refuses that, and after
// the pool has ended, they are in ordinary memory, and everything else is the same.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include "core/counters/counter_file.h"
#include "core/counters/pool_record.h"
#include "core/counters/ticks.h"

namespace stepmill {

// What `top` shows of a pool that never changes.
struct PoolLabel {
  std::string name, backend, user;  // cut to the room in `PoolRecord`
};

class PoolCounters {
 public:
  PoolCounters(const PoolLabel& label, std::int32_t num_envs, std::int32_t batch_size, std::int32_t workers);
  ~PoolCounters() { withdraw(); }
  PoolCounters(const PoolCounters&) = delete;
  PoolCounters& operator=(const PoolCounters&) = delete;

  PoolRecord& pool() { return *pool_; }
  const PoolRecord& pool() const { return *pool_; }
  WorkerRecord& worker(std::int32_t index) { return pool_->workers()[index]; }

  // From now on other processes can see it.
  void publish();
  // From now on they cannot. The pool has ended: there are no workers, and what was counted stays.
  void withdraw();

  // All words as they are now, for any thread. After the end there are no workers.
  PoolWords copy() const;

  // ---- the calling thread's time ----

  // Adds the time since the last change to what the thread did until now.
  void change_to(CallerState next) {
    PoolRecord& r = *pool_;
    const std::uint64_t now = read_ticks(), before = get(r.state);
    add_to(r.ticks[before & 3], now - (before >> 2));
    set(r.state, now << 2 | static_cast<std::uint64_t>(next));
  }

  // The end of a wait. Its time is read only every few waits, and then the time from there to the end of the call is kept
  // for the others: a call may read the clock three times, not four.
  void end_wait() {
    if (waits_++ % kSampledWaits != 0) return;
    change_to(CallerState::kInside);
    measures_rest_ = true;
  }
  void end_call() {
    PoolRecord& r = *pool_;
    const std::uint64_t now = read_ticks(), before = get(r.state), kind = before & 3;
    std::uint64_t spent = now - (before >> 2);
    if (kind != static_cast<std::uint64_t>(CallerState::kInside)) {  // it has waited
      const std::uint64_t rest = std::min(rest_, spent);
      add_to(r.ticks[static_cast<std::uint64_t>(CallerState::kInside)], rest);
      spent -= rest;
    } else if (measures_rest_) {
      rest_ = spent;
      measures_rest_ = false;
    }
    add_to(r.ticks[kind], spent);
    add_to(r.calls, 1);
    set(r.state, now << 2 | static_cast<std::uint64_t>(CallerState::kOutside));
  }

 private:
  static constexpr std::uint32_t kSampledWaits = 4;

  CounterFile::Loan loan_;
  mutable std::mutex mutex_;  // of `pool_`, for those who copy it while the pool ends
  PoolRecord* pool_;
  std::unique_ptr<WorkerRecord[]> refused_;  // the record and its workers, if they are not in the file
  PoolRecord last_{};                        // what is left after the pool
  // The calling thread's own.
  std::uint32_t waits_ = 0;
  bool measures_rest_ = false;
  std::uint64_t rest_ = 0;  // ticks from the end of a wait to the end of its call
};

// The time of one call.
class CallTime {
 public:
  explicit CallTime(PoolCounters& counters) : counters_(counters) { counters.change_to(CallerState::kInside); }
  ~CallTime() { counters_.end_call(); }
  CallTime(const CallTime&) = delete;
  CallTime& operator=(const CallTime&) = delete;

 private:
  PoolCounters& counters_;
};

// The part of it in which the caller waits for envs, or steps them: from `begin`, if that is called.
class WaitTime {
 public:
  explicit WaitTime(PoolCounters& counters) : counters_(counters) {}
  void begin(CallerState state) {
    if (began_) return;
    began_ = true;
    helped_ = helped();
    counters_.change_to(state);
  }
  ~WaitTime() {
    if (!began_) return;
    add_to(counters_.pool().helped_waiting_ns, helped() - helped_);
    counters_.end_wait();
  }
  WaitTime(const WaitTime&) = delete;
  WaitTime& operator=(const WaitTime&) = delete;

 private:
  std::uint64_t helped() const { return get(counters_.pool().caller.busy_ns); }

  PoolCounters& counters_;
  std::uint64_t helped_ = 0;
  bool began_ = false;
};

// ---- a worker's time ---------------------------------------------------------------------------

inline void add_work(WorkerRecord& worker, std::uint64_t ns, std::uint64_t steps) {
  add_to(worker.busy_ns, ns);
  add_to(worker.steps, steps);
}

// Remembers a step that was measured alone, which ended `at_ns` by the monotonic clock, if it is one of the slowest.
void add_slow_step(WorkerRecord& worker, std::int32_t env, std::uint64_t ns, std::uint64_t at_ns);

}  // namespace stepmill
