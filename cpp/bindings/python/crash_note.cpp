#include "bindings/python/crash_note.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

namespace stepmill {
namespace {

constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

std::atomic<int> the_worker{-1}, the_env{-1};
struct sigaction the_next[NSIG];  // by signal: what was there before us

// A line of text, made with nothing that a signal handler may not use.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != '\0' && size_ < sizeof text_) text_[size_++] = *text++;
    return *this;
  }
  Line& operator<<(int number) {
    char digits[12];
    std::size_t first = sizeof digits;
    digits[--first] = '\0';
    do digits[--first] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0 && first > 0);
    return *this << digits + first;
  }
  // At once: what other processes write does not come in between.
  void write() const { (void)!::write(STDERR_FILENO, text_, size_); }

 private:
  char text_[128];
  std::size_t size_ = 0;
};

void on_crash(int number) {
  const int env = the_env.load(std::memory_order_relaxed);
  Line line;
  line << "stepmill: ";
  if (env >= 0) line << "env " << env << " crashed in ";
  line << "worker " << the_worker.load(std::memory_order_relaxed) << " (pid " << getpid();
  (line << (env >= 0 ? "):\n" : ") crashed:\n")).write();
  sigaction(number, &the_next[number], nullptr);
  ::raise(number);
}

}  // namespace

void install_crash_note(int worker) {
  the_worker.store(worker, std::memory_order_relaxed);
  struct sigaction ours {};
  ours.sa_handler = on_crash;
  // On faulthandler's own stack, as the usual one may be what has overflowed; the signal that follows is not blocked.
  ours.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (const int number : kCrashes) {
    struct sigaction before {};
    if (sigaction(number, &ours, &before) == 0 && before.sa_handler != on_crash) the_next[number] = before;
  }
}

void set_crash_env(int env) { the_env.store(env, std::memory_order_relaxed); }

}  // namespace stepmill
