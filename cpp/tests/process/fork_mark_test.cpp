#include "core/process/fork_mark.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

namespace stepmill::fork_mark_test {

// 1 where the child knows that it is one.
int seen_by_child(const ForkMark& mark, long child) {
  if (child == 0) _exit(mark.in_child());
  int status = -1;
  CHECK(waitpid(static_cast<pid_t>(child), &status, 0) == child);
  return WEXITSTATUS(status);
}

TEST(a_child_knows_that_it_is_one) {
  const ForkMark mark;
  CHECK(mark.in_child() == false);
  CHECK(seen_by_child(mark, fork()) == 1);
  CHECK(mark.in_child() == false);
}

// Which no handler of forks sees.
TEST(so_does_one_that_a_bare_system_call_made) {
  const ForkMark mark;
  CHECK(seen_by_child(mark, syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)) == 1);
}

TEST(a_mark_that_a_child_makes_is_its_own) {
  const ForkMark before;
  const pid_t child = fork();
  if (child == 0) {
    const ForkMark own;
    _exit(own.in_child() ? 2 : 3);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 3);
}

}  // namespace stepmill::fork_mark_test
