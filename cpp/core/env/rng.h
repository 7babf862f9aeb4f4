// numpy's PCG64 and SeedSequence, so that a native env draws what its Gymnasium twin draws.
//
// `Rng(seed)` equals `np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))`. The generator and the
// seeding are short and on the hot path, so they are written here; distributions other than the uniform one are numpy's
// own code: in the engine from the static library in the numpy wheel, in a library of an author's own through the engine
// (`core/own_library.h`).
#pragma once

#include <cstdint>

#include "core/env/env_table.h"

#ifdef STEPMILL_GPU
#include "gpu/distributions.h"
#include "gpu/thread.h"
#else
// Declared by hand: numpy/random/distributions.h pulls in Python.h, and the core knows no Python. `sm_bit_source` has the
// layout of numpy's `bitgen_t`, which a test compares.
extern "C" {
uint64_t random_bounded_uint64(sm_bit_source*, uint64_t offset, uint64_t range, uint64_t mask,
                               bool use_masked);
double random_standard_normal(sm_bit_source*);
}
#endif

namespace stepmill {

// Spreads an integer seed over the words of a generator's state.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t entropy) {
    const std::uint32_t words[2] = {static_cast<std::uint32_t>(entropy),
                                    static_cast<std::uint32_t>(entropy >> 32)};
    const int count = words[1] != 0 ? 2 : 1;
    std::uint32_t constant = kInitA;
    for (int i = 0; i < kPool; ++i) pool_[i] = hash(i < count ? words[i] : 0, constant);
    for (int source = 0; source < kPool; ++source)
      for (int target = 0; target < kPool; ++target)
        if (source != target) pool_[target] = mix(pool_[target], hash(pool_[source], constant));
  }

  struct State {
    std::uint64_t words[4];
  };
  State generate_state() const {
    State state{};
    std::uint32_t constant = kInitB;
    for (int i = 0; i < 8; ++i) {
      std::uint32_t word = pool_[i % kPool] ^ constant;
      constant *= kMultB;
      word *= constant;
      word ^= word >> 16;
      state.words[i / 2] |= static_cast<std::uint64_t>(word) << (32 * (i % 2));
    }
    return state;
  }

 private:
  static constexpr int kPool = 4;
  static constexpr std::uint32_t kInitA = 0x43b0d7e5, kMultA = 0x931e8875;
  static constexpr std::uint32_t kInitB = 0x8b51f9dd, kMultB = 0x58f38ded;
  static constexpr std::uint32_t kMixL = 0xca01f9dd, kMixR = 0x4973f715;

  static std::uint32_t hash(std::uint32_t value, std::uint32_t& constant) {
    value ^= constant;
    constant *= kMultA;
    value *= constant;
    return value ^ (value >> 16);
  }
  static std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t result = kMixL * x - kMixR * y;
    return result ^ (result >> 16);
  }

  std::uint32_t pool_[kPool];
};

class Rng {
 public:
#ifdef STEPMILL_GPU
  // That of an env, which is fetched when it is needed: that is seldom. As soon as it has drawn, a failure keeps it.
  explicit Rng(gpu::Seldom& at) : at_(at.random), is_the_envs_(true) {}
  Rng(const Rng& other)
      : at_(other.at_), is_here_(other.is_here_), state_(other.state_), increment_(other.increment_), half_(other.half_),
        has_half_(other.has_half_) {}
  Rng& operator=(const Rng& other) {
    Rng from = other;
    from.fetch();
    set_state(from.state());
    return *this;
  }
  void fetch() {
    if (is_here_) return;
    set_state({{at_[0], at_[1]}, {at_[2], at_[3]}, static_cast<std::uint32_t>(at_[4]),
               static_cast<std::uint32_t>(at_[4] >> 32)});
  }
  void store() const {
    if (is_here_) give(at_);
  }
#endif
  Rng() : Rng(0) {}
  explicit Rng(std::uint64_t seed) { reseed(seed); }

  void reseed(std::uint64_t seed) {
    set_here();
    const auto [words] = SeedSequence(seed).generate_state();
    const Word start = join(words[0], words[1]);
    increment_ = join(words[2], words[3]) << 1 | 1;
    state_ = 0;
    advance();
    state_ += start;
    advance();
    has_half_ = false;
    half_ = 0;
    keep();
  }

  // What `bit_generator.state` of the same generator in numpy would return.
  sm_random_state state() const {
    const auto high = [](Word word) { return static_cast<std::uint64_t>(word >> 64); };
    const auto low = [](Word word) { return static_cast<std::uint64_t>(word); };
    return {{high(state_), low(state_)}, {high(increment_), low(increment_)}, has_half_, half_};
  }

  void set_state(const sm_random_state& given) {
    set_here();
    state_ = join(given.state[0], given.state[1]);
    increment_ = join(given.increment[0], given.increment[1]);
    has_half_ = given.has_uint32 != 0;
    half_ = given.uinteger;
    keep();
  }

  std::uint64_t next_uint64() {
    fetch();
    advance();
    keep();
    const auto high = static_cast<std::uint64_t>(state_ >> 64);
    const std::uint64_t folded = high ^ static_cast<std::uint64_t>(state_);
    const unsigned turn = static_cast<unsigned>(high >> 58);
    return folded >> turn | folded << ((64 - turn) & 63);
  }

  // Half of a 64-bit word; the other half is kept for the next call, even across a reset.
  std::uint32_t next_uint32() {
    fetch();
    if (has_half_) {
      has_half_ = false;
      keep();
      return half_;
    }
    const std::uint64_t word = next_uint64();
    has_half_ = true;
    half_ = static_cast<std::uint32_t>(word >> 32);
    keep();
    return static_cast<std::uint32_t>(word);
  }

  // Generator.random()
  double random() { return static_cast<double>(next_uint64() >> 11) * 0x1p-53; }

  // Generator.uniform(low, high)
  double uniform(double low, double high) { return low + (high - low) * random(); }

  // Generator.integers(low, high)
  std::int64_t integers(std::int64_t low, std::int64_t high) {
    // Unsigned, because the width of the widest range does not fit in an int64.
    const auto offset = static_cast<std::uint64_t>(low);
    const std::uint64_t range = static_cast<std::uint64_t>(high) - offset - 1;
#ifdef STEPMILL_GPU
    return static_cast<std::int64_t>(gpu::bounded_uint64(*this, offset, range));
#else
    sm_bit_source source = bits();
    return static_cast<std::int64_t>(random_bounded_uint64(&source, offset, range, 0, false));
#endif
  }

  // Generator.standard_normal()
  double normal() {
#ifdef STEPMILL_GPU
    return gpu::standard_normal(*this);
#else
    sm_bit_source source = bits();
    return random_standard_normal(&source);
#endif
  }

 private:
  __extension__ using Word = unsigned __int128;

  static Word join(std::uint64_t high, std::uint64_t low) { return Word{high} << 64 | low; }

  void advance() {
    constexpr std::uint64_t high = 0x2360ed051fc65da4, low = 0x4385df649fccf645;
    state_ = state_ * (Word{high} << 64 | low) + increment_;
  }

#ifdef STEPMILL_GPU
  void set_here() { is_here_ = true; }
  void give(std::uint64_t* to) const {
    const sm_random_state now = state();
    const gpu::Random words = {now.state[0], now.state[1], now.increment[0], now.increment[1],
                               now.has_uint32 | std::uint64_t{now.uinteger} << 32};
    for (int i = 0; i < 5; ++i) to[i] = words[i];
  }
  void keep() const {
    if (!is_the_envs_) return;
    gpu::Remains& remains = gpu::remains_of_thread();
    give(remains.random);
    remains.has_drawn = true;
  }

  std::uint64_t* at_ = nullptr;
  bool is_here_ = false, is_the_envs_ = false;
#else
  void set_here() {}
  void fetch() {}
  void keep() const {}

  sm_bit_source bits() {
    return {this,
            [](void* self) { return static_cast<Rng*>(self)->next_uint64(); },
            [](void* self) { return static_cast<Rng*>(self)->next_uint32(); },
            [](void* self) { return static_cast<Rng*>(self)->random(); },
            [](void* self) { return static_cast<Rng*>(self)->next_uint64(); }};
  }
#endif

  Word state_, increment_;
  std::uint32_t half_ = 0;
  bool has_half_ = false;
};

}  // namespace stepmill
