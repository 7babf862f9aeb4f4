// CartPole as somebody would write it for a GPU by hand, without an engine: no state machine, no random generator worth
// the name, no failures. It reads and writes what the kernel of a pool does, as the last of its bytes shows how fast
// memory is. benchmarks/cuda_loops.py runs it on the memory of such a pool.
//
// `WORDS`: of an env's object, of which the first four are its state; a fifth is read.
#include "gpu/prelude.h"
#include "gpu/arguments.h"

extern "C" __global__ void stepmill_step(const __grid_constant__ stepmill::gpu::Arguments a) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= a.num_envs) return;
  const long long n = a.num_envs;
  double* state = reinterpret_cast<double*>(a.envs.memory);
  double x = state[i], x_dot = state[n + i], theta = state[2 * n + i], theta_dot = state[3 * n + i];
  const bool is_sutton = WORDS > 4 && (a.envs.memory[4 * n + i] & 1);
  const long long action = static_cast<const long long*>(a.action[0])[i];
  const unsigned phase = a.envs.phase[i];
  int elapsed = a.envs.elapsed[i];
  double total = a.envs.episode_return[i];

  bool terminated = false, truncated = false;
  float reward = 0;
  if (phase != 1) {
    unsigned long long random = a.envs.seldom[i].random[0];
    double drawn[4];
    for (double& one : drawn) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      one = static_cast<double>(random >> 11) * 0x1p-53 * 0.1 - 0.05;
    }
    a.envs.seldom[i].random[0] = random;
    x = drawn[0], x_dot = drawn[1], theta = drawn[2], theta_dot = drawn[3];
    elapsed = 0, total = 0;
    a.envs.phase[i] = 1;
  } else {
    double sine, cosine;
    sincos(theta, &sine, &cosine);
    const double force = action ? 10.0 : -10.0;
    const double temp = (force + 0.05 * theta_dot * theta_dot * sine) / 1.1;
    const double theta_acc = (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
    const double x_acc = temp - 0.05 * theta_acc * cosine / 1.1;
    x += 0.02 * x_dot, x_dot += 0.02 * x_acc, theta += 0.02 * theta_dot, theta_dot += 0.02 * theta_acc;
    elapsed += 1;
    terminated = x < -2.4 || x > 2.4 || theta < -0.20943951 || theta > 0.20943951;
    truncated = elapsed == a.max_episode_steps;
    reward = is_sutton ? (terminated ? -1.0f : 0.0f) : 1.0f;
    total += reward;
    if (terminated || truncated) a.envs.phase[i] = 2;
  }
  const bool ended = terminated || truncated;
  state[i] = x, state[n + i] = x_dot, state[2 * n + i] = theta, state[3 * n + i] = theta_dot;
  a.envs.elapsed[i] = elapsed;
  a.envs.episode_return[i] = total;

  const stepmill::gpu::Results& to = a.results;
  reinterpret_cast<float4*>(to.observation[0])[i] = make_float4(x, x_dot, theta, theta_dot);
  to.reward[i] = reward;
  to.terminated[i] = terminated;
  to.truncated[i] = truncated;
  to.ended[i] = ended;
  to.abnormal[i] = false;
  to.env_id[i] = i;
  to.elapsed_step[i] = elapsed;
  to.episode_length[i] = ended ? elapsed : 0;
  to.episode_return[i] = ended ? total : 0;
}
