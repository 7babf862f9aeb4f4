// Probe-v0: an env that does what a test of the engine asks for. It counts, works, throws or waits.
//
// The observation is (env's draw at reset, steps of this episode), so a row tells which episode and
// which step it came from. With `info`, rows of resets tell `draw`, rows of steps `steps`, and both tell `both`.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>

#include <stepmill/env.h>

namespace stepmill {

class Probe {
 public:
  static std::vector<ConfigItem> configuration() {
    return {
        {"length", std::int64_t{10}},   // steps until the episode terminates
        {"fail_in", std::string()},     // "constructor", "reset", "step" or "observe": where to throw
        {"fail_at", std::int64_t{1}},   // at the how-many-eth call of that
        {"fail_count", std::int64_t{1}},  // how often, from then on
        {"work", std::int64_t{0}},      // iterations of arithmetic in a step
        {"gate_fd", std::int64_t{-1}},  // a call waits until it can read a byte from here
        {"gate_in", std::string("step")},  // which: "reset" or "step"
        {"obs_size", std::int64_t{2}},  // width of the observation
        {"info", false},                // whether it has infos of its own
    };
  }

  static EnvSpec spec(const Config& config) {
    if (config.integer("obs_size") < 2)
      throw std::invalid_argument("obs_size: expected at least 2, got " +
                                  std::to_string(config.integer("obs_size")));
    if (config.text("gate_in") != "step" && config.text("gate_in") != "reset")
      throw std::invalid_argument("gate_in: expected \"reset\" or \"step\", got \"" + config.text("gate_in") + "\"");
    EnvSpec spec;
    spec.observation = {box<double>({config.integer("obs_size")},
                                    {-std::numeric_limits<double>::infinity()},
                                    {std::numeric_limits<double>::infinity()})};
    spec.action = {box<float>({}, {-1.0}, {1.0})};
    if (config.flag("info"))
      spec.info = {box<double>({}, {0.0}, {1.0}, "draw"), discrete(kManySteps, "steps"),
                   box<float>({2}, {0.0}, {static_cast<double>(kManySteps)}, "both")};
    return spec;
  }

  explicit Probe(const Config& config)
      : length_(config.integer("length")),
        fail_in_(config.text("fail_in")),
        fail_at_(config.integer("fail_at")),
        fail_until_(fail_at_ + config.integer("fail_count")),
        work_(config.integer("work")),
        gate_(static_cast<int>(config.integer("gate_fd"))),
        gates_resets_(config.text("gate_in") == "reset"),
        size_(config.integer("obs_size")),
        tells_(config.flag("info")) {
    may_fail("constructor", constructions_);
  }

  void reset(Rng& rng, const Options&) {
    may_fail("reset", resets_);
    if (gates_resets_) pass_gate();
    draw_ = rng.random();
    steps_ = 0;
  }

  Outcome step(const ActionRow& action, Rng&) {
    may_fail("step", calls_);
    if (!gates_resets_) pass_gate();
    volatile double sum = 0.0;  // volatile: the work must not be optimised away
    for (std::int64_t i = 0; i < work_; ++i) sum = sum + 1.0;
    steps_ += 1;
    return {static_cast<double>(*action.get<float>()), steps_ >= length_, false};
  }

  void observe(const Row& row) const {
    may_fail("observe", observations_);
    double* out = row.observation<double>();
    out[0] = draw_;
    for (std::int64_t i = 1; i < size_; ++i) out[i] = static_cast<double>(steps_);
    if (tells_) tell(row);
  }

  void save(Writer& to) const { to.put(draw_, steps_, constructions_, resets_, calls_, observations_); }
  void load(Reader& from) { from.take(draw_, steps_, constructions_, resets_, calls_, observations_); }

 private:
  static constexpr std::int64_t kManySteps = 1'000'000'000;

  void tell(const Row& row) const {
    if (steps_ == 0)
      *row.info<double>(0) = draw_;
    else
      *row.info<std::int64_t>(1) = steps_;
    float* both = row.info<float>(2);
    both[0] = static_cast<float>(draw_);
    both[1] = static_cast<float>(steps_);
  }
  void pass_gate() const {
    char byte;
    while (gate_ >= 0 && read(gate_, &byte, 1) < 0 && errno == EINTR) {
    }
  }
  void may_fail(const char* where, std::int64_t& count) const {
    if (fail_in_ != where) return;
    count += 1;
    if (count >= fail_at_ && count < fail_until_)
      throw std::runtime_error("the probe was asked to fail in " + fail_in_);
  }

  std::int64_t length_;
  std::string fail_in_;
  std::int64_t fail_at_, fail_until_, work_;
  int gate_;
  bool gates_resets_;
  std::int64_t size_;
  bool tells_;
  double draw_ = 0.0;
  std::int64_t steps_ = 0;
  std::int64_t constructions_ = 0, resets_ = 0, calls_ = 0;
  mutable std::int64_t observations_ = 0;
};

}  // namespace stepmill
