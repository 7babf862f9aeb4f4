#include "core/memory/wait.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

namespace stepmill {
namespace {

// C files, not C++ streams: a module that links libstdc++ statically, as some wheels do, may find the locales of
// another copy in the process, and streams crash on those.
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// The limit in a file that holds "quota period" (cgroup v2), in cores; a very large number if there is no limit.
double quota_in(const std::string& path) {
  const File file(std::fopen(path.c_str(), "re"));
  double quota = 0.0, period = 0.0;
  // "max" is not a number, so it reads as no limit.
  if (file && std::fscanf(file.get(), "%lf %lf", &quota, &period) == 2 && period > 0.0)
    return quota / period;
  return 1e9;
}

// The lowest quota of this process's cgroup and of its parents, in cores.
double cgroup_quota() {
  double least = 1e9;
  if (const File groups{std::fopen("/proc/self/cgroup", "re")}) {
    char line[4096];
    while (std::fgets(line, sizeof(line), groups.get())) {
      std::string path(line);
      if (path.rfind("0::", 0) != 0) continue;
      path = path.substr(3, path.find_last_not_of('\n') - 2);
      while (true) {
        least = std::min(least, quota_in("/sys/fs/cgroup" + path + "/cpu.max"));
        const auto slash = path.find_last_of('/');
        if (slash == std::string::npos) break;
        path.resize(slash);
      }
    }
  }
  // Version 1 keeps the two numbers in two files.
  const File quota_file(std::fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re"));
  const File period_file(std::fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re"));
  double quota = -1.0, period = 0.0;
  if (quota_file && period_file && std::fscanf(quota_file.get(), "%lf", &quota) == 1 &&
      std::fscanf(period_file.get(), "%lf", &period) == 1 && quota > 0.0 && period > 0.0)
    least = std::min(least, quota / period);
  return least;
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  int cores = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    cores = CPU_COUNT(&set);
  else
    cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const double quota = std::ceil(cgroup_quota());
  if (quota < cores) cores = static_cast<int>(quota);
  return std::max(cores, 1);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds most,
                bool shared) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec limit{static_cast<time_t>(seconds.count()),
                       static_cast<long>((most - seconds).count())};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
          shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int count, bool shared) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
          shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

SpinBudget::SpinBudget() : limit_(available_cores() - 1) {
  // A thread that spun in the parent does not exist in a forked child, and never returns its licence there.
  pthread_atfork(nullptr, nullptr, [] { instance().spinning_.store(0, std::memory_order_relaxed); });
}

SpinBudget& SpinBudget::instance() {
  static SpinBudget budget;
  return budget;
}

void yield_core() { sched_yield(); }

}  // namespace stepmill
