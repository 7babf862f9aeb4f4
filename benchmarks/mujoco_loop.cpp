// Plain loops over MuJoCo tasks (loops.h): a library, because Python makes the models and states that they step.
#include <cstring>
#include <sstream>
#include <string>

#include "envs/mujoco/ant.h"
#include "envs/mujoco/half_cheetah.h"
#include "envs/mujoco/hopper.h"
#include "envs/mujoco/humanoid.h"
#include "loops.h"

using namespace stepmill;

namespace {

// What the Python half of an env says: a line of type, key and value for each.
Config read(const char* text) {
  std::vector<ConfigItem> items;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string type, key;
    words >> type >> key;
    if (type == "text") {
      std::string value;
      std::getline(words >> std::ws, value);
      items.push_back({key, value});
      continue;
    }
    Reals numbers;
    std::int64_t whole = 0;
    if (type == "int" || type == "bool") words >> whole;
    else
      for (std::string number; words >> number;) numbers.push_back(std::stod(number));
    if (type == "int") items.push_back({key, whole});
    else if (type == "bool") items.push_back({key, whole != 0});
    else if (type == "real") items.push_back({key, numbers.at(0)});
    else items.push_back({key, numbers});
  }
  return Config(std::move(items));
}

struct Request {
  const char* const* simulators;  // one per env
  int envs;
  const float* actions;  // kActionBatches times one row per env
  int loops;
  bool meet;
  double seconds;
};

template <class E>
double run(const Request& request) {
  const Config config(E::configuration());
  EnvSpec spec = E::spec(config, read(request.simulators[0]));
  const auto* from = reinterpret_cast<const std::byte*>(request.actions);
  const auto bytes = static_cast<std::size_t>(spec.action[0].row_bytes()) * static_cast<std::size_t>(request.envs) *
                     bench::kActionBatches;
  const bench::Recipe<E> recipe{
      std::move(spec),
      [&](int index, std::optional<E>& out) { out.emplace(config, read(request.simulators[index])); },
      1000,
      std::vector<std::byte>(from, from + bytes),
      1, 1,  // a step is long
  };
  return bench::steps_per_second(recipe, request.envs, 1, request.seconds, request.loops, request.meet);
}

}  // namespace

// Steps per second; 0 if there is no such task.
extern "C" double mujoco_loops(const char* env, const char* const* simulators, int envs, const float* actions,
                               int loops, int meet, double seconds) {
  const Request request{simulators, envs, actions, loops, meet != 0, seconds};
  if (std::strcmp(env, "Ant-v5") == 0) return run<Ant<5>>(request);
  if (std::strcmp(env, "HalfCheetah-v5") == 0) return run<HalfCheetah<5>>(request);
  if (std::strcmp(env, "Hopper-v5") == 0) return run<Hopper<5>>(request);
  if (std::strcmp(env, "Humanoid-v5") == 0) return run<Humanoid<5>>(request);
  return 0.0;
}
