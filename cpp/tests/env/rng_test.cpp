#include "core/env/rng.h"

#include <limits>

#include "tests/check.h"

namespace stepmill::rng_test {

// What numpy 2.4 gives, from a fresh generator for each line. Printed by
//
//   g = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
//   g.bit_generator.random_raw(3); g.random(); g.uniform(-0.05, 0.05); g.standard_normal()
//   five g.integers(-7, 3), one g.random(), three g.integers(-7, 3)
//   g.integers(-5, 2**40); g.integers(-2**63, 2**63 - 1)
struct Expected {
  std::uint64_t seed;
  std::uint64_t raw[3];
  double random[3], uniform[3], normal[4];
  // An odd number of half-words, a whole word between, and the half that was kept.
  std::int64_t before[5];
  double between;
  std::int64_t after[3];
  std::int64_t large[3], full[3];
};

constexpr Expected kExpected[] = {
    {0u,
     {0xa30febcfd9c2825f, 0x4510bdf882d9d721, 0x0a7d3da94ecde8b8},
     {0x1.461fd79fb3850p-1, 0x1.1442f7e20b674p-2, 0x1.4fa7b529d9bd0p-5},
     {0x1.c0cbca647ced0p-7, -0x1.792e736320f47p-6, -0x1.7808d4489d6d2p-5},
     {0x1.017ed89db8441p-3, -0x1.0e8cfe9bd45ccp-3, 0x1.47e57a468b06dp-1, 0x1.adabbec84d4f0p-4},
     {1, -1, -2, -5, -4}, 0x1.0ec9ed84d0bc0p-6, {-7, -6, 1},
     {700346781655, 296633628799, 45050865994},
     {2526497193922298462, -4246685573565524192, -8467543927005779785}},
    {42u,
     {0xc621fbcd16d92688, 0x705a5661a791ffc1, 0xdbcd12c26eda1624},
     {0x1.8c43f79a2db24p-1, 0x1.c16959869e47ep-2, 0x1.b79a2584ddb42p-1},
     {0x1.c0d97eba2bd40p-6, -0x1.9090f63c0b010p-8, 0x1.25c36f3afc536p-5},
     {0x1.3807c1104fc6bp-2, -0x1.0a3c65fca9a7ep+0, 0x1.803b239e77350p-1, 0x1.e191b2d157f36p-1},
     {-7, 0, -1, -3, -3}, 0x1.650d6c1c2c011p-1, {1, -5, -7},
     {850973674773, 482551947684, 944038396526},
     {5053597115156604551, -1127493779279708224, 6614964053969868323}},
    {4294967296u,
     {0xe3c5ebe285ac1625, 0x8ea09968fe31dbcc, 0xcd084ff84d8de9be},
     {0x1.c78bd7c50b582p-1, 0x1.1d4132d1fc63bp-1, 0x1.9a109ff09b1bdp-1},
     {0x1.3f4626081226ap-5, 0x1.7675bdb304fc0p-8, 0x1.ed01ffcebd25cp-6},
     {0x1.a5c170234e89ep-4, -0x1.f607a848d4287p-1, -0x1.a28c84dd75dedp-1, -0x1.0723442d6170dp+0},
     {-2, 1, 2, -2, -4}, 0x1.e9bc2dd875173p-1, {1, 1, -7},
     {978278146693, 612579764475, 880607754316},
     {7189411738304648740, 1054010989025024971, 5550774468605766077}},
    {9223372036854775807u,
     {0x2ceb59116fb27514, 0x784d3e7d390dc57c, 0xd335a7689ce43488},
     {0x1.675ac88b7d938p-3, 0x1.e134f9f4e4370p-2, 0x1.a66b4ed139c86p-1},
     {-0x1.09dbafc8342b6p-5, -0x1.8a26b3c163a60p-9, 0x1.0a454ae85c73ep-5},
     {-0x1.1c5601bb0f770p-2, -0x1.253c19676598ap+0, 0x1.e8af88489bc42p-1, -0x1.89c6111e036b8p-3},
     {-3, -6, -5, -3, -1}, 0x1.384042d02278ep-2, {1, -6, -3},
     {192927043947, 516692016438, 907138263196},
     {-5986593348235660013, -554718471547665029, 5995882546664322183}},
};

TEST(raw_words_are_numpys) {
  for (const Expected& e : kExpected) {
    Rng rng(e.seed);
    for (const auto word : e.raw) CHECK(rng.next_uint64() == word);
  }
}

TEST(uniform_numbers_are_numpys) {
  for (const Expected& e : kExpected) {
    Rng rng(e.seed);
    for (const double value : e.random) CHECK(rng.random() == value);
    rng.reseed(e.seed);
    for (const double value : e.uniform) CHECK(rng.uniform(-0.05, 0.05) == value);
  }
}

TEST(normal_numbers_are_numpys) {
  for (const Expected& e : kExpected) {
    Rng rng(e.seed);
    for (const double value : e.normal) CHECK(rng.normal() == value);
  }
}

TEST(integers_are_numpys_and_keep_the_half_word) {
  for (const Expected& e : kExpected) {
    Rng rng(e.seed);
    for (const auto value : e.before) CHECK(rng.integers(-7, 3) == value);
    CHECK(rng.random() == e.between);
    for (const auto value : e.after) CHECK(rng.integers(-7, 3) == value);
  }
}

TEST(integers_of_any_range_are_numpys) {
  for (const Expected& e : kExpected) {
    Rng rng(e.seed);
    for (const auto value : e.large) CHECK(rng.integers(-5, std::int64_t{1} << 40) == value);
    rng.reseed(e.seed);
    using Limits = std::numeric_limits<std::int64_t>;
    for (const auto value : e.full) CHECK(rng.integers(Limits::min(), Limits::max()) == value);
    rng.reseed(e.seed);
    CHECK(rng.integers(3, 4) == 3);  // nothing to choose, nothing drawn
    CHECK(rng.random() == e.random[0]);
  }
}

TEST(a_new_seed_forgets_the_half_word) {
  const Expected& e = kExpected[1];
  Rng rng(7);
  rng.integers(0, 10);
  rng.reseed(e.seed);
  for (const auto value : e.before) CHECK(rng.integers(-7, 3) == value);
}

TEST(two_halves_are_one_word_low_half_first) {
  Rng rng(42);
  const std::uint32_t low = rng.next_uint32(), high = rng.next_uint32();
  CHECK((static_cast<std::uint64_t>(high) << 32 | low) == kExpected[1].raw[0]);
}

}  // namespace stepmill::rng_test
