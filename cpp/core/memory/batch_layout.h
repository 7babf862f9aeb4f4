// The slot format: where each column of a batch is in its buffer.
//
// It is a pure function of the env's spec and the pool's options, so a process that maps the arena finds the same
// columns at the same offsets. One row of every column belongs to one finished env.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/env/env_table.h"
#include "core/env/spec.h"

namespace stepmill {

inline constexpr std::size_t kCacheLine = 64;

constexpr std::size_t align_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The bytes of a column, rounded up to whole cache lines. Throws std::bad_alloc if no address space could hold them.
std::size_t column_bytes(std::int64_t row_bytes, std::int64_t rows);

// At the start of every buffer.
struct BatchHeader {
  // Rows written. The thread that wrote them adds them with release order, the caller reads with acquire order: a row
  // counted here is visible. This is also the futex word that the caller sleeps on. The top bit says that a worker
  // process has died that may have written a row without counting it: then every count wakes the caller, which looks at
  // the env words instead (process_pool.cpp).
  std::atomic<std::uint32_t> done;
  static constexpr std::uint32_t kSuspect = 1u << 31;
  // The number of rows that the sleeping caller waits for; 0: it does not sleep. Sequentially consistent together with
  // `done`: either the writer of the last row sees it and wakes the caller, or the caller sees the count. With the top
  // bit, the caller does not count rows of resets.
  //
  // With the next bit, the caller waits in an event loop, for as long as it likes, and the writer who finds enough rows
  // counted sets the word to 0 and then rings the pool's RowsEvent, once for all of them. So, from the moment that the
  // caller has stored this and seen too few rows until it looks again:
  //
  //     fewer rows are counted than it wants, or the event is rung, or whoever set the word to 0 is about to ring it.
  //
  // A thread always gets to that. A worker process may be killed before; once its end is certain, the pool rings
  // (`ProcessBooks::bury`).
  std::atomic<std::uint32_t> want;
  static constexpr std::uint32_t kStepsOnly = 1u << 31, kByEvent = 1u << 30;
  // Rows of resets; only for pools that return results as they are ready. Added to before `done`, so a thread that sees
  // a row counted there sees it here. It may be ahead: then the thread that is about to count that row checks again.
  std::atomic<std::uint32_t> resets;
  // Whether an episode ended in a row. Ordered by `done`.
  std::atomic<std::uint32_t> any_ended;

  // The value that `done` must reach for so many rows to be ready. Call it after reading `done`.
  std::uint32_t rows_for(std::uint32_t wanted) const {
    const std::uint32_t rows = wanted & ~(kStepsOnly | kByEvent);
    return (wanted & kStepsOnly) == 0 ? rows : rows + resets.load(std::memory_order_relaxed);
  }
};
static_assert(sizeof(BatchHeader) <= kCacheLine);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// The columns of one buffer as pointers of this process.
struct Columns {
  std::vector<void*> observation, info, final_observation, final_info;
  sm_columns c{};
};

class BatchLayout {
 public:
  BatchLayout(const EnvSpec& spec, std::int64_t capacity, bool same_step, bool reward_is_float32);

  std::size_t bytes() const { return bytes_; }
  std::int64_t capacity() const { return capacity_; }

  static BatchHeader* header(std::byte* buffer) { return reinterpret_cast<BatchHeader*>(buffer); }
  void fill(Columns& columns, std::byte* buffer) const;
  // Copies a row from a buffer of this layout to a buffer of another layout with the same spec and options.
  void copy_row(const std::byte* from, std::int64_t from_row, const BatchLayout& layout, std::byte* to,
                std::int64_t to_row) const;

 private:
  struct Column {
    std::size_t offset, row_bytes;
  };

  std::size_t add(std::int64_t row_bytes);

  std::int64_t capacity_;
  std::int64_t players_;
  std::size_t bytes_ = kCacheLine;  // the header
  std::size_t terminated_, truncated_, ended_, env_id_, elapsed_step_, episode_length_;
  std::size_t reward_, episode_return_, players_at_ = 0;
  std::size_t info_present_ = 0, final_info_present_ = 0;
  std::vector<std::size_t> observation_, info_, final_observation_, final_info_;
  std::vector<Column> columns_;  // all of them, in an order that depends only on the spec
};

}  // namespace stepmill
