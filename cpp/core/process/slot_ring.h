// Station 4 for worker processes: the claim is the ledger.
//
// From the instant a slot is taken, its own word says which env has it, (env, epoch): whatever happens to the worker
// then, the pool can tell which env the slot belongs to. Slots of a batch are taken in order, and a batch is sealed by
// taking its first free slot without an env.
//
// A batch is received with at least one row. So the hint, where claims start to search, is never further behind than
// the last received batch, and that batch's place is not opened again before another batch was received. Therefore no
// worker looks for a free slot in a place that is being opened, where some words may still be those of the previous
// batch.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <stdexcept>

#include "core/batch_ring.h"

namespace stepmill {

class SlotRing {
 public:
  static std::size_t bytes(std::int32_t num_envs, std::int32_t batch_size) {
    const std::size_t places = BatchRing::places_for(num_envs, batch_size);
    return kCacheLine + align_up(places * sizeof(Opened), kCacheLine) +
           places * static_cast<std::size_t>(batch_size) * sizeof(std::uint64_t);
  }

  // `memory` is zeroed, or another process has laid it out.
  SlotRing(std::byte* memory, std::int32_t num_envs, std::int32_t batch_size)
      : next_(*reinterpret_cast<std::atomic<std::uint64_t>*>(memory)),
        opened_(reinterpret_cast<Opened*>(memory + kCacheLine)),
        mask_(BatchRing::places_for(num_envs, batch_size) - 1),
        batch_size_(static_cast<std::uint32_t>(batch_size)) {
    slots_ = reinterpret_cast<std::atomic<std::uint64_t>*>(
        memory + kCacheLine + align_up((mask_ + 1) * sizeof(Opened), kCacheLine));
  }

  std::uint32_t places() const { return mask_ + 1; }

  struct Slot {
    std::uint32_t number;  // of the batch
    std::uint32_t row;
    std::uint64_t offset;  // of its buffer in the arena
  };
  struct Owner {
    std::uint32_t env, epoch;
  };

  // ---- the caller ----

  // Opens batch `number` in the buffer at `offset`. No worker takes a slot of it before its word says that it is free.
  void open(std::uint32_t number, std::uint64_t offset) {
    Opened& batch = opened_[number & mask_];
    batch.offset.store(offset, std::memory_order_relaxed);
    batch.seal.store(Opened::seal_for(number, offset), std::memory_order_relaxed);
    for (std::uint32_t row = 0; row < batch_size_; ++row)
      slot(number, row).store(pack(number, kEmpty), std::memory_order_release);
  }

  // Ends batch `number` after the slots taken so far, and returns their number. Later claims go to the next batch.
  std::uint32_t seal(std::uint32_t number) {
    for (std::uint32_t row = 0; row < batch_size_; ++row) {
      std::uint64_t expected = pack(number, kEmpty);
      if (slot(number, row).compare_exchange_strong(expected, pack(number, kSealed), std::memory_order_acq_rel,
                                                    std::memory_order_acquire))
        return row;
    }
    return batch_size_;
  }

  // The env that took a slot; if none did, env is kEmpty or kSealed, and epoch is the number of the batch. Workers
  // write it, so read it through `ProcessChecks::slot`.
  static constexpr std::uint32_t kEmpty = 0xffffffff, kSealed = 0xfffffffe;
  Owner owner(std::uint32_t number, std::uint32_t row) const {
    const std::uint64_t word = slot(number, row).load(std::memory_order_acquire);
    return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
  }

  // Takes the first free slot of the batches from `first` to before `end`, for an env whose worker cannot. It trusts
  // only that a slot is free if its word says so.
  std::optional<Slot> claim_between(std::uint32_t first, std::uint32_t end, std::uint32_t env, std::uint32_t epoch) {
    for (std::uint32_t number = first; number != end; ++number)
      for (std::uint32_t row = 0; row < batch_size_; ++row) {
        std::uint64_t seen = slot(number, row).load(std::memory_order_relaxed);
        if (seen == pack(number, kEmpty) &&
            slot(number, row).compare_exchange_strong(seen, pack(epoch, env), std::memory_order_acq_rel))
          return Slot{number, row, 0};
        if (seen == pack(number, kSealed)) break;  // this batch has ended
      }
    return std::nullopt;
  }

  // Whether claims can start from the hint, if the batches from `first` to before `end` are open. The hint may be one
  // behind.
  bool hint_is_good(std::uint32_t first, std::uint32_t end) const {
    const std::uint64_t hint = next_.load(std::memory_order_acquire);
    return static_cast<std::uint32_t>(hint >> 32) - (first - 1) <= end - (first - 1) &&
           static_cast<std::uint32_t>(hint) <= batch_size_;
  }
  // Makes claims start at the first slot of a batch that is open, or will be next.
  void set_hint(std::uint32_t number) { next_.store(pack(number, 0), std::memory_order_release); }

  // ---- workers, which fill slots ----

  // Takes the next free slot. There is one, because `send` opened enough. Throws if there is none: then the memory is
  // broken.
  Slot claim(std::uint32_t env, std::uint32_t epoch) {
    std::uint64_t hint = next_.load(std::memory_order_acquire);
    // Each turn advances the hint, or finds that another worker has.
    for (std::uint64_t turns = std::uint64_t{kMostTurns} * places() * (batch_size_ + 1); turns > 0; --turns) {
      const auto number = static_cast<std::uint32_t>(hint >> 32);
      const auto row = static_cast<std::uint32_t>(hint);
      std::uint64_t next = pack(number + 1, 0);
      if (row < batch_size_) {
        std::uint64_t seen = pack(number, kEmpty);
        const bool taken = slot(number, row).compare_exchange_strong(
            seen, pack(epoch, env), std::memory_order_acq_rel, std::memory_order_acquire);
        if (seen != pack(number, kSealed)) next = pack(number, row + 1);
        if (taken) {
          STEPMILL_KILL_POINT("taken");
          // Only a hint: a worker that finds it behind advances it.
          next_.compare_exchange_strong(hint, next, std::memory_order_acq_rel, std::memory_order_relaxed);
          return {number, row, offset_of(number)};
        }
      }
      if (next_.compare_exchange_weak(hint, next, std::memory_order_acq_rel, std::memory_order_acquire)) hint = next;
    }
    throw std::runtime_error("the memory shared with the pool was overwritten: no slot is free");
  }

 private:
  static constexpr std::uint32_t kMostTurns = 1024;

  static std::uint64_t pack(std::uint32_t high, std::uint32_t low) {
    return static_cast<std::uint64_t>(high) << 32 | low;
  }
  // Where the buffer of an open batch is. Sealed: with an overwritten offset, a row could be written over anything.
  struct Opened {
    std::atomic<std::uint64_t> offset, seal;
    static std::uint64_t seal_for(std::uint32_t number, std::uint64_t offset) {
      return (offset ^ 0x9e3779b97f4a7c15u) * (2 * std::uint64_t{number} + 1);
    }
  };
  std::uint64_t offset_of(std::uint32_t number) const {
    const Opened& batch = opened_[number & mask_];
    const std::uint64_t offset = batch.offset.load(std::memory_order_relaxed);
    if (batch.seal.load(std::memory_order_relaxed) != Opened::seal_for(number, offset))
      throw std::runtime_error("the memory shared with the pool was overwritten: where a batch lies");
    return offset;
  }
  std::atomic<std::uint64_t>& slot(std::uint32_t number, std::uint32_t row) const {
    return slots_[static_cast<std::size_t>(number & mask_) * batch_size_ + row];
  }

  // (batch number, row): no slot before this one is free. It only moves forward, one slot or batch at a time.
  std::atomic<std::uint64_t>& next_;
  Opened* opened_;
  std::atomic<std::uint64_t>* slots_;
  std::uint32_t mask_, batch_size_;
};

}  // namespace stepmill
