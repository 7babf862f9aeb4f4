#include "core/process/process_monitor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace stepmill {
namespace {

// How long to wait for the stack of a process.
constexpr int kStackMs = 500, kMoreStackMs = 50, kWholeStackMs = 2000;
// A worker that makes no progress for less time than this may just have had no core.
constexpr std::uint64_t kStandstill = 1'000'000'000;
// Envs that are slow at the same time are usually slow for the same reason: so many stacks show it.
constexpr int kSlowStacks = 2;
// How often a loop with work is asked whether it is alive, and when it should have answered.
constexpr std::uint64_t kPulse = 500'000'000, kBlocked = 1'000'000'000;

// The letter that the kernel gives to the state of a process: T is stopped, D waits for a device.
char state_of(int pid) {
  char path[64], text[512] = "";
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return '?';
  const ssize_t count = read(file, text, sizeof text - 1);
  ::close(file);
  const char* after_name = count > 0 ? std::strrchr(text, ')') : nullptr;
  return after_name && after_name[1] ? after_name[2] : '?';
}

bool is_reset(Activity activity) { return activity == Activity::kReset || activity == Activity::kResetAfterEnd; }

std::string seconds(std::uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(ns) * 1e-9);
  return text;
}

}  // namespace

ProcessMonitor::ProcessMonitor(ProcessBooks& books, const ProcessTables& tables, const ProcessChecks& checks,
                               const WorkerBells& bells, const ProcessOptions& process, const Deadlines& deadlines,
                               std::int32_t num_envs)
    : books_(books),
      tables_(tables),
      checks_(checks),
      bells_(bells),
      has_loops_(process.has_loops()),
      deadlines_(deadlines),
      num_envs_(num_envs),
      reported_(static_cast<std::size_t>(num_envs)),
      pulses_(static_cast<std::size_t>(process.num_workers)),
      thread_([this] { watch(); }) {}

ProcessMonitor::~ProcessMonitor() {
  {
    const Lock lock(books_.mutex);
    quit_ = true;
  }
  books_.wake_monitor();
  thread_.join();
}

void ProcessMonitor::wait_all_ended(std::chrono::nanoseconds most) {
  Lock lock(books_.mutex);
  ended_.wait_for(lock, most, [this] { return books_.roster.all_ended(); });
}

// The monitor does it: only it ends lives, see `worker_roster.h`.
void ProcessMonitor::replace(Lock& lock, std::int32_t worker) {
  books_.roster.condemn(worker, {.phase = SM_IN_STEP,
                                 .message = "its worker process was ended, because a saved one takes its place",
                                 .kind = Fault::kDied});
  books_.wake_monitor();
  ended_.wait(lock, [&] { return books_.roster.crew(worker).life.number == 0; });
}

// ---- watching ----------------------------------------------------------------------------------

void ProcessMonitor::watch() {
  struct Watched {
    std::int32_t worker;
    std::uint32_t life;
  };
  std::vector<pollfd> polled;
  std::vector<Watched> who;
  for (;;) {
    int timeout = -1;
    {
      Lock lock(books_.mutex);
      if (quit_) return;
      end_broken();
      if (const std::uint64_t next = check_deadlines(lock); next != 0)
        timeout = static_cast<int>(std::min<std::uint64_t>(next / 1'000'000 + 1, 3'600'000));
      polled.assign({{books_.monitor_event(), POLLIN, 0}, {books_.roster.obituaries(), POLLIN, 0}});
      who.clear();
      for (std::int32_t w = 0; w < books_.roster.num_workers(); ++w) {
        const auto add = [&](const Life& life) {
          if (life.pidfd.get() < 0) return;
          polled.push_back({life.pidfd.get(), POLLIN, 0});
          who.push_back({w, life.number});
        };
        add(books_.roster.crew(w).life);
        for (const Life& life : books_.roster.crew(w).leaving) add(life);
      }
    }
    if (poll(polled.data(), polled.size(), timeout) < 0) continue;
    std::uint64_t drained;
    (void)!read(books_.monitor_event(), &drained, sizeof drained);
    Lock lock(books_.mutex);
    books_.roster.read_obituaries(polled[1].revents);
    for (std::size_t i = 0; i < who.size(); ++i)
      if (polled[i + 2].revents != 0) life_ended(lock, who[i].worker, who[i].life);
    ended_.notify_all();
  }
}

// Workers whose memory was found to be broken.
void ProcessMonitor::end_broken() {
  for (std::int32_t w = 0; w < books_.roster.num_workers(); ++w) {
    const std::optional<Fault> reason = books_.roster.take_condemned(w);
    if (!reason || books_.roster.crew(w).life.number == 0) continue;
    books_.roster.crew(w).life.signal(SIGKILL);
    books_.retire(w, *reason);
    ended_.notify_all();
  }
}

// A process has ended: it will never write what it was about to write.
void ProcessMonitor::life_ended(Lock& lock, std::int32_t worker, std::uint32_t number) {
  books_.roster.await_obituary(lock, worker, number, quit_);
  if (books_.roster.crew(worker).life.number == number) books_.retire(worker, books_.roster.why_ended(worker));
  if (books_.roster.crew(worker).find(number)) books_.bury(worker, number);
}

// ---- deadlines ---------------------------------------------------------------------------------

// Nanoseconds until there may be something to do; 0: never, unless something happens.
std::uint64_t ProcessMonitor::check_deadlines(Lock& lock) {
  std::uint64_t next = 0;
  const auto look_in = [&](std::uint64_t ns) {
    if (ns != 0) next = next == 0 ? ns : std::min(next, ns);
  };
  for (std::int32_t w = 0; w < books_.roster.num_workers() && !books_.stopping; ++w) look_in(check_start(lock, w));
  look_in(report_slow(lock));
  if (has_loops_) look_in(check_loops(lock));
  if (deadlines_.step == 0 && deadlines_.reset == 0) return next;
  for (std::int32_t env = 0; env < num_envs_; ++env) look_in(check_env(lock, env));
  for (std::int32_t w = 0; w < books_.roster.num_workers(); ++w)
    look_in(check_standstill(lock, w, std::max({deadlines_.step, deadlines_.reset, kStandstill})));
  // What starts after this look cannot be late before then.
  look_in(deadlines_.step);
  look_in(deadlines_.reset);
  return next;
}

// These return when to look again, in nanoseconds; 0: no need to.

std::uint64_t ProcessMonitor::check_start(Lock& lock, std::int32_t worker) {
  const std::uint64_t deadline = books_.roster.start_deadline(worker);
  const std::uint64_t now = monotonic_ns();
  if (deadline == 0 || now < deadline) return deadline == 0 ? 0 : deadline - now;
  const Life& life = books_.roster.crew(worker).life;
  const std::string stack = read_stack(lock, life);
  life.signal(SIGKILL);
  books_.retire(worker, {.phase = SM_IN_CONSTRUCTOR,
                         .message = "its worker process (pid " + std::to_string(life.pid) +
                                    ") did not build its envs within start_timeout" + stack,
                         .kind = Fault::kLate});
  return 0;
}

std::uint64_t ProcessMonitor::check_env(Lock& lock, std::int32_t env) {
  const Asked& its = books_.asked(env);
  if (its.incarnation == 0 || its.incarnation != books_.roster.crew_of(env).life.number) return 0;
  if (!books_.is_awaited(env)) {
    if (!checks_.is_idle(env, its)) books_.found_broken(env, "the state of an idle env");
    return 0;
  }
  const auto now = checks_.word(env, its);
  const auto run = now && now->stage == Stage::kRunning ? checks_.run(env, its) : std::nullopt;
  if (!now || (now->stage == Stage::kRunning && !run)) {
    books_.found_broken(env, now ? "since when an env runs" : "the state of an env");  // the next round ends it
    return 0;
  }
  if (!run) return 0;
  // If it makes a difference, what the pool has asked for counts, and not what the worker says it does.
  const bool says_reset = is_reset(run->activity);
  const bool was_asked = deadlines_.step == deadlines_.reset ? says_reset : its.is_reset;
  const bool resets = !its.is_call && (was_asked || run->activity == Activity::kResetAfterEnd);
  const std::uint64_t limit = resets ? deadlines_.reset : deadlines_.step;
  if (limit == 0) return 0;
  const std::uint64_t spent = monotonic_ns() - run->since;
  if (spent < limit + deadlines_.grace) return limit + deadlines_.grace - spent;
  if (!blame_blocker(lock, env)) miss_step(lock, env, *now, resets, limit);
  return 0;
}

// An env may be late because another one does not let the loop come around: then it is that one's fault.
bool ProcessMonitor::blame_blocker(Lock& lock, std::int32_t late) {
  const std::int32_t worker = books_.roster.worker_of(late);
  const Pulse& pulse = pulses_[static_cast<std::size_t>(worker)];
  const Life& life = books_.roster.crew(worker).life;
  if (!has_loops_ || pulse.life != life.number || checks_.said_alive(worker, pulse.number)) return false;
  const std::int32_t env = checks_.runs(worker);
  if (env < 0 || env == late || books_.roster.worker_of(env) != worker || !books_.is_awaited(env)) return false;
  const auto now = checks_.word(env, books_.asked(env));
  if (!now || now->stage != Stage::kRunning) return false;
  give_up(lock, env, *now, SM_IN_STEP,
          "it has blocked the event loop of its worker, so that env " + std::to_string(late) + " missed its deadline",
          "blocked its event loop");
  return true;
}

void ProcessMonitor::miss_step(Lock& lock, std::int32_t env, EnvWord seen, bool reset, std::uint64_t limit) {
  const char* const setting = reset ? "reset_timeout=" : "step_timeout=";
  give_up(lock, env, seen, reset ? SM_IN_RESET : SM_IN_STEP,
          std::string("it ran longer than ") + setting + seconds(limit) + " s" +
              (deadlines_.grace ? ", and did not end when it was cancelled" : ""),
          "missed its deadline");
}

// Ends the worker of an env because of what that did.
void ProcessMonitor::give_up(Lock& lock, std::int32_t env, EnvWord seen, int phase, const std::string& what,
                             const char* fault) {
  std::uint64_t expected = seen.pack();
  if (!tables_.word(env).compare_exchange_strong(expected, seen.at(Stage::kFault).pack(), std::memory_order_seq_cst))
    return;  // it finished at the last moment
  books_.asked(env).given_up = true;
  const Life& life = books_.roster.crew_of(env).life;
  const std::string stack = read_stack(lock, life);
  life.signal(SIGKILL);
  books_.answer(env, seen, {.phase = phase, .message = what + stack, .kind = Fault::kLate});
  // The other envs that it ran.
  books_.retire(books_.roster.worker_of(env),
                {.phase = SM_IN_STEP,
                 .message = "its worker process (pid " + std::to_string(life.pid) + ") was ended because env " +
                            std::to_string(env) + ", which it also ran, " + fault,
                 .kind = Fault::kDied});
}

// ---- envs without a deadline ---------------------------------------------------------------------

// The caller shows what this reports. An env is reported once, however often it is slow.
std::uint64_t ProcessMonitor::report_slow(Lock& lock) {
  if (deadlines_.slow == 0 || books_.stopping) return 0;
  std::uint64_t next = deadlines_.slow;  // what starts after this look is not slow before then
  std::string text;
  int count = 0;
  for (std::int32_t env = 0; env < num_envs_ && !quit_; ++env) {
    if (!is_slow(env, next)) continue;
    reported_[static_cast<std::size_t>(env)] = 1;
    if (!text.empty()) text += '\n';
    text += describe_slow(lock, env, count++ < kSlowStacks);
  }
  if (!text.empty()) books_.add_news(std::move(text));
  return next;
}

// Whether an env without a deadline runs for that long. If not yet, `next` says when to look again, at the latest.
bool ProcessMonitor::is_slow(std::int32_t env, std::uint64_t& next) const {
  const Asked& its = books_.asked(env);
  if (reported_[static_cast<std::size_t>(env)] || its.incarnation == 0 || !books_.is_awaited(env)) return false;
  if (its.incarnation != books_.roster.crew_of(env).life.number) return false;
  const auto word = checks_.word(env, its);
  const auto run = word && word->stage == Stage::kRunning ? checks_.run(env, its) : std::nullopt;
  if (!run || (is_reset(run->activity) ? deadlines_.reset : deadlines_.step) != 0) return false;
  const std::uint64_t spent = monotonic_ns() - run->since;
  if (spent < deadlines_.slow) next = std::min(next, deadlines_.slow - spent);
  return spent >= deadlines_.slow;
}

std::string ProcessMonitor::describe_slow(Lock& lock, std::int32_t env, bool with_stack) {
  const Activity activity = checks_.activity(env);
  const char* const phase = activity == Activity::kCall ? "a call" : is_reset(activity) ? "reset" : "step";
  const Life& life = books_.roster.crew_of(env).life;
  return "env " + std::to_string(env) + " has been in " + phase + " for " + seconds(deadlines_.slow) + " s, and no " +
         (is_reset(activity) ? "reset_timeout" : "step_timeout") + " ends it. It runs in worker " +
         std::to_string(books_.roster.worker_of(env)) + " (pid " + std::to_string(life.pid) + ")" +
         (with_stack ? read_stack(lock, life) : "");
}

// ---- event loops that are blocked ----------------------------------------------------------------

std::uint64_t ProcessMonitor::check_loops(Lock& lock) {
  std::uint64_t next = 0;
  rests_.store(false, std::memory_order_relaxed);
  const auto look = [&] {
    for (std::int32_t w = 0; w < books_.roster.num_workers() && !books_.stopping; ++w) {
      const std::uint64_t its = check_pulse(lock, w);
      if (its != 0) next = next == 0 ? its : std::min(next, its);
    }
  };
  look();
  if (next != 0) return next;
  rests_.store(true, std::memory_order_seq_cst);
  look();  // what was queued before the store is seen here, and whoever queues after it sees the store
  if (next != 0) rests_.store(false, std::memory_order_seq_cst);
  return next;
}

// A loop answers when it comes around, unless the code of an env holds it up.
std::uint64_t ProcessMonitor::check_pulse(Lock& lock, std::int32_t worker) {
  Pulse& pulse = pulses_[static_cast<std::size_t>(worker)];
  const std::uint32_t life = books_.roster.crew(worker).life.number;
  if (life == 0 || !checks_.has_announced(worker, life) || !has_work(worker)) {
    pulse.life = 0;
    return 0;
  }
  const std::uint64_t now = monotonic_ns();
  const bool is_first = pulse.life != life;
  if (!is_first && !checks_.said_alive(worker, pulse.number)) {
    if (pulse.is_told) return kPulse;
    if (now - pulse.at < kBlocked) return kBlocked - (now - pulse.at);
    pulse.is_told = true;
    books_.add_news(describe_blocked(lock, worker));
    return kPulse;
  }
  if (!is_first && now - pulse.at < kPulse) return kPulse - (now - pulse.at);
  pulse = {life, bells_.ask_alive(worker), now, false};
  return kPulse;
}

bool ProcessMonitor::has_work(std::int32_t worker) {
  const WorkerRoster::Crew& crew = books_.roster.crew(worker);
  for (std::int32_t env = crew.first; env < crew.end(); ++env)
    if (books_.is_awaited(env) && !checks_.is_idle(env, books_.asked(env))) return true;
  return false;
}

std::string ProcessMonitor::describe_blocked(Lock& lock, std::int32_t worker) {
  const Life& life = books_.roster.crew(worker).life;
  const std::int32_t env = checks_.runs(worker);
  const std::string loop = "the event loop of worker " + std::to_string(worker) + " (pid " + std::to_string(life.pid) + ")";
  const char state = state_of(life.pid);
  if (state == 'T' || state == 't') return loop + " has done nothing for " + seconds(kBlocked) + " s" + read_stack(lock, life);
  return (env < 0 ? std::string("code of an env") : "env " + std::to_string(env)) + " has blocked " + loop + " for " +
         seconds(kBlocked) +
         " s, and the other envs of this worker with it: call what takes long with `await asyncio.to_thread(...)`" +
         read_stack(lock, life);
}

// ---- workers that stand still --------------------------------------------------------------------

// A worker that has work, runs no env's code and makes no progress is stuck itself: usually it was stopped. So is one
// that writes the same row for so long.
std::uint64_t ProcessMonitor::check_standstill(Lock& lock, std::int32_t worker, std::uint64_t limit) {
  const std::uint64_t still = books_.roster.stands_still_for(worker);
  if (still < limit) return limit - still;
  const Life& life = books_.roster.crew(worker).life;
  const std::string stack = read_stack(lock, life);
  life.signal(SIGKILL);
  books_.retire(worker, {.phase = SM_IN_STEP,
                         .message = "its worker process (pid " + std::to_string(life.pid) + ") has done nothing for " +
                                    seconds(limit) + " s, though it had something to do" + stack,
                         .kind = Fault::kLate});
  return limit;
}

// Where the process is stuck: its Python stack. Without the lock: no other thread ends lives.
std::string ProcessMonitor::read_stack(Lock& lock, const Life& life) {
  const int pipe = life.stack.get(), pid = life.pid;
  const std::uint64_t end = monotonic_ns() + kWholeStackMs * std::uint64_t{1'000'000};
  lock.unlock();
  std::string text;
  const char state = state_of(pid);
  if (state == 'T' || state == 't') {
    text = ". Its process is stopped (SIGSTOP, or a debugger), so it can show no stack";
  } else {
    life.signal(SIGRTMAX - 3);  // faulthandler writes the stacks of all threads
    pollfd one{pipe, POLLIN, 0};
    int wait_ms = kStackMs;
    while (text.size() < 64 * 1024 && monotonic_ns() < end && poll(&one, 1, wait_ms) == 1 && (one.revents & POLLIN)) {
      char some[4096];
      const ssize_t count = read(pipe, some, sizeof some);
      if (count <= 0) break;
      text.append(some, static_cast<std::size_t>(count));
      wait_ms = kMoreStackMs;
    }
    text = text.empty() ? std::string(". Its process (state ") + state + ") showed no stack"
                        : ". It was here:\n" + text;
  }
  lock.lock();
  return text;
}

}  // namespace stepmill
