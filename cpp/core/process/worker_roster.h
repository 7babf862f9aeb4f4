// The processes that serve the envs of a process pool: each worker's present life, its leaving ones and the one to
// come, and what is known about how they started and ended.
//
//             admit              retire                 remove
//   (wanted) -------> present life -------> leaving lives -------> gone
//      ^                             |      until the pool has seen the process end
//      +-----------------------------+
//
// A worker has at most one present life. The numbers of its lives only grow, so what an env word or an obituary says
// about one life is never mistaken for another. The roster only keeps the books; the pool decides what happens to the
// envs.
//
// It has no lock of its own. Two threads use it, the caller and the monitor, and both hold the pool's lock for every
// call except `wants_attention` and `obituaries`, which need none. The caller admits lives, asks for them and gives up
// those that could not be started (`admit`, `call_for`, `record_failed_start`), and does so only if a worker has no
// present life. Only the monitor changes, retires and removes lives of processes, so it may release the lock while it
// looks at one.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/process/descriptor.h"
#include "core/fault_log.h"
#include "core/process/outbox.h"
#include "core/counters/pool_record.h"
#include "core/process/process_checks.h"

namespace stepmill {

class WorkerRoster {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // One life of a worker: a process.
  struct Life {
    std::uint32_t number = 0;  // the incarnation, as in env words; 0: none
    int pid = -1;
    Descriptor pidfd, stack;  // `stack`: the pipe that it writes its Python stack to when asked
    std::unique_ptr<Outbox> outbox;
    std::uint64_t start_deadline = 0;  // 0: it has started, or may take any time
    std::optional<int> code;           // exit code, or minus the signal
    bool started = false;              // it was seen to take actions

    void signal(int signal_number) const;
  };
  // A worker: its envs and the lives that serve them.
  struct Crew {
    std::int32_t first = 0, count = 0;  // its envs; never changes
    Life life;
    std::vector<Life> leaving;  // given up, and not yet seen to end
    std::uint32_t next = 1;     // the incarnation to come, with all its bits
    bool wanted = false;        // it should be started
    std::uint32_t restarts = 0;
    Fault loss;  // why its last life ended, for the envs that were lost with it
    std::optional<Fault> broken;  // its life must be ended, because the memory it shares with the pool is invalid
    // What the monitor saw last, and since when: a worker that has work and makes no progress is stuck.
    std::uint64_t seen = 0, seen_at = 0;

    std::uint32_t next_number() const { return number_of(next); }
    std::int32_t end() const { return first + count; }
    // The present or leaving life with that number; null: there is none.
    const Life* find(std::uint32_t number) const;
  };

  // The 24 bits of an incarnation that an env word has.
  static std::uint32_t number_of(std::uint32_t incarnation) { return incarnation & 0xffffff; }

  // `first_envs`: of each worker, in order. `checks` and `asked` (by env) belong to the pool, and so do the records in
  // `shown`, one per worker, which say what other processes see. The descriptor is duplicated: the process that starts
  // workers writes their obituaries there.
  WorkerRoster(std::int32_t num_envs, std::span<const std::int32_t> first_envs, const ProcessChecks& checks,
               const std::vector<Asked>& asked, int obituaries, std::span<WorkerRecord> shown = {});

  std::int32_t num_workers() const { return static_cast<std::int32_t>(crews_.size()); }
  std::int32_t worker_of(std::int32_t env) const { return worker_of_[static_cast<std::size_t>(env)]; }
  const Crew& crew(std::int32_t worker) const { return crews_[static_cast<std::size_t>(worker)]; }
  const Crew& crew_of(std::int32_t env) const { return crew(worker_of(env)); }
  const std::vector<Crew>& crews() const { return crews_; }

  // ---- lives begin ----

  void admit(std::int32_t worker, std::uint32_t incarnation, Life life);
  // Instead of `admit`: the life continues what another one was, without a failure, so that it is no restart.
  void admit_successor(std::int32_t worker, std::uint32_t incarnation, Life life);
  // The life with that number will not come: the next one has another number.
  void skip(std::int32_t worker, std::uint32_t incarnation);
  // The number of the life that will serve an env: the present one, or the next one, which becomes wanted.
  std::uint32_t call_for(std::int32_t env);
  // Workers that should be started now, each with the incarnation it will be.
  std::vector<std::pair<std::int32_t, std::uint32_t>> to_restart() const;
  // Whether there are any. Without the lock.
  bool wants_attention() const { return attention_.load(std::memory_order_acquire); }
  // Called instead of `admit` if no process could be started: makes a life to be retired and removed at once.
  void record_failed_start(std::int32_t worker, std::uint32_t incarnation);

  // When the present life must have started, by the monotonic clock; 0: it has started, or has no deadline.
  std::uint64_t start_deadline(std::int32_t worker);
  // For how long the present life has had work, has run no env's code and has made no progress, or has been writing the
  // same row.
  std::uint64_t stands_still_for(std::int32_t worker);

  // ---- lives end ----

  // Marks the present life as one to be ended. False: there is none, or it is already marked.
  bool condemn(std::int32_t worker, const Fault& reason);
  // Takes the mark away.
  std::optional<Fault> take_condemned(std::int32_t worker);
  // Gives up the present life, which is then leaving. If it had started and `start_again` is set, another one is
  // wanted. A life that could not even start is tried again only when there is work for it.
  void retire(std::int32_t worker, const Fault& reason, bool start_again);
  // A leaving life is gone.
  void remove(std::int32_t worker, std::uint32_t number);
  // Whether that life of a worker may still write something: it exists, or is to come.
  bool may_live(std::int32_t worker, std::uint32_t number) const {
    const Crew& its = crew(worker);
    return number == its.life.number || number == its.next_number() || its.find(number);
  }
  bool all_ended() const;
  void kill_all() const;

  // ---- obituaries ----

  // The descriptor to poll; -1: no more will come. The monitor calls it without the lock, because only it changes this.
  int obituaries() const { return parent_writes_ ? obituaries_.get() : -1; }
  // After a poll said so.
  void read_obituaries(short events);
  // Waits a little for the obituary of a life, which may come later than its end is seen. Releases the lock meanwhile;
  // returns when `quit` (written with the lock held) is set.
  void await_obituary(Lock& lock, std::int32_t worker, std::uint32_t number, const bool& quit);
  // What its envs are told about the end of the present life.
  Fault why_ended(std::int32_t worker);

 private:
  // The word of an env that is writing its row, or has: this takes microseconds.
  struct Sight {
    std::uint64_t word = 0, since = 0;
  };

  Crew& at(std::int32_t worker) { return crews_[static_cast<std::size_t>(worker)]; }
  const Asked& asked(std::int32_t env) const { return asked_[static_cast<std::size_t>(env)]; }
  bool has_started(Crew& crew);
  void update_attention();
  void show(std::int32_t worker);
  void note_end(std::int32_t worker, std::uint32_t number, int code);
  void note_end_of_all();

  const ProcessChecks& checks_;
  const std::vector<Asked>& asked_;
  std::vector<std::int32_t> worker_of_;  // by env; never changes
  const Descriptor obituaries_;
  const std::span<WorkerRecord> shown_;

  // Under the pool's lock.
  std::vector<Crew> crews_;
  std::vector<Sight> sights_;                                    // by env; the monitor's alone
  std::map<std::pair<std::int32_t, std::uint32_t>, int> early_;  // obituaries of lives not yet admitted
  bool parent_writes_ = true;                                    // the obituaries; the monitor's alone

  // Whether any crew is wanted. Written with the lock held, by either thread, together with `Crew::wanted`; read by the
  // caller in every wait, without the lock. It only says when to look: `to_restart` then takes the lock, so a late
  // answer costs one look, and no other memory is read because of it.
  std::atomic<bool> attention_{false};
};

// Once for every action.
inline std::uint32_t WorkerRoster::call_for(std::int32_t env) {
  Crew& its = at(worker_of(env));
  if (its.life.number != 0) return its.life.number;
  if (!its.wanted) {
    its.wanted = true;
    attention_.store(true, std::memory_order_release);
  }
  return its.next_number();
}

}  // namespace stepmill
