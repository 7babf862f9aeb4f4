// What the counters that `stepmill top` reads add to a call, without anything else: nanoseconds of this thread.
//
//     counter_cost [calls]
//
// Each line does exactly what the engine does for the counters in such a call, in a loop, less the empty loop.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/counters/pool_counters.h"

using namespace stepmill;

namespace {

double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// As the pool's own numbers, which the engine reads anyway.
volatile std::uint64_t in_flight = 64, held = 3, memory = 1 << 20;
volatile float cost = 20.0f;

[[gnu::always_inline]] inline void started(PoolCounters& counters) { set(counters.pool().in_flight, in_flight); }
[[gnu::always_inline]] inline void received(PoolCounters& counters) {
  PoolRecord& counts = counters.pool();
  add_to(counts.batches, 1);
  add_to(counts.steps, 64);
  set(counts.in_flight, in_flight);
  set(counts.batches_held, held);
  set(counts.memory_bytes, memory);
}
[[gnu::always_inline]] inline void stepped(PoolCounters& counters) {
  add_work(counters.pool().caller, static_cast<std::uint64_t>(static_cast<double>(cost) * 64), 64);
}

template <class F>
double loop_ns(long calls, F body) {
  double best = 1e9;
  for (int round = 0; round < 9; ++round) {
    const double from = thread_ns();
    for (long i = 0; i < calls; ++i) {
      body();
      asm volatile("" ::: "memory");
    }
    best = std::min(best, (thread_ns() - from) / static_cast<double>(calls));
  }
  return best;
}

}  // namespace

int main(int count, char** arguments) {
  const long calls = count > 1 ? std::atol(arguments[1]) : 1'000'000;
  PoolCounters counters({"CartPole-v1", "thread", "pool"}, 64, 64, 2);
  counters.publish();
  const double empty = loop_ns(calls, [] {});
  const auto show = [&](const char* name, auto body) { std::printf("%s\t%.1f\n", name, loop_ns(calls, body) - empty); };
  show("send", [&] {
    const CallTime call(counters);
    started(counters);
  });
  show("recv", [&] {
    const CallTime call(counters);
    received(counters);
  });
  show("step", [&] {
    const CallTime call(counters);
    started(counters);
    stepped(counters);
    received(counters);
  });
  // The first of the two readings of the clock that a wait adds is taken while the envs step: it delays nothing.
  show("step that waits", [&] {
    const CallTime call(counters);
    started(counters);
    WaitTime wait(counters);
    wait.begin(CallerState::kWaiting);
    received(counters);
  });
}
