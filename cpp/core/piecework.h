// Work that the caller needs done before it goes on, in pieces, by the caller and whichever threads are free.
//
// The caller takes pieces like everybody else, so it waits only for those that a thread has begun: a thread that is
// stuck elsewhere holds nothing up.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/memory/wait.h"

namespace stepmill {

class Piecework {
 public:
  using Piece = void (*)(void* context, std::uint32_t index);

  // The caller only, and never before the last work is finished.
  void open(std::uint32_t pieces, Piece piece, void* context) {
    piece_ = piece;
    context_ = context;
    done_.store(0, std::memory_order_relaxed);
    next_.store(std::uint64_t{pieces} << 32, std::memory_order_seq_cst);
  }

  // Does one piece, if one is left.
  bool work_once() {
    std::uint64_t next = next_.load(std::memory_order_relaxed);
    do
      if (!left(next)) return false;
    while (!next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    // A thread that holds a piece keeps the work open: what `open` wrote stays until it is counted.
    piece_(context_, static_cast<std::uint32_t>(next));
    done_.fetch_add(1, std::memory_order_release);
    return true;
  }

  // The caller only. Does what is left, and waits for what others have begun.
  void finish() {
    while (work_once()) {
    }
    const auto pieces = static_cast<std::uint32_t>(next_.load(std::memory_order_relaxed) >> 32);
    const auto done = [&] { return done_.load(std::memory_order_acquire) == pieces; };
    while (!spin_until(kSpin, done)) yield_core();
  }

  // Whether a piece is left. Sequentially consistent with `open`, for threads that are about to sleep.
  bool waiting() const { return left(next_.load(std::memory_order_seq_cst)); }

 private:
  static bool left(std::uint64_t next) { return static_cast<std::uint32_t>(next) < next >> 32; }

  static constexpr auto kSpin = std::chrono::microseconds(10);

  Piece piece_ = nullptr;
  void* context_ = nullptr;
  // The next piece, and above it how many there are. Who moves it on has the piece. A thread that looked at the last
  // work and takes a piece of this one has taken it rightly: it reads what to do afterwards.
  alignas(64) std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint32_t> done_{0};  // pieces; what they wrote is visible to a thread that sees them counted
};

}  // namespace stepmill
