// Plain loops over MuJoCo tasks (loops.h): a library, because Python makes the models and states that they step.
#include <cstdlib>
#include <cstring>
#include <string>

#include "envs/mujoco/ant.h"
#include "envs/mujoco/half_cheetah.h"
#include "envs/mujoco/hopper.h"
#include "envs/mujoco/humanoid.h"
#include "loops.h"

using namespace stepmill;

namespace {

// What the Python half of an env says: a line of type, key and value for each. Read without streams: those of another
// C++ library may be in the process already.
Config read(const char* text) {
  std::vector<ConfigItem> items;
  while (*text) {
    const char* end = std::strchr(text, '\n');
    const std::string line(text, end ? end : text + std::strlen(text));
    const std::size_t after_type = line.find(' '), after_key = line.find(' ', after_type + 1);
    const std::string type = line.substr(0, after_type), value = line.substr(after_key + 1);
    std::string key = line.substr(after_type + 1, after_key - after_type - 1);
    if (type == "text") {
      items.push_back({std::move(key), value});
    } else if (type == "int") {
      items.push_back({std::move(key), static_cast<std::int64_t>(std::strtoll(value.c_str(), nullptr, 10))});
    } else if (type == "bool") {
      items.push_back({std::move(key), value == "1"});
    } else {
      Reals numbers;
      const char* at = value.c_str();
      for (char* next = nullptr; *at; at = *next == ' ' ? next + 1 : next) numbers.push_back(std::strtod(at, &next));
      if (type == "real") items.push_back({std::move(key), numbers.at(0)});
      else items.push_back({std::move(key), std::move(numbers)});
    }
    text = end ? end + 1 : text + std::strlen(text);
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
