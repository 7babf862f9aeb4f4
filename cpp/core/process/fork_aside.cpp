#include "core/process/fork_aside.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>

namespace stepmill {
namespace {

// What the process in between leaves in our memory.
struct Between {
  pid_t itself = 0, made = 0;
  int error = 0;
};

// Returns twice: in this process, once the one in between has ended, and in the new one, where it is true.
[[gnu::noinline]] bool fork_between(volatile Between& between) {
  const pid_t child = vfork();
  if (child < 0) {
    between.error = errno;
    return false;
  }
  if (child == 0) {
    between.itself = getpid();
    (void)setpgid(0, 0);  // whoever kills our group does not mean the new process
    const pid_t made = fork();
    if (made == 0) return true;
    between.made = made;
    between.error = made < 0 ? errno : 0;
    _exit(0);
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return false;
}

}  // namespace

pid_t fork_aside() {
  sigset_t all, before, child_ended;
  sigfillset(&all);
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler runs in two processes that share their memory
  int subreaper = 0;
  (void)prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0);
  (void)prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
  volatile Between between;
  const bool is_new = fork_between(between);
  if (is_new) {
    while (getppid() == between.itself) sched_yield();  // until we are an orphan
  } else {
    (void)prctl(PR_SET_CHILD_SUBREAPER, subreaper, 0, 0, 0);
    const timespec now{};
    while (sigtimedwait(&child_ended, nullptr, &now) > 0) {  // of the process in between: nobody knows it
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (between.error != 0) throw std::system_error(between.error, std::generic_category(), "fork");
  return is_new ? 0 : between.made;
}

}  // namespace stepmill
