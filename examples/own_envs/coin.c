/* coin.c: guess the side of a coin that may be biased.
 *
 *     cc -O2 -ffp-contract=off -shared -fPIC -I$(python -c "import stepmill; print(stepmill.get_include())") \
 *         coin.c -o libcoin.so
 *
 * Then stepmill.make("libcoin.so", num_envs=4096, bias=0.9) runs it.
 */
#include <stdio.h>
#include <stepmill/c_env.h>

typedef struct {
  double bias;
  int64_t side;
} Coin;

static const stepmill_setting settings[] = {{"bias", STEPMILL_REAL, 0.5}};
static const stepmill_array side = {.kind = STEPMILL_DISCRETE, .dtype = STEPMILL_INT64, .low = 0, .high = 1};

static int describe(const double* settings, stepmill_spaces* spaces, char* error) {
  if (settings[0] >= 0 && settings[0] <= 1) return 0;
  return snprintf(error, STEPMILL_ERROR_SIZE, "bias: expected 0 to 1, got %f", settings[0]);
}

static int init(void* env, const double* settings, char* error) {
  ((Coin*)env)->bias = settings[0];
  return 0;
}

static int reset(void* env, stepmill_random* random, const double* options, char* error) {
  Coin* coin = env;
  coin->side = random->uniform(random) < coin->bias;
  return 0;
}

static int step(void* env, const void* const* action, stepmill_random* random, stepmill_result* result, char* error) {
  Coin* coin = env;
  coin->side = random->uniform(random) < coin->bias;
  result->reward = *(const int64_t*)action[0] == coin->side;
  return 0;
}

static int observe(const void* env, void* const* observation, void* const* info, char* error) {
  *(int64_t*)observation[0] = ((const Coin*)env)->side;
  return 0;
}

static const stepmill_env coin = {
    .version = STEPMILL_C_ENV_VERSION,
    .size = sizeof(stepmill_env),
    .name = "Coin",
    .env_size = sizeof(Coin),
    .never_blocks = 1,
    .settings = settings,
    .setting_count = 1,
    .spaces = {.observation = &side, .observation_count = 1, .action = &side, .action_count = 1},
    .describe = describe,
    .init = init,
    .reset = reset,
    .step = step,
    .observe = observe,
};

const stepmill_env* stepmill_c_env(void) { return &coin; }
