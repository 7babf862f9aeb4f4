// The ready queue in lanes: neighbouring envs share a lane, and each hand has its own lanes.
//
// For a cheap env, memory costs more than the step: fetching its state and rows from another core's cache takes many
// times as long as the arithmetic. So the same hand should step the same envs every time. An env's id determines its
// lane. A hand empties its own lanes first, and only then takes from the others, starting with those that their owners
// reach last.
//
// If envs come back while others wait (async mode), a lane may never be empty. So a hand goes round its lanes, and
// every so often looks at a lane of another hand, so that no env waits forever.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ready_queue.h"

namespace stepmill {

class ReadyLanes {
 public:
  static std::size_t bytes(std::int32_t num_envs, int hands) {
    const int shift = shift_for(num_envs, hands);
    return sizeof(Control) +
           static_cast<std::size_t>(lanes_for(num_envs, shift)) * ReadyQueue::bytes(1 << shift);
  }

  // `memory` is zeroed, or another process has laid it out. `goes_round`: envs are pushed again before all lanes are
  // empty.
  ReadyLanes(std::byte* memory, std::int32_t num_envs, int hands, bool goes_round)
      : control_(*reinterpret_cast<Control*>(memory)),
        num_envs_(num_envs),
        shift_(shift_for(num_envs, hands)),
        goes_round_(goes_round),
        turns_(static_cast<std::size_t>(std::max(1, hands))) {
    const std::size_t step = ReadyQueue::bytes(1 << shift_);
    for (int lane = 0; lane < lanes_for(num_envs, shift_); ++lane)
      lanes_.emplace_back(memory + sizeof(Control) + static_cast<std::size_t>(lane) * step, 1 << shift_);
  }

  // The caller only, while nothing is queued.
  void go_round(bool goes_round) { goes_round_.store(goes_round, std::memory_order_relaxed); }

  // The caller only.
  void push(std::span<const std::int32_t> envs) {
    const std::size_t count = envs.size();
    while (!envs.empty()) {
      const std::int32_t lane = envs[0] >> shift_;
      std::size_t end = 1;
      while (end < envs.size() && envs[end] >> shift_ == lane) ++end;
      lanes_[static_cast<std::size_t>(lane)].push(envs.first(end));
      envs = envs.subspan(end);
    }
    count_pushed(count);
  }

  // The caller only. Every env, in the order of their ids: what a sync pool sends nearly always.
  void push_all() {
    std::int32_t first = 0;
    for (ReadyQueue& lane : lanes_) {
      lane.push_run(first, std::min(1 << shift_, num_envs_ - first));
      first += 1 << shift_;
    }
    count_pushed(static_cast<std::size_t>(num_envs_));
  }

  // Takes up to `most` envs into `out` and returns how many. Called by hand `hand` of `hands`.
  std::int32_t pop(int hand, int hands, std::int32_t most, std::int32_t* out) {
    const int count = static_cast<int>(lanes_.size());
    const int first = hand * count / hands, last = (hand + 1) * count / hands;
    int begin = first;
    if (goes_round_.load(std::memory_order_relaxed)) {
      auto& counter = turns_[static_cast<std::size_t>(hand) % turns_.size()].count;
      const std::uint32_t turn = counter.fetch_add(1, std::memory_order_relaxed);
      if (turn % kLookAround == 0)
        if (const std::int32_t taken = take(lane_of_turn(turn / kLookAround, 0, count), most, out)) return taken;
      if (last > first) begin = lane_of_turn(turn, first, last);
    }
    for (int lane = begin; lane < last; ++lane)
      if (const std::int32_t taken = take(lane, most, out)) return taken;
    for (int lane = first; lane < begin; ++lane)
      if (const std::int32_t taken = take(lane, most, out)) return taken;
    for (int back = 1; back <= count - (last - first); ++back)
      if (const std::int32_t taken = take((first - back + count) % count, most, out)) return taken;
    return 0;
  }

  // The lane of [first, last) at which a hand begins, turn by turn. The count of turns goes through all of its 32 bits.
  static int lane_of_turn(std::uint32_t turn, int first, int last) {
    return first + static_cast<int>(turn % static_cast<std::uint32_t>(last - first));
  }

  std::int64_t size() const {
    // In this order, so that a pop in between shows fewer, never a negative number or too many.
    const std::uint64_t taken = control_.taken.load(std::memory_order_seq_cst);
    const std::uint64_t pushed = control_.pushed.load(std::memory_order_seq_cst);
    return static_cast<std::int64_t>(pushed - taken);
  }

 private:
  struct Control {
    // Envs ever pushed, counted after they are in their lanes.
    alignas(kCacheLine) std::atomic<std::uint64_t> pushed;
    // Envs ever taken, counted after they left. A hint of how many wait; the lanes know exactly.
    alignas(kCacheLine) std::atomic<std::uint64_t> taken;
  };

  // A lane holds a power of two of envs, at least as many as a block that steps together. There are about four lanes
  // per hand, so that the work can be shared evenly.
  static int shift_for(std::int32_t num_envs, int hands) {
    const std::int64_t wanted = num_envs / (4 * std::max(1, hands));
    int shift = 6;
    while ((std::int64_t{1} << shift) < wanted) ++shift;
    return shift;
  }
  static int lanes_for(std::int32_t num_envs, int shift) {
    return (num_envs + (1 << shift) - 1) >> shift;
  }

  void count_pushed(std::size_t count) {
    const std::uint64_t pushed = control_.pushed.load(std::memory_order_relaxed);
    control_.pushed.store(pushed + count, std::memory_order_seq_cst);
  }

  std::int32_t take(int lane, std::int32_t most, std::int32_t* out) {
    const std::int32_t count = lanes_[static_cast<std::size_t>(lane)].pop(most, out);
    if (count != 0)
      control_.taken.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_seq_cst);
    return count;
  }

  static constexpr std::uint32_t kLookAround = 16;

  struct Turn {
    // How often a hand has called. It only decides where the hand starts, so relaxed order is enough.
    alignas(kCacheLine) std::atomic<std::uint32_t> count{0};
  };

  Control& control_;
  const std::int32_t num_envs_;
  const int shift_;
  // Only says where a hand starts, so relaxed order is enough.
  std::atomic<bool> goes_round_;
  std::vector<Turn> turns_;
  std::vector<ReadyQueue> lanes_;
};

}  // namespace stepmill
