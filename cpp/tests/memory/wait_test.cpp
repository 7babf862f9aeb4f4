#include "core/memory/wait.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/check.h"

namespace stepmill::wait_test {

using std::chrono::nanoseconds;

TEST(there_is_at_least_one_core_and_no_more_than_the_machine_has) {
  CHECK(available_cores() >= 1);
  CHECK(available_cores() <= sysconf(_SC_NPROCESSORS_CONF));
}

TEST(a_changed_word_is_not_waited_for) {
  std::atomic<std::uint32_t> word{1};
  futex_wait(word, 0, std::chrono::hours(1), false);
  futex_wait(word, 0, std::chrono::hours(1), true);
  CHECK(word.load() == 1u);
}

TEST(a_wait_ends_at_its_timeout) {
  std::atomic<std::uint32_t> word{0};
  const auto from = Clock::now();
  futex_wait(word, 0, std::chrono::milliseconds(2), false);
  CHECK((Clock::now() - from >= std::chrono::milliseconds(2)) == true);
  futex_wait(word, 0, nanoseconds(0), false);
}

TEST(a_wake_reaches_a_thread) {
  std::atomic<std::uint32_t> word{0};
  std::thread sleeper([&] {
    while (word.load() == 0) futex_wait(word, 0, std::chrono::hours(1), false);
  });
  word = 1;
  futex_wake(word, 1, false);
  sleeper.join();
}

TEST(a_wake_of_a_shared_word_reaches_another_process) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& word = *static_cast<std::atomic<std::uint32_t>*>(memory);
  const pid_t child = fork();
  if (child == 0) {
    while (word.load() == 0) futex_wait(word, 0, std::chrono::hours(1), true);
    _exit(0);
  }
  word = 1;
  futex_wake(word, 1, true);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  munmap(memory, 4096);
}

TEST(no_more_spin_than_there_are_cores_beside_the_caller) {
  SpinBudget& budget = SpinBudget::instance();
  const int limit = available_cores() - 1;
  int granted = 0;
  std::vector<std::unique_ptr<SpinBudget::Licence>> licences;
  for (int i = 0; i < limit + 3; ++i) {
    licences.push_back(std::make_unique<SpinBudget::Licence>(budget));
    granted += static_cast<bool>(*licences.back());
  }
  CHECK(granted == limit);
  licences.clear();
  CHECK(static_cast<bool>(SpinBudget::Licence(budget)) == (limit > 0));
}

// The threads that spin in the parent do not exist in the child, and never give a licence back.
TEST(a_forked_child_starts_with_the_whole_budget) {
  if (available_cores() < 2) return;
  SpinBudget& budget = SpinBudget::instance();
  std::vector<std::unique_ptr<SpinBudget::Licence>> licences;
  for (int i = 0; i < available_cores(); ++i) licences.push_back(std::make_unique<SpinBudget::Licence>(budget));
  const pid_t child = fork();
  if (child == 0) _exit(static_cast<bool>(SpinBudget::Licence(budget)) ? 0 : 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST(a_spin_ends_when_it_is_done_or_over) {
  int calls = 0;
  CHECK(spin_until(std::chrono::hours(1), [&] { return ++calls == 100; }) == true);
  CHECK(calls == 100);
  CHECK(spin_until(nanoseconds(0), [] { return false; }) == false);
}

}  // namespace stepmill::wait_test
