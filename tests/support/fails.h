// Throws in its how-many-eth reset, step or observation, or after a bad draw; here and there, as authors do.
#include <stepmill/env.h>
using namespace stepmill;

class Odd {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;
  static std::vector<ConfigItem> configuration() {
    return {{"where", std::int64_t{0}}, {"when", std::int64_t{3}}, {"length", std::int64_t{8}}};
  }
  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {box<double>({2}, {-1e9}, {1e9})};
    spec.action = {box<float>({}, {-1.0}, {1.0})};
    spec.info = {box<double>({}, {0.0}, {1e9}, "resets")};
    return spec;
  }
  explicit Odd(const Config& config)
      : where_(config.integer("where")), when_(config.integer("when")), length_(config.integer("length")) {}

  void reset(Rng& rng, const Options&) {
    if (where_ == 1 && resets_ + 1 == when_) throw std::runtime_error("reset " + std::to_string(when_));
    draw_ = rng.random();
    if (where_ == 4 && resets_ > 0 && draw_ < 0.5) throw std::runtime_error("a bad draw");
    if (where_ == 4) half_ = static_cast<double>(rng.integers(0, 1000));  // leaves half of a word for the next
    resets_ += 1;
    steps_ = 0;
  }
  Outcome step(const ActionRow& action, Rng& rng) {
    if (where_ == 2) fail_at(steps_ + 1);
    if (where_ == 5 && rng.random() < 0.2) throw std::runtime_error("a bad draw");
    try {
      draw_ += rng.random() * *action.get<float>();
      steps_ += 1;
    } catch (...) {  // there are none on a GPU
      steps_ = -1;
    }
    return {draw_, steps_ >= length_, false};
  }
  void observe(const Row& row) const {
    if (where_ == 6 && steps_ == 0 && draw_ < 0.5) throw std::out_of_range("nothing to see yet");
    if (where_ == 3 && steps_ == when_)
      throw std::out_of_range("nothing to see");
    else if (steps_ < 0)
      throw 3;
    double* out = row.observation<double>();
    out[0] = draw_ + half_;
    out[1] = static_cast<double>(steps_);
    *row.info<double>(0) = static_cast<double>(resets_);
  }

 private:
  void fail_at(std::int64_t step) const {
    if (step == when_) throw std::invalid_argument("step " + std::to_string(step));
  }
  std::int64_t where_, when_, length_;
  std::int64_t resets_ = 0, steps_ = 0;
  double draw_ = 0.0, half_ = 0.0;
};
