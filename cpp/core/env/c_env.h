/* An env in any language that has C functions.
 *
 * Fill a `stepmill_env`, export a function
 *
 *     const stepmill_env* stepmill_c_env(void);
 *
 * that returns it, and build a shared library: `stepmill.make("libmine.so", num_envs=1024)` runs it, on threads, without
 * the interpreter. Seeds, autoreset, time limits, statistics and all checks of actions are the engine's work; so are the
 * memory of the envs, and saving it.
 *
 * The functions of one env are never called by two threads at once; those of different envs are. All random numbers
 * should come from `stepmill_random`: then the same seed gives the same episodes.
 *
 * A function that fails returns a value other than 0 and may write a message into `error`, which has
 * STEPMILL_ERROR_SIZE bytes. The row of that env is then marked as abnormal, and the others go on.
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

/* The values that an array may hold: from `low` to `high`; whole numbers from 0 to `high`; whole numbers from `low` to
 * `high`; 0 or 1. A DISCRETE one is a single int64. */
enum { STEPMILL_BOX = 0, STEPMILL_DISCRETE = 1, STEPMILL_MULTI_DISCRETE = 2, STEPMILL_MULTI_BINARY = 3 };
enum {
  STEPMILL_BOOL, STEPMILL_INT8, STEPMILL_UINT8, STEPMILL_INT16, STEPMILL_UINT16, STEPMILL_INT32,
  STEPMILL_UINT32, STEPMILL_INT64, STEPMILL_UINT64, STEPMILL_FLOAT16, STEPMILL_FLOAT32, STEPMILL_FLOAT64
};
typedef struct stepmill_array {
  const char* name; /* the key in a Dict space or in `info`; NULL if it is the only one */
  int32_t kind;
  int32_t dtype;
  int32_t rank; /* 0 for a number */
  const int64_t* shape;
  double low, high; /* of every element */
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
  int64_t (*integer)(stepmill_random*, int64_t low, int64_t high); /* low <= x < high */
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
  int64_t env_size; /* bytes of one env, which begin at a multiple of 64 and are 0 before `init` */
  /* 1 if reset, step and observe only compute, and never for long: then the calling thread may step envs itself. */
  int32_t never_blocks;
  int32_t setting_count;
  const stepmill_setting* settings;
  const char* const* options; /* what `reset(options={...})` may set, each a number; NULL at the end. May be NULL */
  stepmill_spaces spaces;
  /* Other spaces, if they depend on the settings, and whether the settings are valid. May be NULL. What it points to
   * must stay until the next call. */
  int (*describe)(const double* settings, stepmill_spaces* spaces, char* error);

  int (*init)(void* env, const double* settings, char* error);
  /* `options`: in their order; NaN for those that were not given. */
  int (*reset)(void* env, stepmill_random* random, const double* options, char* error);
  /* `action`: a pointer per array. `result` is 0 before. */
  int (*step)(void* env, const void* const* action, stepmill_random* random, stepmill_result* result, char* error);
  /* Writes every element of every array. */
  int (*observe)(const void* env, void* const* observation, void* const* info, char* error);

  /* All that follow may be NULL. */

  /* Steps several envs at once, with the results that `step` would have for each; it cannot fail. `actions`: those of
   * env i begin at i times the number of arrays of an action. */
  void (*step_many)(int32_t count, void* const* envs, const void* const* actions, stepmill_random* const* randoms,
                    stepmill_result* results);
  /* How an env is saved whose memory is more than its `env_size` bytes. Without them, these are copied. */
  int (*save)(const void* env, void* sink, void (*put)(void* sink, const void* bytes, int64_t count), char* error);
  int (*load)(void* env, const void* bytes, int64_t count, char* error);
  void (*close)(void* env); /* for what it holds besides its memory */
} stepmill_env;

#ifdef __cplusplus
}
#endif

#endif
