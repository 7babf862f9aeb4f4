/* An env in any language that has C functions.
 *
 * Fill a `stepmill_env`, export `stepmill_c_env`, which returns it, and build a shared library:
 * `stepmill.make("libmine.so", num_envs=1024)` runs it, on threads, without the interpreter. Seeds, autoreset, time
 * limits, statistics and all checks of actions are the engine's work; so are the memory of the envs, and saving it.
 * docs/own-envs.md has an env in C, in Rust and in Zig. A language that cannot read this file declares the same
 * structures, with the layout that C gives them.
 *
 * Threads: the functions of one env are never called by two threads at once; those of different envs are. Random numbers
 * come from `stepmill_random`, and from nowhere else: then the same seed gives the same episodes.
 *
 * Errors: a function that fails returns a value other than 0 and may write a message into `error`, which has
 * STEPMILL_ERROR_SIZE bytes: a text in UTF-8 that ends with 0. The row of that env is then marked as abnormal, and the
 * others go on. Nothing may unwind out of a function: catch an exception or a panic, and return. If it gets out, it may
 * end the process.
 *
 * Versions: a library goes on working with later versions of stepmill. What is new comes at the ends of `stepmill_env` and
 * `stepmill_random`, and `size` says how much of it the library knows; STEPMILL_C_ENV_VERSION changes only if that cannot
 * be.
 */
#ifndef STEPMILL_C_ENV_H
#define STEPMILL_C_ENV_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STEPMILL_C_ENV_VERSION 1
#define STEPMILL_ERROR_SIZE 1024
#define STEPMILL_MOST_ARRAYS 16  /* of an observation, of an action, of the infos */
#define STEPMILL_MOST_OPTIONS 6
#define STEPMILL_MOST_TURNS 64  /* of one call of step_many */

/* A number that `make(..., key=value)` may set. A flag is 0 or 1. */
enum { STEPMILL_FLAG = 0, STEPMILL_INTEGER = 1, STEPMILL_REAL = 2 };
typedef struct stepmill_setting {
  const char* key;
  int32_t type;
  double value; /* the default */
} stepmill_setting;

/* The values that an array may hold, both bounds included: numbers from `low` to `high`; one whole number, an int64; whole
 * numbers; 0 or 1, as int8. */
enum { STEPMILL_BOX = 0, STEPMILL_DISCRETE = 1, STEPMILL_MULTI_DISCRETE = 2, STEPMILL_MULTI_BINARY = 3 };
enum {
  STEPMILL_BOOL, STEPMILL_INT8, STEPMILL_UINT8, STEPMILL_INT16, STEPMILL_UINT16, STEPMILL_INT32,
  STEPMILL_UINT32, STEPMILL_INT64, STEPMILL_UINT64, STEPMILL_FLOAT16, STEPMILL_FLOAT32, STEPMILL_FLOAT64
};
typedef struct stepmill_array {
  const char* name; /* the key in a Dict space or in `info`; NULL if it is the only one */
  int32_t kind;
  int32_t dtype;
  int32_t rank;         /* 0 for a number */
  const int64_t* shape; /* may be NULL if that is 0 */
  double low, high;           /* of every element */
  const double *lows, *highs; /* or of each, in C order: both, or both NULL */
} stepmill_array;

/* Several arrays with names are a Dict space, without names a Tuple. */
typedef struct stepmill_spaces {
  const stepmill_array* observation;
  const stepmill_array* action;
  const stepmill_array* info;
  int32_t observation_count, action_count, info_count;
} stepmill_spaces;

/* The random numbers of one env: those of numpy's Generator with the seed of its reset. */
typedef struct stepmill_random stepmill_random;
struct stepmill_random {
  double (*uniform)(stepmill_random*);                             /* 0 <= x < 1 */
  int64_t (*integer)(stepmill_random*, int64_t low, int64_t high); /* low <= x < high; low if there is none */
  double (*normal)(stepmill_random*);                              /* mean 0, deviation 1 */
};

typedef struct stepmill_result {
  double reward;
  uint8_t terminated, truncated;
} stepmill_result;

typedef struct stepmill_env {
  uint32_t version; /* STEPMILL_C_ENV_VERSION */
  uint32_t size;    /* sizeof(stepmill_env) */
  const char* name;
  /* sizeof one env. Its memory begins at a multiple of 16, and of 32 or 64 if its size is one; it is 0 before `init`, and
   * stays in its place until `close`. */
  int64_t env_size;
  /* 1 if reset, step and observe only compute, and never for long: then the calling thread may step envs itself. */
  int32_t never_blocks;
  int32_t setting_count;
  const stepmill_setting* settings;
  const char* const* options; /* what `reset(options={...})` may set, each a number; NULL at the end. May be NULL */
  stepmill_spaces spaces;
  /* Whether the settings are valid, and other shapes and bounds than `spaces` has, if they depend on the settings. What it
   * points to must stay until the next call; it is never called by two threads at once. May be NULL. */
  int (*describe)(const double* settings, stepmill_spaces* spaces, char* error);

  /* Begins the life of an env. If it fails, nothing else is called for that env: it frees what it holds. */
  int (*init)(void* env, const double* settings, char* error);
  /* `options`: in their order; NaN for those that were not given. */
  int (*reset)(void* env, stepmill_random* random, const double* options, char* error);
  /* `action`: a pointer per array, aligned for its elements, which are in their bounds; except that a BOX is only free of
   * NaN. `result` is 0 before. */
  int (*step)(void* env, const void* const* action, stepmill_random* random, stepmill_result* result, char* error);
  /* Writes every element of every array. What was there before is undefined. */
  int (*observe)(const void* env, void* const* observation, void* const* info, char* error);

  /* All that follow may be NULL. */

  /* Steps several envs at once, at most STEPMILL_MOST_TURNS, with the results that `step` would have for each; it cannot
   * fail. `actions`: those of env i begin at i times the number of arrays of an action. `step` may be called as well. */
  void (*step_many)(int32_t count, void* const* envs, const void* const* actions, stepmill_random* const* randoms,
                    stepmill_result* results);
  /* How an env is saved: all that reset and step change. `load` is given what `save` has put, in one piece, for an env that
   * was begun with the same settings; if it fails, it is called again with what the env was before. Without these two, an
   * env without `close` is saved by copying its `env_size` bytes, which must then hold no pointers; one that has `close`
   * cannot be saved. */
  int (*save)(const void* env, void* sink, void (*put)(void* sink, const void* bytes, int64_t count), char* error);
  int (*load)(void* env, const void* bytes, int64_t count, char* error);
  /* Ends the life of an env: for what it holds besides its memory. */
  void (*close)(void* env);
} stepmill_env;

/* What a library exports: the same pointer at every call. */
#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
const stepmill_env* stepmill_c_env(void);

#ifdef __cplusplus
}
#endif

#endif
