#include "envs/classic/exact_trig.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/env/rng.h"
#include "tests/check.h"

namespace stepmill::exact_trig_test {

bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

// How many of the angles come out different from libm, in any bit.
std::int64_t differences(const std::vector<double>& angles) {
  std::int64_t count = 0;
  for (std::size_t from = 0; from < angles.size(); from += kTrigBlock) {
    const int size = static_cast<int>(std::min<std::size_t>(kTrigBlock, angles.size() - from));
    double sine[kTrigBlock], cosine[kTrigBlock];
    exact_sin_cos(&angles[from], sine, cosine, size);
    for (int i = 0; i < size; ++i) {
      const double angle = angles[from + static_cast<std::size_t>(i)];
      count += !same(sine[i], std::sin(angle)) || !same(cosine[i], std::cos(angle));
    }
  }
  return count;
}

constexpr int kAngles = test::kSanitized ? 200'000 : 10'000'000;

TEST(angles_that_a_pole_has_come_out_as_libm_gives_them) {
  Rng rng(1);
  for (const double most : {0.21, 0.25, 0.3, 4.0}) {
    std::vector<double> angles(kAngles / 4);
    for (double& angle : angles) angle = rng.uniform(-most, most);
    CHECK(differences(angles) == 0);
  }
}

TEST(small_angles_do_too) {
  Rng rng(2);
  std::vector<double> angles(kAngles / 10);
  for (double& angle : angles) angle = std::ldexp(rng.uniform(-1.0, 1.0), -static_cast<int>(rng.integers(0, 40)));
  CHECK(differences(angles) == 0);
}

TEST(angles_at_the_edges_do_too) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> angles{0.0, -0.0, inf, -inf, 1e300, 5e-324, -5e-324};
  for (const double edge : {exact_trig::kMost, exact_trig::kLeast, 0.126, 12 * 2 * 3.14159265358979 / 360})
    for (const double sign : {-1.0, 1.0})
      for (double angle = sign * edge * (1 - 1e-14); std::abs(angle) < edge * (1 + 1e-14);)
        angles.push_back(angle = std::nextafter(angle, sign * inf));
  // Neither of the two says which NaN.
  CHECK(differences(angles) <= 2);
  angles[2] = angles[3] = 0.1;
  CHECK(differences(angles) == 0);
}

TEST(most_angles_need_no_libm) {
  if (!has_fast_fma()) return;
  Rng rng(3);
  int asked = 0;
  for (int block = 0; block < 1000; ++block) {
    double angle[kTrigBlock], sine[kTrigBlock], cosine[kTrigBlock];
    std::int64_t unsure[kTrigBlock];
    for (double& one : angle) one = rng.uniform(-0.21, 0.21);
    exact_trig::evaluate(angle, sine, cosine, unsure, kTrigBlock);
    for (const std::int64_t one : unsure) asked += one != 0;
  }
  CHECK(asked < 1000 * kTrigBlock / 10);
}

TEST(a_division_by_a_constant_is_a_division) {
  Rng rng(4);
  const DivideFused divide;
  std::int64_t wrong = 0;
  for (int i = 0; i < kAngles; ++i) {
    const double value = std::ldexp(rng.uniform(-1.0, 1.0), static_cast<int>(rng.integers(-30, 30)));
    wrong += !same(divide(value, 1.1), value / 1.1);
  }
  CHECK(wrong == 0);
}

}  // namespace stepmill::exact_trig_test
