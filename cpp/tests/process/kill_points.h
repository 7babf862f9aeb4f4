// The points of the protocol at which tests kill, stop or hold workers, and what these tests share.
#pragma once

#include "tests/check.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"

namespace stepmill::test {

struct Point {
  const char* name;
  bool in_sync, in_async, in_same_step, in_call;  // where it is passed
  bool stands;  // the row, or the answer, is whole by then: it counts
  bool in_resets = false;  // only of pools whose results come as they are ready, for their resets
  bool in_loop = false;    // only for callers that wait in an event loop
};

constexpr Point kPoints[] = {
    {"before running", true, true, true, true, false},
    {"running", true, true, true, true, false},
    {"end kept", false, false, true, false, false},
    {"before writing", true, true, true, true, false},
    {"writing", true, true, true, true, false},
    {"taken", false, true, false, false, false},
    {"claimed", false, true, false, false, false},
    {"copied", true, true, true, false, false},
    {"reported", true, true, true, false, false},
    {"done", true, true, true, false, true},
    {"half counted", false, false, false, false, true, true},
    {"counted", true, true, true, false, true},
    {"to ring", false, false, false, false, true, false, true},
    {"committed", true, true, true, false, true},
    {"rest", true, true, true, false, true},
    {"call at rest", false, false, false, true, true},
};

// One env per worker, so that the n-th pass of a point is that of the n-th action.
inline ProcessDriverOptions one_env_each(std::int32_t workers, std::int32_t batch_size) {
  return options_of(workers, batch_size, workers);
}

// A first action of every env, and all that belongs to it is over: traps that are set now are met by the next.
inline void begin(Processes& p, Ledger& ledger) {
  ledger.send(all_of(p.options.num_envs), kGoOn);
  ledger.drain();
  for (std::int32_t env = 0; env < p.options.num_envs; ++env) p.await_rest(env);
}

}  // namespace stepmill::test
