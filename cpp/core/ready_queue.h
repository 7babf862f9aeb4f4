// Station 2: which env is next. This is one lane; `core/ready_lanes.h` combines them.
//
// One producer (the caller), many consumers (the workers and the helping caller), which take envs in chunks. The ring
// has a place for every env and an env is in flight at most once, so a place is never rewritten while its env waits in
// the queue. Once the env is taken, it may be: other envs come back and are queued again before the consumer that took
// it has read the place. So a consumer first reads the places, then takes them; if it fails to take them, it reads
// again.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "core/memory/arena.h"
#include "core/memory/batch_layout.h"

namespace stepmill {

class ReadyQueue {
 public:
  static std::size_t bytes(std::int32_t num_envs) {
    return sizeof(Control) + align_up(capacity_for(num_envs) * sizeof(std::int32_t), kCacheLine);
  }

  // `memory` is zeroed, or another process has laid it out.
  ReadyQueue(std::byte* memory, std::int32_t num_envs)
      : control_(*reinterpret_cast<Control*>(memory)),
        places_(reinterpret_cast<Place*>(memory + sizeof(Control))),
        mask_(capacity_for(num_envs) - 1) {}

  // The caller only.
  void push(std::span<const std::int32_t> envs) {
    if (full_run_ != kNone) full_run_ = kNone;
    std::uint64_t tail = control_.tail.load(std::memory_order_relaxed);
    for (const std::int32_t env : envs) places_[tail++ & mask_].store(env, std::memory_order_relaxed);
    control_.tail.store(tail, std::memory_order_release);
  }

  // The caller only. The envs `first`, `first + 1` and so on. A run that fills the ring ends where it began, so the same
  // one again finds every env in its place, and nothing is written.
  void push_run(std::int32_t first, std::int32_t count) {
    const std::uint64_t tail = control_.tail.load(std::memory_order_relaxed);
    const std::int32_t run = static_cast<std::uint64_t>(count) == mask_ + 1 ? first : kNone;
    if (run == kNone || run != full_run_)
      for (std::int32_t i = 0; i < count; ++i)
        places_[(tail + static_cast<std::uint64_t>(i)) & mask_].store(first + i, std::memory_order_relaxed);
    if (full_run_ != run) full_run_ = run;  // others read what lies beside it: do not take the line from them
    control_.tail.store(tail + static_cast<std::uint64_t>(count), std::memory_order_release);
  }

  // Takes up to `most` envs into `out` and returns how many.
  std::int32_t pop(std::int32_t most, std::int32_t* out) {
    std::uint64_t head = control_.head.load(std::memory_order_acquire);
    std::int64_t count;
    do {
      // A stale head is behind, never ahead of, the tail that is read after it.
      const std::uint64_t tail = control_.tail.load(std::memory_order_acquire);
      count = std::min<std::int64_t>(static_cast<std::int64_t>(tail - head), most);
      if (count <= 0) return 0;
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = places_[(head + static_cast<std::uint64_t>(i)) & mask_].load(std::memory_order_relaxed);
    } while (!control_.head.compare_exchange_weak(head, head + static_cast<std::uint64_t>(count),
                                                  std::memory_order_acq_rel,
                                                  std::memory_order_acquire));
    return static_cast<std::int32_t>(count);
  }

  std::int64_t size() const {
    const std::uint64_t head = control_.head.load(std::memory_order_acquire);
    return static_cast<std::int64_t>(control_.tail.load(std::memory_order_acquire) - head);
  }

 private:
  struct Control {
    // Envs ever queued. Written by the caller; its release publishes the places, the actions and the open batches.
    alignas(kCacheLine) std::atomic<std::uint64_t> tail;
    // Envs ever taken, never past `tail`. The consumer that advances it owns the envs that it read in between.
    alignas(kCacheLine) std::atomic<std::uint64_t> head;
  };
  // Relaxed: the tail's release publishes what was written, the head's release keeps reads before it.
  using Place = std::atomic<std::int32_t>;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(Place) == sizeof(std::int32_t));

  static constexpr std::int32_t kNone = -1;

  static std::uint64_t capacity_for(std::int32_t num_envs) {
    std::uint64_t capacity = 1;
    while (capacity < static_cast<std::uint64_t>(num_envs)) capacity *= 2;
    return capacity;
  }

  Control& control_;
  Place* places_;
  std::uint64_t mask_;
  std::int32_t full_run_ = kNone;  // first env of the run that fills the ring, if the last push was one; the caller's own
};

}  // namespace stepmill
