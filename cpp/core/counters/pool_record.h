// What a process shows of its pools: the words that `pool.stats()`, its page and, from outside, `stepmill top` read.
//
//   header | record of a pool, records of its workers | record of a pool, ...
//
// Everything is a 64-bit word that one store changes, so a reader never sees half of one. Words that belong together
// (the time that was spent, and since when it is spent) may be one call apart; the reader makes up for that.
//
// Invariant: each word has one writer at a time, so adding needs no read-modify-write operation. Words of a pool are the
// calling thread's, which the engine admits one at a time; those of a worker belong to its thread, or for a process to
// the thread that holds the lock of the pool's books. Relaxed order is enough for all of them: no other memory is read
// because of what they say. `serial` and the places in the header are the exception: see `counter_file.h`.
//
// The lists below are the only place that names the words. Python gets them from here, and both sides compare `layout`.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace stepmill {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

// For the only writer of a word.
inline void add_to(Word& word, std::uint64_t more) {
  word.store(word.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}
inline std::uint64_t get(const Word& word) { return word.load(std::memory_order_relaxed); }
inline void set(Word& word, std::uint64_t value) { word.store(value, std::memory_order_relaxed); }

// How many slow steps a worker remembers: of the present window, and as many of the one before. How many seconds it has.
inline constexpr int kSlowSteps = 4;
inline constexpr std::uint64_t kSlowWindow = 10;

#define STEPMILL_HEADER_WORDS(ONE, MANY)                                                                           \
  ONE(magic)                                                                                                       \
  ONE(layout)                                                                                                      \
  ONE(pid)    /* of the process, as it sees itself: a forked child has another */                                  \
  ONE(bytes)  /* in use, of the whole file */                                                                      \
  ONE(hidden) /* pools for which there was no room */                                                              \
  MANY(spare, 3)                                                                                                   \
  MANY(places, 504) /* where the records of pools are, in bytes; 0: nowhere */

#define STEPMILL_POOL_WORDS(ONE, MANY)                                                                             \
  ONE(serial) /* differs from every other pool of the process; 0: none is here, or it is being written */          \
  /* written before the record can be seen */                                                                      \
  ONE(made)   /* ticks; once more when the engine is there: workers have started by then */                        \
  ONE(num_envs)                                                                                                    \
  ONE(batch_size)                                                                                                  \
  ONE(num_workers) /* records of workers that follow this one */                                                   \
  ONE(arena)       /* the descriptor of the memory that worker processes share with the pool; 0: none */           \
  ONE(arena_inode)                                                                                                 \
  ONE(env_words) /* where the tables of process_layout.h are in it */                                              \
  ONE(env_begun)                                                                                                   \
  ONE(env_times)                                                                                                   \
  ONE(worker_blocks)                                                                                               \
  MANY(name, 12)                                                                                                   \
  MANY(backend, 2)                                                                                                 \
  MANY(user, 2) /* "pool", or "manager" */                                                                         \
  MANY(spare, 5)                                                                                                   \
  /* the calling thread, in every call */                                                                          \
  ONE(state) /* since when (ticks) it is what (`CallerState`), in one word */                                      \
  MANY(ticks, 4) /* spent in each `CallerState` until then */                                                      \
  ONE(calls)                                                                                                       \
  ONE(batches)                                                                                                     \
  ONE(steps)                                                                                                       \
  ONE(episodes)                                                                                                    \
  ONE(failures)                                                                                                    \
  ONE(in_flight)                                                                                                   \
  ONE(batches_held)                                                                                                \
  ONE(memory_bytes)                                                                                                \
  ONE(helped_waiting_ns) /* of `caller.busy_ns`: while it was `kWaiting` or `kStepping` */                         \
  ONE(restarts) /* of actors elsewhere; each worker process counts its own */                                      \
  ONE(more_spare)

#define STEPMILL_WORKER_WORDS(ONE, MANY)                                                                           \
  ONE(pid)      /* of the process; 0: a thread, or no process at the moment */                                     \
  ONE(restarts)                                                                                                    \
  ONE(inside)   /* of a thread: the env that it steps now + 1, and above 32 bits a count that grows with each */   \
  ONE(busy_ns)  /* of a thread: the time in envs. Chunks that are not measured count as the recent mean */         \
  ONE(steps)                                                                                                       \
  ONE(window)   /* the present window: seconds of the monotonic clock / kSlowWindow */                             \
  ONE(first_env) /* of a process: its envs are those up to the next one's first */                                 \
  ONE(spare)                                                                                                       \
  MANY(slow, 8) /* the slowest steps that were measured alone: nanoseconds << 24 | env */

#define STEPMILL_ONE_WORD(name) Word name;
#define STEPMILL_MANY_WORDS(name, count) Word name[count];
struct alignas(64) FileHeader {
  STEPMILL_HEADER_WORDS(STEPMILL_ONE_WORD, STEPMILL_MANY_WORDS)
};
struct alignas(64) WorkerRecord {
  STEPMILL_WORKER_WORDS(STEPMILL_ONE_WORD, STEPMILL_MANY_WORDS)
};
struct alignas(64) PoolRecord {
  STEPMILL_POOL_WORDS(STEPMILL_ONE_WORD, STEPMILL_MANY_WORDS)
  WorkerRecord caller;  // what the calling thread steps itself

  WorkerRecord* workers() { return reinterpret_cast<WorkerRecord*>(this + 1); }
};
#undef STEPMILL_ONE_WORD
#undef STEPMILL_MANY_WORDS
static_assert(sizeof(FileHeader) == 4096 && sizeof(WorkerRecord) == 128 && sizeof(PoolRecord) == 512);

// The same lists for those who read.
struct WordName {
  const char* name;
  std::size_t count;
};
#define STEPMILL_ONE_NAME(name) WordName{#name, 1},
#define STEPMILL_MANY_NAMES(name, count) WordName{#name, count},
inline constexpr std::array kHeaderWords{STEPMILL_HEADER_WORDS(STEPMILL_ONE_NAME, STEPMILL_MANY_NAMES)};
inline constexpr std::array kPoolWords{STEPMILL_POOL_WORDS(STEPMILL_ONE_NAME, STEPMILL_MANY_NAMES)};
inline constexpr std::array kWorkerWords{STEPMILL_WORKER_WORDS(STEPMILL_ONE_NAME, STEPMILL_MANY_NAMES)};
#undef STEPMILL_ONE_NAME
#undef STEPMILL_MANY_NAMES

// Copies of them.
using Words = std::vector<std::uint64_t>;
inline Words copy_of(const Word* from, std::size_t count) {
  Words out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = get(from[i]);
  return out;
}
struct PoolWords {
  Words pool, caller;
  std::vector<Words> workers;

  PoolWords(const Word* record, std::uint64_t num_workers) {
    constexpr std::size_t kCaller = offsetof(PoolRecord, caller) / sizeof(Word);
    constexpr std::size_t kWorker = sizeof(WorkerRecord) / sizeof(Word);
    pool = copy_of(record, kCaller);
    caller = copy_of(record + kCaller, kWorker);
    for (std::uint64_t w = 1; w <= num_workers; ++w) workers.push_back(copy_of(record + kCaller + w * kWorker, kWorker));
  }
};

inline constexpr std::size_t kMostPools = sizeof(FileHeader::places) / sizeof(Word);
inline constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // of the file
inline constexpr std::uint64_t kMagic = 0x6c6c696d70657473;      // "stepmill"

// Of all names, in order: two versions of stepmill that name different words do not read each other's.
constexpr std::uint64_t layout_of_words() {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](const auto& words) {
    for (const WordName& one : words) {
      for (const char c : std::string_view(one.name)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
      hash = (hash ^ one.count) * 0x100000001b3;
    }
  };
  mix(kHeaderWords);
  mix(kPoolWords);
  mix(kWorkerWords);
  return hash;
}
inline constexpr std::uint64_t kLayout = layout_of_words();

// What the calling thread does; the lower two bits of `state`.
enum class CallerState : std::uint64_t {
  kOutside,   // it does something else
  kInside,    // it is in a call of the pool
  kWaiting,   // ... and waits until a batch is ready. It may help with the stepping meanwhile
  kStepping,  // ... and steps envs itself, because nobody else does
};

}  // namespace stepmill
