// Station 4: slots fill; the last one wakes the caller.
//
// In async mode a finished env takes the next slot of the open batch. The ring has the buffers of the open batches, by
// number; the claim word says which slot is next. In sync mode, and for a reset of some envs, the caller has already
// assigned the slots and the ring is not used.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/memory/arena.h"
#include "core/memory/batch_layout.h"
#include "core/kill_points.h"
#include "core/memory/rows_event.h"
#include "core/memory/wait.h"

namespace stepmill {

// Counts rows as written, `resets` of them from resets, and wakes the caller if they are the last ones it waits for.
// `event`: the descriptor of the pool's RowsEvent; -1: it has none.
inline void commit(BatchHeader& header, std::uint32_t rows, std::uint32_t resets, bool any_ended, bool shared,
                   int event = -1) {
  if (resets != 0) {
    header.resets.fetch_add(resets, std::memory_order_relaxed);
    STEPMILL_KILL_POINT("half counted");
  }
  if (any_ended) header.any_ended.store(1, std::memory_order_relaxed);
  const std::uint32_t done = header.done.fetch_add(rows, std::memory_order_seq_cst) + rows;
  STEPMILL_KILL_POINT("counted");
  // A suspect count is larger than any wanted number: it always wakes the caller.
  std::uint32_t want = header.want.load(std::memory_order_seq_cst);
  if (want == 0 || done < header.rows_for(want)) return;
  if ((want & BatchHeader::kByEvent) == 0) return futex_wake(header.done, 1, shared);
  if (!header.want.compare_exchange_strong(want, 0, std::memory_order_seq_cst)) return;  // somebody else rings
  STEPMILL_KILL_POINT("to ring");
  ring_rows_event(event);
}

class BatchRing {
 public:
  // One place for every batch that envs in flight could fill, and one for a sealed batch.
  static std::uint32_t places_for(std::int32_t num_envs, std::int32_t batch_size) {
    const auto needed = static_cast<std::uint32_t>((num_envs - 1) / batch_size + 3);
    std::uint32_t places = 1;
    while (places < needed) places *= 2;
    return places;
  }

  static std::size_t bytes(std::int32_t num_envs, std::int32_t batch_size) {
    return sizeof(Control) + align_up(places_for(num_envs, batch_size) * sizeof(std::uint64_t),
                                      kCacheLine);
  }

  // `memory` is zeroed, or another process has laid it out.
  BatchRing(std::byte* memory, std::int32_t num_envs, std::int32_t batch_size)
      : control_(*reinterpret_cast<Control*>(memory)),
        offsets_(reinterpret_cast<std::uint64_t*>(memory + sizeof(Control))),
        mask_(places_for(num_envs, batch_size) - 1),
        batch_size_(static_cast<std::uint32_t>(batch_size)) {}

  std::uint32_t places() const { return mask_ + 1; }
  std::uint32_t place(std::uint32_t number) const { return number & mask_; }

  // ---- the caller ----

  // Opens batch `number` in the buffer at `offset`. Visible to workers with the next queue push.
  void open(std::uint32_t number, std::uint64_t offset) { offsets_[number & mask_] = offset; }

  // Ends the open batch after the slots taken so far and returns their number. Later claims go to the next batch, which
  // must be open.
  std::uint32_t seal(std::uint32_t number) {
    std::uint64_t word = control_.next.load(std::memory_order_acquire);
    do {
      if (word >> 32 != number) return batch_size_;  // it filled up
    } while (!control_.next.compare_exchange_weak(word, pack(number + 1, 0),
                                                  std::memory_order_acq_rel,
                                                  std::memory_order_acquire));
    return static_cast<std::uint32_t>(word);
  }

  // ---- threads that step envs ----

  struct Slots {
    std::uint32_t place;   // of the batch in the ring
    std::uint32_t first, count;
    std::uint64_t offset;  // of its buffer in the arena
  };

  // Takes up to `most` slots of the open batch; fewer at its end.
  Slots claim(std::uint32_t most) {
    std::uint64_t word = control_.next.load(std::memory_order_relaxed);
    std::uint32_t number, row, count;
    std::uint64_t next;
    do {
      number = static_cast<std::uint32_t>(word >> 32);
      row = static_cast<std::uint32_t>(word);
      count = most < batch_size_ - row ? most : batch_size_ - row;
      next = row + count == batch_size_ ? pack(number + 1, 0) : pack(number, row + count);
    } while (!control_.next.compare_exchange_weak(word, next, std::memory_order_acq_rel,
                                                  std::memory_order_relaxed));
    return {number & mask_, row, count, offsets_[number & mask_]};
  }

 private:
  struct Control {
    // (batch number, next free slot). Each slot is given out once: the thread that advances the word owns the slots in
    // between. The number wraps; it is only compared for equality and used modulo the ring size, which is a power of
    // two.
    alignas(kCacheLine) std::atomic<std::uint64_t> next;
  };

  static std::uint64_t pack(std::uint32_t number, std::uint32_t row) {
    return static_cast<std::uint64_t>(number) << 32 | row;
  }

  Control& control_;
  std::uint64_t* offsets_;
  std::uint32_t mask_, batch_size_;
};

}  // namespace stepmill
