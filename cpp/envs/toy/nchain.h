// NChain-v0: go forward for nothing, step after step, to a large reward at the end of a chain, or
// take a small one now and fall back to its start. A slip does the opposite of what was chosen.
#pragma once

#include <stdexcept>
#include <string>

#include <stepmill/env.h>

namespace stepmill {

class NChain {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;

  static std::vector<ConfigItem> configuration() {
    return {{"n", std::int64_t{5}}, {"slip", 0.2}, {"small", 2.0}, {"large", 10.0}};
  }

  static EnvSpec spec(const Config& config) {
    if (config.integer("n") < 1)
      throw std::invalid_argument("n: expected at least 1, got " +
                                  std::to_string(config.integer("n")));
    EnvSpec spec;
    spec.observation = {discrete(config.integer("n"))};
    spec.action = {discrete(2)};
    return spec;
  }

  explicit NChain(const Config& config)
      : last_(config.integer("n") - 1),
        slip_(config.real("slip")),
        small_(config.real("small")),
        large_(config.real("large")) {}

  void reset(Rng&, const Options&) { link_ = 0; }

  Outcome step(const ActionRow& action, Rng& rng) {
    const bool slipped = rng.random() < slip_;
    const bool back = (action.index() == 1) != slipped;
    if (back) {
      link_ = 0;
      return {small_, false, false};
    }
    if (link_ == last_) return {large_, false, false};
    link_ += 1;
    return {0.0, false, false};
  }

  void observe(const Row& row) const { *row.observation<std::int64_t>() = link_; }

 private:
  std::int64_t last_;
  double slip_, small_, large_;
  std::int64_t link_ = 0;
};

}  // namespace stepmill
