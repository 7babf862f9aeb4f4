// What a kernel is given: addresses on the GPU. The launcher fills it on the host.
//
// The objects of envs are stored word by word: word w of env i is at w * num_envs + i, so that neighbouring threads read
// neighbouring words.
#pragma once

#include <cstdint>

#include "core/env/env_table.h"

namespace stepmill::gpu {

// An action, an observation and the infos have at most so many arrays each.
inline constexpr int kMostArrays = 32;

// Threads per block; larger blocks gain nothing at 60 registers per thread.
inline constexpr int kBlock = 128;

// A generator: its state and increment, the high words first, and the half that is left.
using Random = std::uint64_t[5];

// The part of an env that is seldom needed: when it draws, and when an episode begins or ends. Two sectors of memory, and
// two more for the options of its next reset.
struct alignas(64) Seldom {
  Random random;
  std::uint64_t seed;        // of the next reset, if the phase says so
  std::uint32_t ended;       // how many episodes have
  std::uint32_t option_mask;
  double option[SM_MAX_RESET_OPTIONS];  // of the next reset, likewise
};

// Of the word of an env's phase: sm_phase is below them, consecutive failures are in the high half.
inline constexpr std::uint32_t kHasSeed = 1 << 8, kHasOptions = 1 << 9;

struct Envs {
  std::uint64_t* memory;  // of the env class's objects
  Seldom* seldom;
  double* episode_return;
  std::int32_t* elapsed;
  std::uint32_t* phase;
};

// The rows of a batch, one for every env. Of those that are not stepped nothing is written.
struct Results {
  void* observation[kMostArrays];
  void* final_observation[kMostArrays];  // same_step only; likewise of rows that did not end
  void* info[kMostArrays];
  void* final_info[kMostArrays];
  std::uint8_t* has_info[kMostArrays];
  std::uint8_t* has_final_info[kMostArrays];
  float* reward;
  std::uint8_t* terminated;
  std::uint8_t* truncated;
  std::uint8_t* ended;
  std::uint8_t* abnormal;
  std::int32_t* env_id;
  std::int32_t* elapsed_step;
  std::int32_t* episode_length;
  double* episode_return;
};

// What a pool wants to know now and then, and does not wait for. An env id is kept as its distance from 2**32 - 1: so
// the least one wins by a maximum, and 0 says that there is none.
struct Notes {
  unsigned long long failures;
  unsigned bad_action;
  unsigned failed;
};

struct Arguments {
  Envs envs;
  Results results;
  Notes* notes;
  const void* action[kMostArrays];
  const std::uint8_t* which;    // the envs to step; null: all
  const std::uint8_t* command;  // sm_command of each env; null: SM_STEP
  const std::uint8_t* has_seed;
  const std::uint64_t* seed;    // of resets; null: none
  const double* option;         // of resets: SM_MAX_RESET_OPTIONS numbers, for all envs; null: none
  std::uint32_t option_mask;
  std::int32_t num_envs, max_episode_steps;
};

// Which envs are copied: env `to_index[i]` there becomes what env `from_index[i]` is here; null: one after another.
struct Copy {
  Envs from, to;
  std::int64_t from_count, to_count;  // how many envs there are
  std::int64_t words;                 // of an env's memory
  const std::int32_t *from_index, *to_index;
  std::int32_t num_envs;  // that are copied
  bool goes_on_counting;  // whether envs there keep the number of their episodes, which belongs to the pool; else it is 0
};

// Takes what was noted: after that, nothing is.
struct TakeNotes {
  Notes *from, *to;
  std::int32_t num_envs = 1;  // one thread does it
};

// For the number of episodes that have ended, of all envs together.
struct Count {
  Envs envs;
  unsigned long long* ended;
  std::int32_t num_envs;
};

}  // namespace stepmill::gpu
