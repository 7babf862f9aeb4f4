/* cart_pole.c: balance a pole on a cart, with the episodes of Gymnasium's CartPole-v1. It has an array with bounds of each
 * element, and steps many envs in one call.
 *
 *     cc -O3 -ffp-contract=off -shared -fPIC -I$(python -c "import stepmill; print(stepmill.get_include())") \
 *         cart_pole.c -o libcart_pole.so -lm
 *
 * Then stepmill.verify("libcart_pole.so", reference="CartPole-v1", max_episode_steps=500) plays both side by side. On some
 * machines that needs -ffp-contract=off: a fused multiply-add has other last digits.
 */
#include <math.h>
#include <stepmill/c_env.h>

#define PI 3.14159265358979323846

typedef struct {
  double x, x_dot, theta, theta_dot;
} CartPole;

static const int64_t shape[] = {4};
static const double lows[] = {(float)-4.8, -INFINITY, (float)(-24 * PI / 180), -INFINITY};
static const double highs[] = {(float)4.8, INFINITY, (float)(24 * PI / 180), INFINITY};
static const stepmill_array observation = {
    .kind = STEPMILL_BOX, .dtype = STEPMILL_FLOAT32, .rank = 1, .shape = shape, .lows = lows, .highs = highs};
static const stepmill_array push = {.kind = STEPMILL_DISCRETE, .dtype = STEPMILL_INT64, .low = 0, .high = 1};

static int init(void* env, const double* settings, char* error) { return 0; }

static int reset(void* env, stepmill_random* random, const double* options, char* error) {
  CartPole* self = env;
  double* const all[] = {&self->x, &self->x_dot, &self->theta, &self->theta_dot};
  for (int i = 0; i < 4; ++i) *all[i] = -0.05 + (0.05 - -0.05) * random->uniform(random);
  return 0;
}

/* The arithmetic of `count` envs, in loops that vector units can do. */
static inline void move(int32_t count, void* const* envs, const void* const* actions, stepmill_result* results) {
  double force[STEPMILL_MOST_TURNS], x[STEPMILL_MOST_TURNS], x_dot[STEPMILL_MOST_TURNS], theta[STEPMILL_MOST_TURNS],
      theta_dot[STEPMILL_MOST_TURNS], sine[STEPMILL_MOST_TURNS], cosine[STEPMILL_MOST_TURNS];
  for (int32_t i = 0; i < count; ++i) {
    const CartPole* self = envs[i];
    force[i] = *(const int64_t*)actions[i] == 1 ? 10.0 : -10.0;
    x[i] = self->x;
    x_dot[i] = self->x_dot;
    theta[i] = self->theta;
    theta_dot[i] = self->theta_dot;
    sine[i] = sin(theta[i]);
    cosine[i] = cos(theta[i]);
  }
  for (int32_t i = 0; i < count; ++i) {
    const double temp = (force[i] + 0.05 * (theta_dot[i] * theta_dot[i]) * sine[i]) / 1.1;
    const double theta_acc =
        (9.8 * sine[i] - cosine[i] * temp) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine[i] * cosine[i]) / 1.1));
    const double x_acc = temp - 0.05 * theta_acc * cosine[i] / 1.1;
    x[i] += 0.02 * x_dot[i];
    x_dot[i] += 0.02 * x_acc;
    theta[i] += 0.02 * theta_dot[i];
    theta_dot[i] += 0.02 * theta_acc;
  }
  for (int32_t i = 0; i < count; ++i) {
    const double limit = 12 * 2 * PI / 360;
    *(CartPole*)envs[i] = (CartPole){x[i], x_dot[i], theta[i], theta_dot[i]};
    results[i].reward = 1.0;
    results[i].terminated = x[i] < -2.4 || x[i] > 2.4 || theta[i] < -limit || theta[i] > limit;
  }
}

static int step(void* env, const void* const* action, stepmill_random* random, stepmill_result* result, char* error) {
  move(1, &env, action, result);
  return 0;
}

static void step_many(int32_t count, void* const* envs, const void* const* actions, stepmill_random* const* randoms,
                      stepmill_result* results) {
  move(count, envs, actions, results);
}

static int observe(const void* env, void* const* observation, void* const* info, char* error) {
  const CartPole* self = env;
  float* out = observation[0];
  out[0] = (float)self->x;
  out[1] = (float)self->x_dot;
  out[2] = (float)self->theta;
  out[3] = (float)self->theta_dot;
  return 0;
}

static const stepmill_env cart_pole = {
    .version = STEPMILL_C_ENV_VERSION,
    .size = sizeof(stepmill_env),
    .name = "CartPole",
    .env_size = sizeof(CartPole),
    .never_blocks = 1,
    .spaces = {.observation = &observation, .observation_count = 1, .action = &push, .action_count = 1},
    .init = init,
    .reset = reset,
    .step = step,
    .observe = observe,
    .step_many = step_many,
};

const stepmill_env* stepmill_c_env(void) { return &cart_pole; }
