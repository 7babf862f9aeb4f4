// What tests/device/cuda/test_std.py compiles twice: with the standard library of kernels (gpu/std), and with the
// host's. Both have to say the same. Each function writes numbers and returns how many. tests/device/cuda/test_nvrtc.py
// compiles it for GPUs.
#ifdef AS_KERNEL
#include "gpu/prelude.h"
#else
#include <stdexcept>
#endif
#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#ifdef AS_KERNEL
#ifdef __CUDACC_RTC__
#define __builtin_trap __trap
#endif
[[noreturn]] void stepmill::gpu::fail_thread() { __builtin_trap(); }
#endif

static double* out;
template <class... T>
static void put(T... values) { ((*out++ = static_cast<double>(values)), ...); }

enum class Side : std::uint8_t { kLeft, kRight };
struct Tile {
  double x;
  std::int8_t side;
};
struct Plain {
  std::int64_t count = 3;
  std::optional<float> torque;
  std::optional<Tile> tile;
  std::array<std::int16_t, 5> cells{};
  std::pair<std::int8_t, double> best;
  bool flag = true;
};
static const Tile kTable{4.5, 2};

template <class T>
static void limits() {
  using L = std::numeric_limits<T>;
  put(L::max(), L::min(), L::lowest(), L::is_signed, L::is_integer, L::digits);
  put(L::digits10, L::max_digits10, L::has_infinity, L::has_quiet_NaN, L::is_iec559);
  put(L::epsilon(), L::infinity(), L::denorm_min(), L::round_error(), std::numeric_limits<const T>::max());
  if constexpr (!L::is_integer) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    put(std::bit_cast<Bits>(L::quiet_NaN()), std::bit_cast<Bits>(L::signaling_NaN()));
  }
}
// Of which type a macro is, too.
template <class... T>
static void macros(T... values) { put(values..., sizeof(T)..., (static_cast<T>(-1) < static_cast<T>(0))...); }
template <class T>
static void traits() {
  put(std::is_integral_v<T>, std::is_floating_point_v<T>, std::is_arithmetic_v<T>, std::is_pointer_v<T>,
      std::is_enum_v<T>,
      std::is_trivially_copyable_v<T>, std::is_scalar_v<T>, std::is_signed_v<T>, std::is_same_v<std::decay_t<T>, T>,
      std::is_same_v<std::remove_cv_t<T>, T>, std::is_same<T, int>::value, std::is_integral<T>::value);
}

extern "C" long algorithms(double* to) {
  out = to;
  std::array<int, 9> a{5, 3, 8, 3, 9, -2, 0, 8, 1};
  const auto at = [&](auto place) { return place - a.begin(); };
  put(std::min(3, 2), std::max(3, 2), std::min(2.0, 2.0), std::clamp(7, 0, 5), std::clamp(-7, 0, 5),
      std::clamp(3, 0, 5));
  put(std::min({4, 2, 8}), std::max({4, 2, 8}), std::max({1.5}));
  put(at(std::max_element(a.begin(), a.end())), at(std::min_element(a.begin(), a.end())));
  put(at(std::find(a.begin(), a.end(), 3)), at(std::find(a.begin(), a.end(), 77)));
  put(at(std::find_if(a.begin(), a.end(), [](int x) { return x < 0; })), std::count(a.begin(), a.end(), 3));
  put(std::any_of(a.begin(), a.end(), [](int x) { return x > 8; }),
      std::all_of(a.begin(), a.end(), [](int x) { return x > 8; }));
  put(std::none_of(a.begin(), a.end(), [](int x) { return x > 9; }),
      std::count_if(a.begin(), a.end(), [](int x) { return x > 2; }));
  put(std::accumulate(a.begin(), a.end(), 0), std::accumulate(a.begin(), a.end(), 1, std::multiplies<>()));
  put(std::inner_product(a.begin(), a.end(), a.begin(), 0), std::accumulate(a.begin(), a.end(), 0.5, std::minus<>()));
  std::array<int, 9> b{};
  put(std::copy(a.begin(), a.end(), b.begin()) - b.begin(), std::copy_n(a.begin() + 1, 4, b.begin()) - b.begin());
  put(std::transform(a.begin(), a.begin() + 3, b.begin() + 4, [](int x) { return -x; }) - b.begin(), a == b);
  std::reverse(b.begin(), b.end() - 1);
  for (int x : b) put(x);
  std::array<int, 9> c = a;
  std::sort(c.begin(), c.end());
  for (int x : c) put(x);
  std::sort(c.begin(), c.begin() + 5, std::greater<>());
  std::stable_sort(c.begin(), c.end(), [](int x, int y) { return x % 3 < y % 3; });
  for (int x : c) put(x);
  std::fill(b.begin(), b.begin() + 2, 6);
  std::fill_n(b.begin() + 7, 2, 4);
  std::iota(b.begin() + 2, b.begin() + 7, -1);
  std::swap(b[0], b[8]);
  for (int x : b) put(x);
  const double sorted[] = {-1, 0, 0, 2.5, 7};
  for (double x : {-3.0, -1.0, 0.0, 1.0, 7.0, 9.0})
    put(std::upper_bound(sorted, sorted + 5, x) - sorted, std::lower_bound(sorted, sorted + 5, x) - sorted);
  put(std::equal(a.begin(), a.end(), a.begin()), std::equal(a.begin(), a.end(), b.begin()));
  put(std::size(sorted),
      std::ssize(a), *std::begin(sorted), *(std::end(sorted) - 1), *std::next(a.begin(), 2), *std::prev(a.end()));
  put(std::distance(a.begin(), a.end()), a.front(), a.back(), a.at(4), a.size(), a.empty(), std::get<2>(a),
      b.data()[1]);
  b.fill(2);
  put(b[0], b[8], std::less<>()(1, 2), std::greater<>()(1, 2), std::plus<>()(1, 2.5), std::divides<>()(1.0, 4));
  // Of a type: what is given is made one of it, and so is the answer.
  put(std::divides<double>()(1, 2), std::plus<std::uint8_t>()(200, 100), std::minus<unsigned>()(1, 2),
      std::multiplies<float>()(0.1F, 3.0F), std::less<int>()(1, 1), std::less<unsigned>()(~0U, 1U));
  const double halves[] = {1.5, 2.5};
  const int whole[] = {1, 2, 4};
  put(std::accumulate(halves, halves + 2, 0.0, std::plus<int>()), std::accumulate(whole, whole + 3, 100, std::divides<double>()));
  auto [first, second] = std::array{1.5, 2.5};
  auto [left, right] = std::make_pair(1, 2.5F);
  std::pair<int, double> empty;
  put(first, second, left, right, empty.first, empty.second, empty == std::pair{0, 0.0},
      std::pair{1, 2} < std::pair{1, 3});
  put(std::pair{2, 2} < std::pair{1, 3}, std::exchange(left, 7), left, std::tuple_size<std::array<int, 4>>::value);
  const std::pair<double, int> converted = std::make_pair(3, 2.75F);
  put(converted.first, converted.second, std::tuple_size_v<std::array<int, 4>>);
  std::pair<int, double> both{1, 2.5};
  std::get<1>(both) += std::get<0>(std::pair{4, 'x'});
  put(std::get<0>(both), std::get<1>(both), std::tuple_size_v<std::pair<int, char>>,
      sizeof(std::tuple_element_t<1, std::pair<int, char>>));
  put(std::modulus<>()(17, 5), std::equal_to<int>()(2, 2), std::not_equal_to<>()(2, 2.5), std::less_equal<>()(2, 2),
      std::greater_equal<int>()(1, 2));
  int sums[4];
  put(std::partial_sum(whole, whole + 3, sums) - sums, sums[0], sums[1], sums[2],
      std::partial_sum(whole, whole, sums) - sums);
  for (int x : {0, 1, 12, -18, 35, -35})
    for (int y : {0, 4, -6, 21})
      put(std::gcd(x, y), std::lcm(x, y), sizeof(std::gcd(x, static_cast<short>(y))), std::gcd(x, std::int64_t{y} << 33));
  put(std::gcd(std::uint8_t{200}, std::uint8_t{150}), std::lcm(6U, 4U));
  return out - to;
}

// Parts of an array.
static int sum_of(std::span<const int> some) {
  int sum = 0;
  for (int x : some) sum = 10 * sum + x;
  return sum;
}
extern "C" long spans(double* to) {
  out = to;
  int plain[] = {1, 2, 3, 4};
  std::array<int, 3> held{5, 6, 7};
  const std::array<int, 2> fixed{8, 9};
  put(sum_of(plain), sum_of(held), sum_of(fixed), sum_of({plain + 1, 2}), sum_of({plain, plain + 3}), sum_of({}));
  const std::span all(plain);
  const std::span some(plain, 3);
  const std::span few(plain + 1, plain + 3);
  const std::span three(held);
  const std::span two(fixed);
  put(all.size(), some.size(), few.size(), three.size(), two.size(), three.size_bytes(), two.empty());
  put(decltype(all)::extent == 4, std::is_same_v<decltype(two)::element_type, const int>,
      std::is_same_v<decltype(two)::value_type, int>, decltype(some)::extent == std::dynamic_extent);
  all[2] = 30;
  three.front() = 50;
  three.back() = 70;
  put(plain[2], held[0], held[2], *some.rbegin(), *(some.rend() - 1), all.data() == plain);
  put(sum_of(all.first(2)), sum_of(all.last(1)), sum_of(all.subspan(1)), sum_of(all.subspan(1, 2)),
      sum_of(all.first<3>()), sum_of(some.last<2>()));
  std::span<int> later;
  put(later.empty(), later.begin() == later.end());
  later = three;
  std::sort(later.begin(), later.end(), std::greater<>());
  put(held[0], held[1], held[2], sum_of(later), std::size(later), std::accumulate(later.begin(), later.end(), 0));
  return out - to;
}

// With an order of one's own: by the last digit, so that some are equal.
struct ByLastDigit {
  constexpr bool operator()(int x, int y) const { return x % 10 < y % 10; }
};
extern "C" long orders(double* to) {
  out = to;
  const ByLastDigit before;
  const int a[] = {23, 51, 40, 13, 80, 71, 33};
  put(std::min(21, 11, before), std::max(21, 11, before), std::min(29, 11, before), std::max(29, 11, before));
  put(std::min({23, 51, 11, 13}, before), std::max({51, 23, 13, 41}, before), std::max({7, 5}, std::greater<>()));
  put(std::max_element(a, a + 7, before) - a, std::min_element(a, a + 7, before) - a,
      std::max_element(a, a, before) - a);
  const auto both = std::minmax_element(a, a + 7, before), plain = std::minmax_element(a, a + 7);
  put(both.first - a, both.second - a, plain.first - a, plain.second - a);
  const int two = 2, three = 3, twelve = 12;
  const auto sorted = std::minmax(three, two), equal = std::minmax(two, twelve, before);
  put(sorted.first, sorted.second, equal.first, equal.second);
  const auto [least, most] = std::minmax({4, 2, 8, 6});
  const std::pair<int, int> last = std::minmax({24, 11, 4, 31}, before);
  put(least, most, last.first, last.second);
  int b[7];
  std::copy(a, a + 7, b);
  std::sort(b, b + 7, std::less<int>());
  for (int x : b) put(x);
  std::copy_backward(b, b + 4, b + 6);
  std::replace(b, b + 7, 33, -1);
  for (int x : b) put(x);
  put(std::rotate(b, b + 3, b + 7) - b, std::rotate(b, b, b + 7) - b, std::rotate(b, b + 7, b + 7) - b);
  for (int x : b) put(x);
  put(std::remove(b, b + 7, 13) - b, std::remove_if(b, b + 4, [](int x) { return x < 20; }) - b, b[0], b[1]);
  int sum = 0, next = 0;
  std::for_each(a, a + 7, [&](int x) { sum += x; });
  std::generate(b, b + 7, [&] { return next++ * next; });
  put(sum, b[0], b[6]);
  int c[2][2] = {{1, 2}, {3, 4}}, d[2][2] = {{5, 6}, {7, 8}};
  std::swap(c, d);
  put(c[0][0], c[1][1], d[0][1]);
  return out - to;
}

// What authors may override.
struct Lost : std::exception {
  explicit Lost(int where) : where_(where) {}
  const char* what() const noexcept override { return where_ > 1 ? "far" : "near"; }
  int where_;
};
struct Nowhere : std::exception {};
extern "C" long arrays(double* to) {
  out = to;
  std::array<int, 4> a{5, 3, 8, 1};
  const std::array<int, 4> b{5, 3, 9, 0};
  for (auto i = a.rbegin(); i != a.rend(); ++i) put(*i);
  for (auto i = b.crbegin(); i < b.crend(); i += 2) put(*i, i[1]);
  for (auto i = a.cbegin(); i != a.cend(); i++) put(*i);
  for (auto i = std::rbegin(a); i != std::rend(a); i++) *i += 1;
  put(a.rend() - a.rbegin(), *(a.rbegin() + 1), *--a.rend(), a.rbegin().base() - a.begin(), *std::cbegin(b));
  std::sort(a.rbegin(), a.rend());
  for (int x : a) put(x);
  put(a < b, b < a, a < a, *std::make_reverse_iterator(a.begin() + 2));
  std::array<int, 4> c = b;
  a.swap(c);
  put(a[2], c[2], sizeof(decltype(a)::value_type));
  decltype(c)::const_iterator third = c.begin() + 2;
  put(*third, std::max_element(a.rbegin(), a.rend()) - a.rbegin());
  std::array<double, 0> none{};
  for (double x : none) put(x);
  none.fill(1);
  put(none.size(), none.empty(), none.begin() == none.end(), none.rbegin() == none.rend(), none == none);
  const unsigned char bytes[] = {1, 2, 3, 200, 4};
  unsigned char moved[] = {9, 1, 2, 3, 199};
  put(std::memcmp(bytes, moved + 1, 3), std::memcmp(bytes, moved + 1, 4) > 0, std::memcmp(moved + 1, bytes, 4) < 0);
  std::memmove(moved + 1, moved, 4);
  for (int x : moved) put(x);
  std::memmove(moved, moved + 2, 3);
  for (int x : moved) put(x);
  const Lost lost(2);
  const std::exception& error = lost;
  put(error.what()[0], Lost(1).what()[0], sizeof(Lost), sizeof(Nowhere));
  return out - to;
}

extern "C" long numbers(double* to) {
  out = to;
  limits<std::int8_t>(), limits<std::uint8_t>(), limits<std::int16_t>(), limits<std::uint32_t>(),
  limits<std::int64_t>();
  limits<std::uint64_t>(), limits<bool>(), limits<char>(), limits<float>(), limits<double>(), limits<long long>();
  traits<int>(), traits<const int>(), traits<unsigned long long>(), traits<bool>(), traits<char>(),
  traits<char16_t>();
  traits<float>(), traits<const double>(), traits<int*>(), traits<int* const>(), traits<Side>(),
  traits<Tile>(), traits<volatile short>();
  put(std::is_same_v<std::decay_t<const int&>, int>, std::is_same_v<std::decay_t<int[3]>, int*>);
  put(std::is_same_v<std::conditional_t<true, int, float>, int>, std::is_same_v<std::underlying_type_t<Side>,
      std::uint8_t>);
  put(std::bit_cast<std::uint32_t>(1.5F), std::bit_cast<double>(std::uint64_t{0x4009000000000000}));
  for (std::uint32_t x : {0u, 1u, 2u, 0x80000000u, 0xffffffffu, 0x00f0u, 12345u}) {
    put(std::popcount(x), std::bit_width(x), std::countl_zero(x), std::countr_zero(x), std::has_single_bit(x));
    for (int places : {0, 1, 31, 32, 33, -3}) put(std::rotl(x, places), std::rotr(x, places));
    put(std::rotl(static_cast<std::uint8_t>(x), 3), std::countl_zero(static_cast<std::uint16_t>(x)),
        std::popcount(std::uint64_t{x} << 20));
  }
  put(std::numbers::pi, std::numbers::e, std::numbers::sqrt2, std::numbers::pi_v<float>);
  put(std::numbers::log2e, std::numbers::log10e, std::numbers::inv_pi, std::numbers::ln2, std::numbers::ln10,
      std::numbers::sqrt3, std::numbers::ln2_v<float>);
  macros(M_E, M_LOG2E, M_LOG10E, M_LN2, M_LN10, M_PI, M_PI_2, M_PI_4, M_1_PI, M_2_PI, M_2_SQRTPI, M_SQRT2, M_SQRT1_2);
  macros(INFINITY, -INFINITY, HUGE_VAL, HUGE_VALF);
  constexpr double kNothing = NAN;
  put(std::bit_cast<std::uint64_t>(kNothing), std::bit_cast<std::uint32_t>(NAN), sizeof(NAN));
  macros(INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN, INTPTR_MAX, INTPTR_MIN,
         PTRDIFF_MAX, PTRDIFF_MIN, INTMAX_MAX, INTMAX_MIN);
  macros(UINT8_MAX, UINT16_MAX, UINT32_MAX, UINT64_MAX, UINTPTR_MAX, SIZE_MAX, UINTMAX_MAX);
  macros(INT8_C(1), INT16_C(2), INT32_C(3), INT64_C(4), UINT8_C(1), UINT16_C(2), UINT32_C(3), UINT64_C(4));
  macros(CHAR_BIT, SCHAR_MIN, SCHAR_MAX, UCHAR_MAX, CHAR_MIN, CHAR_MAX, SHRT_MIN, SHRT_MAX, USHRT_MAX);
  macros(INT_MIN, INT_MAX);
  macros(UINT_MAX, LONG_MIN, LONG_MAX, ULONG_MAX, LLONG_MIN, LLONG_MAX, ULLONG_MAX);
  macros(FLT_RADIX, FLT_MANT_DIG, FLT_DIG, FLT_DECIMAL_DIG, FLT_MIN_EXP, FLT_MAX_EXP, FLT_MIN_10_EXP, FLT_MAX_10_EXP);
  macros(FLT_MAX, FLT_MIN, FLT_TRUE_MIN, FLT_EPSILON, DBL_MAX, DBL_MIN, DBL_TRUE_MIN, DBL_EPSILON);
  macros(DBL_MANT_DIG, DBL_DIG, DBL_DECIMAL_DIG, DBL_MIN_EXP, DBL_MAX_EXP, DBL_MIN_10_EXP, DBL_MAX_10_EXP);
#if INT_MAX != 2147483647 || UINT64_MAX != 18446744073709551615UL || LLONG_MIN >= 0
#error "the preprocessor reads them too"
#endif
  return out - to;
}

// What is exact, or computed by the host's own functions; and of which type it is.
template <class T>
static void typed(T value) { put(value, sizeof(T), std::is_floating_point_v<T>,
std::signbit(static_cast<double>(value))); }
extern "C" long functions(double* to) {
  out = to;
  for (double x : {-2.75, -0.5, -0.0, 0.0, 0.3, 1.0, 2.5, 1e10, 123456.789}) {
    const auto f = static_cast<float>(x);
    const int n = static_cast<int>(x / 1e3) + 2;
    typed(std::floor(x)), typed(std::floor(f)), typed(std::floor(n)), typed(std::ceil(f)),
    typed(std::trunc(x)), typed(std::round(f));
    typed(std::rint(x)), typed(std::nearbyint(f)), typed(std::abs(x)), typed(std::abs(f)), typed(std::abs(-n)),
    typed(std::abs(-7L));
    typed(std::fabs(f)), typed(std::fabs(n)), typed(std::sqrt(std::abs(x))), typed(std::sqrt(std::abs(f))),
    typed(std::sqrt(n));
    typed(std::fmod(x, 0.7)), typed(std::fmod(f, 0.7F)), typed(std::fmod(f, 0.7)), typed(std::fmod(n, 3)),
    typed(std::remainder(x, 0.7));
    typed(std::copysign(f, -1.0F)), typed(std::copysign(x, -1)), typed(std::fmax(f, 1)),
    typed(std::fmin(f, 1.0F)), typed(std::fdim(x, 1.0));
    typed(std::fma(x, x, 1.0)), typed(std::fma(f, f, 1.0F)), typed(std::ldexp(f, 3)),
    typed(std::nextafter(f, 5.0F)), typed(std::nextafter(x, 5));
    typed(std::lround(f)), typed(std::lrint(x)), typed(std::llround(x)), typed(std::isfinite(f)),
    typed(std::isnan(n)), typed(std::isinf(x));
    typed(std::exp(-std::abs(x))), typed(std::log(n)), typed(std::pow(2, n / 100)), typed(std::pow(f, 2)),
    typed(std::pow(std::abs(x), 0.5));
    typed(std::hypot(x, 2.0, -3.0)), typed(std::hypot(f, 0.5F, 4.0F)), typed(std::hypot(f, 2, x)),
        typed(std::hypot(x * 0, 0, 0));
    typed(std::atan2(x, 1.0)), typed(std::atan2(f, 1)), typed(std::hypot(x, 2)), typed(std::tanh(x)),
    typed(std::atan(n)), typed(std::cbrt(x));
    typed(std::erf(x)), typed(std::expm1(-std::abs(x))), typed(std::log1p(std::abs(x))), typed(std::log2(n)),
    typed(std::log10(n));
    int exponent = 0;
    float whole = 0;
    typed(std::frexp(f, &exponent)), typed(std::modf(f, &whole));
    put(exponent, whole, std::signbit(f));
  }
  for (double a : {-1.5, 0.0, 2.25})
    for (double b : {-3.0, 0.0, 2.25, 1e16})
      for (double at : {-0.5, 0.0, 0.3, 1.0, 1.7})
        typed(std::lerp(a, b, at)), typed(std::lerp(static_cast<float>(a), static_cast<float>(b), static_cast<float>(at))),
            typed(std::lerp(static_cast<int>(a), 7, at));
  put(sizeof(std::sin(1)), sizeof(std::cos(1.0F)), sizeof(std::exp(1.0F)), sizeof(std::atan2(1.0F, 1.0F)),
      sizeof(std::pow(1.0F, 1.0F)));
  return out - to;
}

extern "C" long optionals(double* to) {
  out = to;
  std::optional<float> one, other = 2.5F;
  put(one.has_value(), static_cast<bool>(other), *other, one.value_or(7.0F), other.value_or(7.0F), other.value());
  one = other;
  other = std::nullopt;
  put(one.has_value(), other.has_value(), one == 2.5F, one == other, other == std::nullopt);
  one = {};
  put(one.has_value(), one == other);
  one = 3;
  put(*one, one.has_value());
  // A value of another type is compared as it is: it is not made one of theirs.
  const std::optional<std::uint8_t> small = std::uint8_t{44};
  const std::optional<int> two = 2, none;
  const std::optional<double> exact = 2.0, nothing;
  put(two == 2, 2 == two, two == 2.5, two != 2.5, small == 300, none == 0, two == exact, none == nothing, none == exact,
      none != exact, one == 3.0, std::nullopt == none, two != std::nullopt);
  one.reset();
  put(one.has_value(), one.emplace(4.0F));
  std::optional<Tile> tile = Tile{1.0, 2};
  put(tile->x, (*tile).side);
  tile = {};
  put(tile.has_value());
  tile = Tile{3.0, 4};
  put(tile->x, tile.has_value());
  std::optional<Side> side;
  side = Side::kRight;
  put(static_cast<int>(*side));
  return out - to;
}

extern "C" long layout(double* to) {
  out = to;
  put(sizeof(std::optional<float>), sizeof(std::optional<double>), sizeof(std::optional<std::int8_t>),
      sizeof(std::optional<Tile>));
  put(alignof(std::optional<double>), sizeof(std::optional<Side>), sizeof(std::optional<bool>),
      sizeof(std::optional<std::array<int, 3>>));
  put(sizeof(std::array<std::int16_t, 5>), alignof(std::array<double, 2>), sizeof(std::pair<std::int8_t, double>));
  put(sizeof(std::shared_ptr<const Tile>), alignof(std::shared_ptr<const Tile>), sizeof(Plain), alignof(Plain));
  put(sizeof(std::int8_t), sizeof(long), sizeof(std::size_t), sizeof(std::ptrdiff_t), sizeof(std::byte),
      sizeof(std::uintptr_t), sizeof(std::intmax_t), sizeof(std::array<double, 0>), alignof(std::array<double, 0>));
  put(offsetof(Plain, torque), offsetof(Plain, tile), offsetof(Plain, cells), offsetof(Plain, best),
      offsetof(Plain, flag));
  return out - to;
}

// What one library writes, the other reads.
extern "C" void write_plain(void* to) {
  Plain made;
  made.torque = 1.25F;
  made.tile = Tile{-3.0, 7};
  made.cells = {1, 2, 3, 4, 5};
  made.best = {9, 0.125};
  std::memcpy(to, static_cast<const void*>(&made), sizeof made);
}
extern "C" long read_plain(const void* from, double* to) {
  out = to;
  const Plain& one = *static_cast<const Plain*>(from);
  put(one.count, one.torque.has_value(), *one.torque, one.tile->x, one.tile->side, one.best.first,
      one.best.second, one.flag);
  for (std::int16_t cell : one.cells) put(cell);
  return out - to;
}
#ifndef AS_KERNEL
extern "C" void write_shared(void* to) { new (to) std::shared_ptr<const Tile>(std::shared_ptr<int>(), &kTable); }
#endif
extern "C" long read_shared(const void* from, double* to) {
  out = to;
  const auto& shared = *static_cast<const std::shared_ptr<const Tile>*>(from);
  put(shared->x, (*shared).side, shared.get()->x, static_cast<bool>(shared));
  return out - to;
}

#ifdef __CUDACC_RTC__
extern "C" __global__ void all(double* to, const void* from) {
  algorithms(to), spans(to), orders(to), arrays(to), numbers(to), optionals(to), layout(to), read_plain(from, to);
  read_shared(from, to);
}
#endif
