// What envs cost by themselves: plain loops over CartPole (loops.h).
//
//     bare_loop <envs> <seconds> <loops> free|meet
//
// prints nanoseconds per step of all loops together: `step`, or `reset` after the end of an episode, reward and observation
// written, one env after the other. The engine may do better than that where an env class steps many at once.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "envs/classic/cartpole.h"
#include "loops.h"

using namespace stepmill;

namespace {

// Random actions, drawn before the clock starts.
std::vector<std::byte> draw_actions(int envs) {
  Rng rng(42);
  std::vector<std::byte> actions(static_cast<std::size_t>(envs) * bench::kActionBatches * sizeof(std::int64_t));
  for (std::size_t i = 0; i < actions.size(); i += sizeof(std::int64_t)) {
    const std::int64_t action = rng.random() < 0.5 ? 0 : 1;
    std::memcpy(actions.data() + i, &action, sizeof action);
  }
  return actions;
}

}  // namespace

int main(int count, char** arguments) {
  const int envs = count == 5 ? std::atoi(arguments[1]) : 0;
  const double seconds = envs ? std::atof(arguments[2]) : 0;
  const int loops = envs ? std::atoi(arguments[3]) : 0;
  const bool meet = envs && std::strcmp(arguments[4], "meet") == 0;
  if (!(seconds > 0) || loops < 1 || envs < loops || (!meet && std::strcmp(arguments[4], "free") != 0)) {
    std::fprintf(stderr, "usage: bare_loop <envs> <seconds> <loops> free|meet\n");
    return 2;
  }
  const bench::Recipe<CartPole> recipe{
      CartPole::spec(Config{}),
      [](int, std::optional<CartPole>& out) { out.emplace(Config(CartPole::configuration())); },
      500,
      draw_actions(envs),
      32, 288,  // 1 and 12 µs of CartPole, about
  };
  const int block = std::max(100, 20000 / envs);
  std::printf("%.3f\n", 1e9 / bench::steps_per_second(recipe, envs, block, seconds, loops, meet));
}
