// The tests' own checks, one page of them, so that no framework has to be fetched or learned.
//
//     TEST(a_queue_gives_back_what_was_pushed) {
//       CHECK(queue.pop(1, out) == 1);   // a failure prints both sides and the test goes on
//     }
//
// A program has the tests of many files, and several of these are compiled as one: each has its own namespace. With
// `main.cpp` it runs every test, or those of one file (`core_tests arena_test`), or those whose names contain its
// argument, and returns non-zero if any failed or there is none. Checks may run on any thread.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace stepmill::test {

// Sanitizers slow a test down many times: the long ones do less there.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

struct Test {
  const char* file;
  const char* name;
  void (*body)();

  bool is_chosen_by(const std::string& choice) const {
    return std::string(file).ends_with("/" + choice + ".cpp") || std::strstr(name, choice.c_str());
  }
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Registered {
  Registered(const char* file, const char* name, void (*body)()) { tests().push_back({file, name, body}); }
};

// Failed checks of the running test.
inline std::atomic<int> failed_checks{0};

inline void fail_check(const char* file, int line, const std::string& what) {
  static std::mutex mutex;
  constexpr int kMostPrinted = 10;  // a race fails thousands of times in the same way
  if (failed_checks.fetch_add(1) >= kMostPrinted) return;
  std::lock_guard lock(mutex);
  std::cerr << file << ":" << line << ": " << what << "\n";
}

template <class T>
std::string shown(const T& value) {
  std::ostringstream out;
  out.precision(17);
  if constexpr (std::is_same_v<T, bool>)
    out << (value ? "true" : "false");
  else if constexpr (std::is_enum_v<T>)
    out << static_cast<std::int64_t>(value);
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 1)
    out << static_cast<int>(value);  // not as a character
  else if constexpr (requires { out << value; })
    out << value;
  else
    out << "(a value that cannot be printed)";
  return out.str();
}

struct Verdict {
  bool holds;
  std::string values;  // filled only where it does not hold
};

// The left side of a comparison. Integers compare by value, whatever their signs.
template <class L>
struct Left {
  const L& value;

  template <class R, class F>
  Verdict compare(const R& right, F holds) const {
    if (holds(value, right)) return {true, ""};
    return {false, shown(value) + " against " + shown(right)};
  }
  template <class R>
  static constexpr bool kIntegers = std::is_integral_v<L> && std::is_integral_v<R> &&
                                    !std::is_same_v<L, bool> && !std::is_same_v<R, bool>;
#define STEPMILL_COMPARISON(symbol, of_integers)                            \
  template <class R>                                                        \
  Verdict operator symbol(const R& right) const {                           \
    return compare(right, [](const auto& a, const auto& b) -> bool {        \
      if constexpr (kIntegers<R>)                                           \
        return of_integers(a, b);                                           \
      else                                                                  \
        return a symbol b;                                                  \
    });                                                                     \
  }
  STEPMILL_COMPARISON(==, std::cmp_equal)
  STEPMILL_COMPARISON(!=, std::cmp_not_equal)
  STEPMILL_COMPARISON(<, std::cmp_less)
  STEPMILL_COMPARISON(<=, std::cmp_less_equal)
  STEPMILL_COMPARISON(>, std::cmp_greater)
  STEPMILL_COMPARISON(>=, std::cmp_greater_equal)
#undef STEPMILL_COMPARISON
  operator Verdict() const { return {static_cast<bool>(value), shown(value)}; }
};

struct Split {
  template <class L>
  Left<L> operator<<(const L& left) const {
    return {left};
  }
};

inline void check(const Verdict& verdict, const char* expression, const char* file, int line) {
  if (!verdict.holds)
    fail_check(file, line, std::string(expression) + "  [" + verdict.values + "]");
}

// Parses as (Split() << left) == right, so that both sides are at hand.
#define CHECK(...) \
  ::stepmill::test::check(::stepmill::test::Split() << __VA_ARGS__, #__VA_ARGS__, __FILE__, __LINE__)

#define CHECK_THROWS(expression, Error)                                                        \
  try {                                                                                        \
    static_cast<void>(expression);                                                             \
    ::stepmill::test::fail_check(__FILE__, __LINE__, #expression " throws no " #Error);        \
  } catch (const Error&) {                                                                     \
  }

#define TEST(name)                                                                         \
  static void test_##name();                                                               \
  static const ::stepmill::test::Registered registered_##name(__FILE__, #name, test_##name); \
  static void test_##name()

inline const char* running_test = "";

// Each test, and each case of one, has this long: a hang, where even a machine that gets a tenth of its cores is not.
inline void wind_up_the_alarm() {
  constexpr unsigned kMostSeconds = 240;
  alarm(kMostSeconds);
}

// Called in each round of a long race of threads: whatever it takes on a busy machine, what goes round does not hang.
inline void gets_on(std::uint64_t round) {
  if (round % 1'000 == 0) wind_up_the_alarm();
}

// Says in which case of a test a check failed, or a hang happened.
class Case {
 public:
  explicit Case(std::string what) : what_(std::move(what)), before_(failed_checks), test_(running_test) {
    running_test = what_.c_str();
    wind_up_the_alarm();
  }
  ~Case() {
    running_test = test_;
    if (failed_checks != before_) std::cerr << "  in: " << what_ << "\n";
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

 private:
  const std::string what_;
  const int before_;
  const char* const test_;
};

// A lost wake-up shows as a hang: name the test it happened in, and fail.
inline void on_alarm(int) {
  const auto put = [](const char* text) { return write(2, text, std::strlen(text)); };
  if (put("timed out in ") < 0 || put(running_test) < 0 || put("\n") < 0) _exit(3);
  _exit(2);
}

inline int run_tests(const std::string& choice) {
  signal(SIGALRM, on_alarm);
  int passed = 0, failed = 0;
  for (const Test& test : tests()) {
    if (!test.is_chosen_by(choice)) continue;
    running_test = test.name;
    wind_up_the_alarm();
    failed_checks = 0;
    try {
      test.body();
    } catch (const std::exception& error) {
      fail_check(test.name, 0, std::string("threw ") + error.what());
    }
    const bool good = failed_checks == 0;
    (good ? passed : failed) += 1;
    if (!good) std::cerr << "FAILED " << test.name << ": " << failed_checks << " checks\n";
  }
  std::cout << passed << " passed, " << failed << " failed\n";
  return passed > 0 && failed == 0 ? 0 : 1;
}

}  // namespace stepmill::test
