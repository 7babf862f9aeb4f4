// coin.h: guess the side of a coin that may be biased.
//
//     stepmill.make("coin.h", num_envs=4096, bias=0.9)
//
// compiles it, unless that was done before, and runs it.
#pragma once

#include <stepmill/env.h>

using namespace stepmill;

class Coin {
 public:
  static constexpr bool kNeverBlocks = true;  // reset, step and observe only compute
  static constexpr bool kPlainMemory = true;  // a copy of the members is a copy of the env: pool.save works

  static std::vector<ConfigItem> configuration() { return {{"bias", 0.5}}; }

  static EnvSpec spec(const Config& config) {
    const double bias = config.real("bias");
    if (!(bias >= 0.0 && bias <= 1.0))
      throw std::invalid_argument("bias: expected 0 to 1, got " + std::to_string(bias));
    EnvSpec spec;
    spec.observation = {discrete(2)};  // the side that is up
    spec.action = {discrete(2)};       // a guess of the next
    return spec;
  }

  explicit Coin(const Config& config) : bias_(config.real("bias")) {}

  void reset(Rng& rng, const Options&) { side_ = rng.random() < bias_; }

  Outcome step(const ActionRow& action, Rng& rng) {
    side_ = rng.random() < bias_;
    return {action.index() == side_ ? 1.0 : 0.0, false, false};  // reward, terminated, truncated
  }

  void observe(const Row& row) const { *row.observation<std::int64_t>() = side_; }

 private:
  double bias_;
  std::int64_t side_ = 0;
};
