// The env of the tests: it does what the action says, and shows in its observation how often it was
// stepped and reset and what it drew, so that a lost, doubled or reordered action is seen.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/table_of.h"

namespace stepmill::test {

// What an action may order.
enum Order : std::int64_t {
  kGoOn,
  kTerminate,
  kTruncate,
  kTerminateAndTruncate,
  kThrowInStep,
  kThrowOddThing,       // something that is no std::exception
  kThrowInObserve,
  kEndAndThrowInObserve,
  kEndThenThrowInReset,        // the next reset fails, once
  kEndThenThrowAfterReset,     // the observation after the next reset fails
  kOrders,
};

class Obedient {
 public:
  // `work`: random numbers drawn in a step, which is what makes it cost time.
  static std::vector<ConfigItem> configuration() { return {{"work", std::int64_t{1}}}; }
  static constexpr const char* kResetOptions[] = {"offset", nullptr};

  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {box<double>({4}, {0.0}, {1e9}, "numbers"), box<std::uint8_t>({5}, {0}, {255}, "bytes")};
    spec.observation_tree = Tree::kDict;
    spec.action = {discrete(kOrders)};
    spec.info = {box<std::int32_t>({}, {0.0}, {1e9}, "resets")};
    return spec;
  }

  explicit Obedient(const Config& config) : work_(config.integer("work")) {}

  void reset(Rng& rng, const Options& options) {
    if (reset_fails_) {
      reset_fails_ = false;
      throw std::runtime_error("ordered to fail in reset");
    }
    observe_fails_ = observe_fails_after_reset_;
    observe_fails_after_reset_ = false;
    drawn_ = rng.random();
    offset_ = options.get(0, 0.0);
    resets_ += 1;
  }

  Outcome step(const ActionRow& action, Rng& rng) {
    const std::int64_t order = action.index();
    if (order == kThrowInStep) throw std::runtime_error("ordered to fail in step");
    if (order == kThrowOddThing) throw 7;
    for (std::int64_t i = 0; i < work_; ++i) drawn_ = rng.random();
    steps_ += 1;
    observe_fails_ = order == kThrowInObserve || order == kEndAndThrowInObserve;
    reset_fails_ = order == kEndThenThrowInReset;
    observe_fails_after_reset_ = order == kEndThenThrowAfterReset;
    const bool truncated = order == kTruncate || order == kTerminateAndTruncate;
    const bool terminated = order == kTerminate || order == kTerminateAndTruncate ||
                            order >= kEndAndThrowInObserve;
    return {drawn_ + static_cast<double>(order), terminated, truncated};
  }

  void observe(const Row& row) const {
    if (observe_fails_) throw std::runtime_error("ordered to fail in observe");
    double* numbers = row.observation<double>(0);
    numbers[0] = static_cast<double>(steps_);
    numbers[1] = static_cast<double>(resets_);
    numbers[2] = drawn_;
    numbers[3] = offset_;
    std::uint8_t* bytes = row.observation<std::uint8_t>(1);
    for (int i = 0; i < 5; ++i) bytes[i] = static_cast<std::uint8_t>(steps_ * 5 + i);
    *row.info<std::int32_t>(0) = resets_;
  }

  void picture(std::vector<double>& numbers) const {
    if (observe_fails_) throw std::runtime_error("ordered to fail in picture");
    numbers.insert(numbers.end(), {static_cast<double>(steps_), drawn_});
  }

 private:
  std::int64_t work_;
  std::int64_t steps_ = 0;   // ever
  std::int32_t resets_ = 0;  // ever
  double drawn_ = 0.0, offset_ = 0.0;
  bool reset_fails_ = false, observe_fails_ = false, observe_fails_after_reset_ = false;
};

inline const sm_env_table& obedient_table() { return *table_of<Obedient>("Obedient"); }

inline std::vector<Config> obedient_configs(std::int32_t count, std::int64_t work = 1) {
  return std::vector<Config>(static_cast<std::size_t>(count), Config({{"work", work}}));
}

inline EnvSpec obedient_spec() { return Obedient::spec({}); }

}  // namespace stepmill::test
