// What an env costs by itself: a plain loop over CartPole, without a pool and without Python.
//
//     bare_loop <envs> <seconds>
//
// prints nanoseconds a step: `step`, `reset` at the end of an episode, reward and observation written,
// one env after the other. The engine may do better than that where an env class steps many at once.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/action_table.h"
#include "core/arena.h"
#include "core/batch_layout.h"
#include "envs/classic/cartpole.h"

using namespace stepmill;

namespace {

constexpr int kLimit = 500;
constexpr int kActionBatches = 32;

// Random actions, drawn before the clock starts.
std::vector<std::int64_t> draw_actions(std::size_t count) {
  Rng rng(42);
  std::vector<std::int64_t> actions(count);
  for (auto& action : actions) action = rng.random() < 0.5 ? 0 : 1;
  return actions;
}

// Calls `round` (which steps every env once) until the time is over; nanoseconds a step.
template <class F>
double measure(int envs, double seconds, F round) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 100; ++i) round(i);
  const int rounds = 1 + 20000 / envs;
  std::int64_t steps = 0;
  double spent = 0.0;
  const auto start = Clock::now();
  while (spent < seconds) {
    for (int i = 0; i < rounds; ++i) round(i);
    steps += static_cast<std::int64_t>(rounds) * envs;
    spent = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return spent * 1e9 / static_cast<double>(steps);
}

// The engine's own memory of a pool's actions and of one batch, used here without the pool.
struct Memory {
  std::shared_ptr<Arena> arena = Arena::create(Arena::Kind::kPrivate);
  EnvSpec spec = CartPole::spec(Config{});
  ActionTable table;
  Columns columns;

  explicit Memory(int envs) : table(*arena, spec, options(envs)) {
    const BatchLayout layout(spec, envs, false, false);
    layout.fill(columns, arena->at(arena->grow(layout.bytes(), kCacheLine)));
  }
  static TableOptions options(int envs) {
    TableOptions options;
    options.num_envs = envs;
    options.max_episode_steps = kLimit;
    return options;
  }
  void set_actions(const std::int64_t* from, int envs) {
    std::copy(from, from + envs, reinterpret_cast<std::int64_t*>(table.action(0)));
  }
};

double bare_loop(int envs, double seconds, const std::vector<std::int64_t>& actions) {
  Memory memory(envs);
  const sm_shared& shared = memory.table.shared();
  const sm_reset_request no_options{};
  const Config config(CartPole::configuration());
  std::vector<CartPole> all(static_cast<std::size_t>(envs), CartPole(config));
  std::vector<Rng> rngs;
  std::vector<int> elapsed(static_cast<std::size_t>(envs));
  for (int i = 0; i < envs; ++i) {
    rngs.emplace_back(static_cast<std::uint64_t>(i));
    all[static_cast<std::size_t>(i)].reset(rngs.back(), Options(no_options));
  }
  return measure(envs, seconds, [&](int round) {
    memory.set_actions(actions.data() + (round % kActionBatches) * envs, envs);
    for (int i = 0; i < envs; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Outcome outcome = all[at].step(ActionRow(shared, i, 1), rngs[at]);
      if (outcome.terminated || ++elapsed[at] == kLimit) {
        all[at].reset(rngs[at], Options(no_options));
        elapsed[at] = 0;
      }
      const Row row(shared, memory.columns.c, i, 1);
      row.set_reward(0, outcome.reward);
      all[at].observe(row);
    }
  });
}

}  // namespace

int main(int count, char** arguments) {
  const int envs = count > 1 ? std::atoi(arguments[1]) : 1024;
  const double seconds = count > 2 ? std::atof(arguments[2]) : 0.5;
  if (envs < 1 || !(seconds > 0)) {
    std::fprintf(stderr, "usage: bare_loop <envs> <seconds>\n");
    return 2;
  }
  const auto actions = draw_actions(static_cast<std::size_t>(envs) * kActionBatches);
  std::printf("%.3f\n", bare_loop(envs, seconds, actions));
}
