// What a pool and its worker processes share besides the action table and the batch buffers.
//
// A worker may be killed at any instant, so nothing here can be left half done: every word changes by one atomic
// operation, and plain data is written only by the side that the env's word names.
//
//           caller           worker            worker             worker          worker
//   REST -----------> QUEUED ---------> RUNNING ---------> WRITING ---------> DONE -------> REST
//     ^                  |                 |                                (row whole)  (and counted)
//     |                  +---- FAULT <-----+  the pool, by compare-and-swap;
//     |                          |            from WRITING once the worker is seen to have ended
//     +--------------------------+
//
// A worker runs the code of one env at a time. One whose envs wait for something (`ProcessOptions::most_running`) has
// many of them RUNNING: its event loop goes from one to the other where they wait.
//
// In RUNNING the env's own code runs, and the worker writes nothing that the pool reads before the word says so. In
// WRITING it copies one finished row, without running the env's code or a system call in between: a killed worker dies
// there at once, and until its death is certain the pool leaves that row alone. From QUEUED and RUNNING the pool may
// declare a fault; the side that loses the compare-and-swap gives up. Between DONE and REST the worker counts the row
// in its batch. A worker that dies there may or may not have counted it, so such a batch is judged by the words
// instead: a row that is DONE counts once its worker is seen to have ended.
//
// The env's code may write anywhere in this memory too. So the pool keeps what it needs (which epoch, for which life,
// into which row) in its own memory, reads only through `process_checks.h`, and returns a batch when the words say so:
// the counts only tell when to look. An impossible word costs the worker of that env its life: it is killed, and once
// its end is certain the pool answers for its envs. If the slots of the ring no longer say which env has them, all
// workers are replaced in this way, and the ring is laid out again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/action_table.h"
#include "core/memory/batch_layout.h"
#include "core/env/env_table.h"
#include "core/env/spec.h"
#include "core/memory/wait.h"

namespace stepmill {

enum class Stage : std::uint8_t { kRest, kQueued, kRunning, kWriting, kDone, kFault };

// The env word: which action (epoch), for which life of its worker (incarnation), and how far the env has got with it.
struct EnvWord {
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;  // 24 bits; it only has to differ from earlier lives
  Stage stage = Stage::kRest;

  static EnvWord unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word >> 8 & 0xffffff),
            static_cast<Stage>(word & 0xff)};
  }
  std::uint64_t pack() const {
    return static_cast<std::uint64_t>(epoch) << 32 |
           static_cast<std::uint64_t>(incarnation & 0xffffff) << 8 | static_cast<std::uint64_t>(stage);
  }
  EnvWord at(Stage next) const { return {epoch, incarnation, next}; }
};

// What the caller asks of an env. Written while the env is idle, read by its worker. It is sealed: a worker that
// trusted an order that another env's code has overwritten might write its row anywhere.
struct alignas(kCacheLine) Order {
  enum Kind : std::uint32_t { kAct, kCall };
  std::uint64_t buffer = 0;  // offset of the batch buffer with the env's row
  std::int32_t row = -1;     // -1: the next slot of the open batch
  std::uint32_t kind = kAct;
  std::uint64_t is_reset = 0;  // 0, or 1: a reset, in a pool that returns results as they are ready
  // What does not fit in arrays: reset options, objects, the call; in the arena.
  std::uint64_t mail = 0, mail_bytes = 0, mail_seal = 0;
  std::uint64_t seal = 0;

  // Computed by words, unlike `seal_of`, because it is made and checked with every action. A change of any one word
  // shows.
  static std::uint64_t seal_for(std::uint64_t buffer, std::int32_t row, std::uint32_t kind, std::uint64_t is_reset,
                                std::uint64_t mail, std::uint64_t mail_bytes, std::uint64_t mail_seal, std::int32_t env,
                                std::uint32_t epoch) {
    const std::uint64_t place = static_cast<std::uint64_t>(static_cast<std::uint32_t>(row)) << 32 | kind;
    const std::uint64_t whose = static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint32_t>(env);
    return buffer * 0x9e3779b97f4a7c15u ^ place * 0xbf58476d1ce4e5b9u ^ mail * 0x94d049bb133111ebu ^
           mail_bytes * 0xd6e8feb86659fd93u ^ mail_seal ^ is_reset * 0xc4ceb9fe1a85ec53u ^ whose * 0xff51afd7ed558ccdu;
  }
  bool is_whole(std::int32_t env, std::uint32_t epoch) const {
    return seal == seal_for(buffer, row, kind, is_reset, mail, mail_bytes, mail_seal, env, epoch);
  }
};

// What a worker reports about an env besides its row. Written in WRITING.
struct alignas(kCacheLine) Report {
  std::uint64_t note, note_bytes, note_seal;  // of the row, in the worker's outbox
  std::uint64_t call, call_bytes, call_seal;  // of a call
  std::uint32_t epoch;                        // of the row
  std::int32_t fault_phase;                   // -1: none
  std::uint32_t last_good;                    // which of the two copies of the last observation is complete
};

enum class Activity : std::uint8_t {
  kStep,
  kReset,
  kCall,
  kResetAfterEnd,  // `same_step`: the ending step is good and kept, see ProcessTables::ending
};

// Since when an env's code has been running, and for what: nanoseconds of the monotonic clock and an Activity in one
// word, so that a reader never mixes two. Stored before the env word becomes RUNNING.
using Begun = std::atomic<std::uint64_t>;

inline std::uint64_t pack_begun(std::uint64_t ns, Activity activity) {
  return ns << 2 | static_cast<std::uint64_t>(activity);
}

// How long the steps of an env took: counts by quarter octaves, from 2^7 ns up.
struct StepTimes {
  static constexpr int kBuckets = 128, kFirstOctave = 7;
  std::uint32_t count[kBuckets];

  void add(std::uint64_t ns);
  static double upper_bound_ns(int bucket);
};

// One per worker, on its own cache lines. All of these are hints: a lost one costs a look, but no result.
struct alignas(2 * kCacheLine) WorkerBlock {
  std::atomic<std::uint32_t> bell;      // futex: rung after words were queued, or `stop` set
  std::atomic<std::uint32_t> sleeping;  // seq_cst with the words: a ringer that sees 0 need not wake it
  std::atomic<std::uint32_t> ready;     // the incarnation that has attached
  std::atomic<std::uint32_t> stop;      // the incarnation that is to end
  std::atomic<std::uint32_t> watched;   // a thread waits until one of its envs comes to rest
  std::atomic<std::uint32_t> rested;    // futex: rung then, if `watched` is set; seq_cst with the words
  // Of a worker with an event loop. The monitor adds to the first and rings, the loop copies it to the second.
  std::atomic<std::uint32_t> asked_alive, said_alive;
  std::atomic<std::int32_t> runs;       // the env whose code runs at this moment, plus 1; 0: none
  std::atomic<std::uint32_t> cancels;   // added to after an env's `cancelled` was set
  std::atomic<std::uint64_t> busy_ns, steps;
};

// For the thread that waits for an env of this worker: its word has changed.
inline void announce_rest(WorkerBlock& block) {
  if (block.watched.load(std::memory_order_seq_cst) == 0) return;
  block.rested.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(block.rested, 1, true);
}

// Tells bytes that were written for this action of this env from all others.
std::uint64_t seal_of(std::span<const std::byte> bytes, std::int32_t env, std::uint32_t epoch);

struct ProcessOptions {
  std::int32_t num_workers = 1;
  bool keep_last_observation = false;
  // How many envs of the pool may be RUNNING, if their workers have event loops; 0: one per worker.
  std::int32_t most_running = 0;
  bool can_cancel = false;  // the loops can interrupt what their envs are at

  bool has_loops() const { return most_running != 0; }
  // Of one worker: there are at least as many as workers.
  std::int32_t most_running_in(std::int32_t worker) const {
    return has_loops() ? most_running / num_workers + (worker < most_running % num_workers) : 1;
  }
};

// Where all of this is: a pure function of the pool's options, the same in every process.
class ProcessTables {
 public:
  ProcessTables(const EnvSpec& spec, const TableOptions& table, std::int32_t batch_size,
                const ProcessOptions& options);

  std::size_t bytes() const { return bytes_; }
  void attach(std::byte* base) { base_ = base; }

  std::atomic<std::uint64_t>& word(std::int32_t env) const { return at<std::atomic<std::uint64_t>>(words_)[env]; }
  Order& order(std::int32_t env) const { return at<Order>(orders_)[env]; }
  Report& report(std::int32_t env) const { return at<Report>(reports_)[env]; }
  Begun& begun(std::int32_t env) const { return at<Begun>(begun_)[env]; }
  StepTimes& times(std::int32_t env) const { return at<StepTimes>(times_)[env]; }
  // The action or call that the pool no longer wants of an env, by its epoch; 0: none.
  std::atomic<std::uint32_t>& cancelled(std::int32_t env) const {
    return at<std::atomic<std::uint32_t>>(cancelled_)[env];
  }
  WorkerBlock& worker(std::int32_t worker) const { return at<WorkerBlock>(workers_)[worker]; }
  // Offsets of what `stepmill top` shows.
  struct Places {
    std::size_t words, begun, times, workers;
  };
  Places places() const { return {words_, begun_, times_, workers_}; }
  std::byte* slot_ring() const { return base_ + ring_; }
  // The last good observation of an env, leaf by leaf; two copies, so that one is always complete.
  std::byte* last_observation(std::int32_t env, std::uint32_t copy) const {
    return base_ + last_ + (static_cast<std::size_t>(env) * 2 + (copy & 1)) * last_bytes_;
  }
  bool keeps_last() const { return last_bytes_ != 0; }
  // Makes the observation of a row the last good one: writes it into `copy`, the incomplete one, which then is
  // complete.
  void keep_last(std::int32_t env, std::uint32_t copy, const sm_shared& shared, const sm_columns& columns,
                 std::int64_t row) const;
  // `same_step`: the row of a step that ended an episode, kept while the reset that belongs to it runs; in
  // the layout of a batch of one. Null in other modes.
  std::byte* ending(std::int32_t env) const {
    return ending_bytes_ ? base_ + ending_ + static_cast<std::size_t>(env) * ending_bytes_ : nullptr;
  }

 private:
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  std::size_t add(std::int64_t row_bytes, std::int64_t rows);

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t words_, orders_, reports_, begun_, times_, cancelled_, workers_, ring_, last_ = 0, last_bytes_ = 0, ending_ = 0, ending_bytes_ = 0;
};

// Nanoseconds of the clock that all processes of the machine share.
std::uint64_t monotonic_ns();

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace stepmill
