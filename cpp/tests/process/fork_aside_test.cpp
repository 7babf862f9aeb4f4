#include "core/process/fork_aside.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/check.h"

namespace stepmill::fork_aside_test {

struct Report {
  pid_t pid, parent, group;
  int memory, error;  // what waiting for any child says
};

Report report_of(int memory) {
  const int error = waitpid(-1, nullptr, WNOHANG) < 0 ? errno : 0;
  return {getpid(), getppid(), getpgrp(), memory, error};
}

TEST(a_process_that_is_forked_aside_has_our_memory_and_is_a_child_of_the_subreaper) {
  if (test::kSanitized) return;  // they have their own ways to fork
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);  // as a worker is
    volatile int memory = 41;
    memory = 42;
    const pid_t aside = fork_aside();
    Report report = report_of(memory);
    if (aside == 0) memory = 43;  // in a memory of its own
    if (aside != 0) report.group = aside;  // so that the test knows what was returned
    _exit(write(ends[1], &report, sizeof report) == sizeof report ? (aside == 0 ? 7 : 8) : 1);
  }
  Report reports[2];
  for (Report& report : reports) CHECK(read(ends[0], &report, sizeof report) == sizeof report);
  const Report& first = reports[reports[0].pid == child ? 0 : 1];
  const Report& aside = reports[reports[0].pid == child ? 1 : 0];
  CHECK(first.pid == child);
  CHECK(first.group == aside.pid);
  CHECK(first.error == ECHILD);  // it has no child to wait for
  CHECK(aside.parent == getpid());
  CHECK(aside.memory == 42);
  CHECK(aside.group != getpgrp());
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 8);
  CHECK(waitpid(aside.pid, &status, 0) == aside.pid);
  CHECK(WEXITSTATUS(status) == 7);
  close(ends[0]);
  close(ends[1]);
  prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

}  // namespace stepmill::fork_aside_test
