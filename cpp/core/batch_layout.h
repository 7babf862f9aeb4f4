// The slot format: where each column of a batch lies in its buffer.
//
// A pure function of the env's spec and the pool's options, so that a process which maps the arena
// finds the same columns at the same offsets. A row of every column belongs to one finished env.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/env_table.h"
#include "core/spec.h"

namespace stepmill {

inline constexpr std::size_t kCacheLine = 64;

constexpr std::size_t align_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The bytes of a column, rounded up to whole cache lines. Throws std::bad_alloc if no address space
// could hold them.
std::size_t column_bytes(std::int64_t row_bytes, std::int64_t rows);

// At the start of every buffer.
struct BatchHeader {
  // Rows written. Release-added by who wrote them, acquire-read by the caller: a row counted here
  // is visible. Also the futex word that the caller sleeps on. The top bit says that a worker process
  // died which may have written a row and not counted it: then every count wakes the caller, who looks
  // at the env words instead (process_pool.cpp).
  std::atomic<std::uint32_t> done;
  static constexpr std::uint32_t kSuspect = 1u << 31;
  // Rows the sleeping caller waits for; 0: nobody sleeps. Sequentially consistent together with
  // `done`: either the writer of the last row sees it and wakes, or the caller sees the count. With the top
  // bit, rows of resets are not among those it waits for.
  std::atomic<std::uint32_t> want;
  static constexpr std::uint32_t kStepsOnly = 1u << 31;
  // Rows of resets; only of pools whose results come as they are ready. Added to before `done`, so whoever sees a
  // row counted there sees it here. It may be ahead: then who is about to count that row looks once more.
  std::atomic<std::uint32_t> resets;
  // Whether an episode ended in a row. Ordered by `done`.
  std::atomic<std::uint32_t> any_ended;

  // How many rows `done` has to say for so much to be there. To be called after `done` was read.
  std::uint32_t rows_for(std::uint32_t wanted) const {
    return (wanted & kStepsOnly) == 0 ? wanted : (wanted & ~kStepsOnly) + resets.load(std::memory_order_relaxed);
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
  // Copies a row of a buffer of this layout to one of another, of the same spec and options.
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
  std::vector<std::size_t> observation_, info_, final_observation_, final_info_;
  std::vector<Column> columns_;  // all of them, in an order that depends on the spec alone
};

}  // namespace stepmill
