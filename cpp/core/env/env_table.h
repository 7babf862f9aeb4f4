// The boundary between the engine and the envs: plain C data and one table of functions per env class.
//
// The engine knows an env class only through its `sm_env_table`, so an env that was compiled elsewhere could be loaded
// next to the built-in ones. Everything in this file has C layout. A table carries the version and the size it was
// compiled with, and the engine refuses those it does not know. Authors never write a table: `core/table_of.h` makes
// one from an ordinary C++ class (`env.h`).
#pragma once

#include <cstdint>

extern "C" {

enum { SM_ABI_VERSION = 7, SM_MAX_RESET_OPTIONS = 6, SM_ERROR_CAPACITY = 1024 };

// ---- how an env describes itself ------------------------------------------------------------

enum sm_value_type { SM_FLAG, SM_INTEGER, SM_REAL, SM_TEXT, SM_REALS };

struct sm_value {
  const char* key;
  int32_t type;   // sm_value_type
  int32_t count;  // of `reals`
  int64_t integer;
  double real;
  const char* text;
  const double* reals;
};

struct sm_values {
  const sm_value* values;
  int32_t count;
};

enum sm_leaf_role { SM_OBSERVATION, SM_ACTION, SM_INFO };

struct sm_leaf {
  int32_t role;  // sm_leaf_role
  int32_t kind;  // stepmill::LeafKind
  int32_t dtype;
  int32_t rank;
  int32_t bounds;  // how many values `low` and `high` hold: 1, or one per element
  const char* name;
  const int64_t* shape;
  const double* low;
  const double* high;
};

struct sm_description {
  int32_t observation_tree, action_tree;  // stepmill::Tree
  int32_t max_num_players;
};

// ---- what passes between the engine and an env while it runs --------------------------------

enum sm_phase : uint8_t {
  SM_FRESH,  // never reset
  SM_LIVE,   // inside an episode
  SM_ENDED,  // the episode is over, or the env failed: it must be reset before it steps
};

enum sm_command : uint8_t {
  SM_STEP,
  SM_RESET,
  SM_OBSERVE,  // observe again, change nothing: for the envs that a masked reset leaves alone
  SM_RECALL,   // the same, with infos: for envs that were given a saved state
};

enum sm_autoreset { SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED };

enum { SM_MOST_FAILURES = 0xffff };

// The autoreset machine's memory of one env. Written by the thread that steps the env, and by the caller while the env
// is idle; never by both (an env is in flight at most once).
struct sm_env_state {
  double episode_return;
  int32_t elapsed;
  uint8_t phase;    // sm_phase
  uint8_t command;  // sm_command: what the queued action means
  uint16_t failures;  // consecutive ones, without a good step between them; stays at SM_MOST_FAILURES
  int64_t episode;  // episodes started
};

// What the next reset of one env is given. `seed` counts only if `has_seed` is set.
struct sm_reset_request {
  uint64_t seed;
  uint32_t has_seed;
  uint32_t option_mask;  // bit i: option[i] was given
  double option[SM_MAX_RESET_OPTIONS];
};

// What a batch shows of one player of an env: nothing (0), or a row, which may be its last one. A player that has one and
// goes on is the one that acts next.
enum sm_player_flag { SM_HAS_ROW = 1, SM_PLAYER_TERMINATED = 2, SM_PLAYER_TRUNCATED = 4 };

// The columns of one batch buffer. Arrays with a row per player have `max_num_players` rows per env.
struct sm_columns {
  void* const* observation;
  void* const* info;
  void* const* final_observation;  // same_step only, else null
  void* const* final_info;
  // Which info leaves each row has, one byte per leaf: those of row r begin at r * info_leaves. Null without info leaves.
  uint8_t* info_present;
  uint8_t* final_info_present;  // same_step only; those of rows that did not end mean nothing
  void* reward;  // float32 or float64, see sm_shared
  uint8_t* terminated;
  uint8_t* truncated;
  uint8_t* ended;  // the mask of episode_return and episode_length
  int32_t* env_id;
  int32_t* elapsed_step;
  int32_t* episode_length;
  double* episode_return;
  // Bits of sm_player_flag, one byte per player: those of row r begin at r * max_num_players. Null if that is 1.
  uint8_t* players;
};

struct sm_place {
  const sm_columns* columns;
  int64_t row;
};

// The arrays of a pool that all of its workers see, indexed by env id.
struct sm_shared {
  sm_env_state* state;
  sm_reset_request* reset;
  void* const* action;             // one per leaf
  const int64_t* action_bytes;     // of one player's row, one per leaf
  // Whether a player has sent an action, one byte per player: those of env e begin at e * max_num_players. Null if that is
  // 1.
  const uint8_t* action_players;
  const int64_t* observation_bytes;
  const int64_t* info_bytes;
  void* const* last_observation;   // null unless failures keep the last good one
  int32_t observation_leaves;
  int32_t info_leaves;
  int32_t autoreset;          // sm_autoreset
  int32_t max_episode_steps;  // 0: no limit
  int32_t max_num_players;
  int32_t reward_is_float32;
};

enum sm_fault_phase { SM_IN_RESET, SM_IN_STEP, SM_IN_OBSERVE, SM_IN_CONSTRUCTOR, SM_IN_CALL };

// A list of envs to advance by one action each. Entry i writes row first_row + i of `columns`. If `columns` is null,
// the env takes its row only when its step is done, through `claim`, so that a slow step holds no place in an open
// batch.
struct sm_job {
  const sm_shared* shared;
  const int32_t* env;
  const sm_columns* columns;
  int64_t first_row;
  int32_t count;
  void* context;
  sm_place (*claim)(void* context, int32_t env);
  void (*fault)(void* context, int32_t env, int32_t phase, const char* message);
};

// The state of an env's generator, in the words of numpy's PCG64.
struct sm_random_state {
  uint64_t state[2], increment[2];  // the high word first
  uint32_t has_uint32, uinteger;    // the half of a 64-bit word that has not been used yet
};

// A source of random bits: the layout of numpy's `bitgen_t`.
struct sm_bit_source {
  void* state;
  uint64_t (*next_uint64)(void*);
  uint32_t (*next_uint32)(void*);
  double (*next_double)(void*);
  uint64_t (*next_raw)(void*);
};

// The memory of an env, of which a GPU gets a copy.
struct sm_env_memory {
  const void* object;  // of the class
  int64_t object_bytes;
  // What the object points to and never writes, and where in the object that pointer is. Null if there is nothing.
  const void* read;
  int64_t read_bytes, read_offset;
};

struct sm_env_table {
  uint32_t abi_version;
  uint32_t size;
  const char* name;
  const void* context;  // for the functions below that are given the table: whatever its maker keeps there
  // Whether reset, step and observe only compute, and none of them for long. If so, the calling thread may run them
  // itself, while no signal reaches it and, for short batches, no other Python thread runs; and envs are stepped in
  // chunks, in which each env waits for those before it.
  int32_t never_blocks;
  // Calls `put` for every configuration key with its default. Returns 0, or writes a message and returns non-zero.
  int (*configuration)(const sm_env_table*, void* sink, void (*put)(void* sink, const sm_value*), char* error);
  // Names of the reset options, at most SM_MAX_RESET_OPTIONS, null-terminated.
  const char* const* reset_options;
  // Returns 0, or writes the reason into `error` (SM_ERROR_CAPACITY bytes).
  int (*check_options)(const sm_env_table*, const sm_reset_request*, char* error);
  // Whether the envs call a simulator that Python makes for them: then `describe`, `build` and `connect` are given what
  // Python says about it. Otherwise `simulator` has no values.
  int32_t has_simulator;
  int (*describe)(const sm_env_table*, sm_values config, sm_values simulator, sm_description* out, void* sink,
                  void (*put)(void* sink, const sm_leaf*), char* error);
  // Storage for `count` envs; `build` constructs those from `first` to `last` - 1 in it, all of one configuration (and,
  // if they have simulators, only one at a time). It returns `last`, or the index of the env that failed, and writes the
  // reason into `error`.
  void* (*allocate)(const sm_env_table*, int32_t count);
  int32_t (*build)(void* envs, int32_t first, int32_t last, sm_values config, sm_values simulator, char* error);
  // Gives the env at `index` another simulator from its next reset on. Not while that env is stepped.
  int (*connect)(void* envs, int32_t index, sm_values simulator, char* error);
  void (*release)(void* envs);
  // Advances every env of the job and returns whether an episode ended. Env id i is at index i - first_id of the
  // storage.
  int (*advance)(void* envs, int32_t first_id, const sm_job*);
  // The state of the generator of the env at `index`. Not while that env is stepped.
  void (*random_state)(const void* envs, int32_t index, sm_random_state* out);
  // Calls `put` for every number that a drawing of the env at `index` shows; an env class need not have any. `resets`:
  // how often that env was reset. Not while that env is stepped. Returns 0, or writes the reason into `error`.
  int (*picture)(const void* envs, int32_t index, int64_t* resets, void* sink,
                 void (*put)(void* sink, double number), char* error);
  // Calls `put` with what decides the future of the env at `index`: its memory, its generator, how often it was reset. In
  // as many pieces as it likes. Both are null if the class does not say how it can be saved. Not while that env is stepped.
  int (*save)(const void* envs, int32_t index, void* sink, void (*put)(void* sink, const void* bytes, int64_t count),
              char* error);
  // How many bytes that is, if it is always the same and `load` takes any such bytes; otherwise 0.
  int64_t state_bytes;
  // Gives the env at `index` what `save` of an env of the same class and configuration has written. Returns 0, or writes
  // the reason into `error`: then that env may be anything, and is given what it was before.
  int (*load)(void* envs, int32_t index, const void* bytes, int64_t count, char* error);
  // The memory of the env at `index`. Null if the class does not say that it can be copied. Not while that env is stepped.
  void (*memory)(const void* envs, int32_t index, sm_env_memory* out);
  // Of the class: `sizeof` and `alignof`. 0 for envs in another language.
  int64_t object_bytes, object_alignment;
};

// What the engine hands to a library that was compiled elsewhere: numpy's distributions.
struct sm_engine_functions {
  uint32_t abi_version;
  uint32_t size;
  uint64_t (*bounded)(sm_bit_source*, uint64_t offset, uint64_t range, uint64_t mask, bool use_masked);
  double (*standard_normal)(sm_bit_source*);
};

// What such a library exports, as `stepmill_env_table`. Null if it needs functions that this engine does not have.
typedef const sm_env_table* (*sm_env_table_function)(const sm_engine_functions*);

}  // extern "C"
