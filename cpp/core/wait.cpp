#include "core/wait.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

namespace stepmill {
namespace {

// The quota of this cgroup in cores, or a very large number. Reads the limit of the innermost
// cgroup that sets one (v2), or the v1 pair of files.
double cgroup_quota() {
  double least = 1e9;
  const auto take = [&](const std::string& path) {
    std::ifstream file(path);
    std::string quota;
    double period = 0.0;
    if (file >> quota >> period && quota != "max" && period > 0.0)
      least = std::min(least, std::stod(quota) / period);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string path = line.substr(3);
    while (true) {
      take("/sys/fs/cgroup" + path + "/cpu.max");
      const auto slash = path.find_last_of('/');
      if (slash == std::string::npos || path.empty()) break;
      path.resize(slash);
    }
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = -1.0, period = 0.0;
  if (quota_file >> quota && period_file >> period && quota > 0.0 && period > 0.0)
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
  // Who spun in the parent does not exist in a forked child, and gives no licence back there.
  pthread_atfork(nullptr, nullptr, [] { instance().spinning_.store(0, std::memory_order_relaxed); });
}

SpinBudget& SpinBudget::instance() {
  static SpinBudget budget;
  return budget;
}

}  // namespace stepmill
