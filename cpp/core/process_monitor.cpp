// The monitor of a process pool: a thread that sees workers end and deadlines pass, outside of the
// interpreter lock, and answers for envs that cannot answer for themselves.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/process_pool.h"

namespace stepmill {
namespace {

// How long to wait for word of how a process ended, and for its stack.
constexpr int kObituaryMs = 500, kStackMs = 500, kMoreStackMs = 50, kWholeStackMs = 2000;
// A worker that does not go on for less than this may only have found no core.
constexpr std::uint64_t kStandstill = 1'000'000'000;

void send_signal(int pidfd, int number) {
  if (pidfd >= 0) (void)syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0);
}

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

std::string seconds(std::uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(ns) * 1e-9);
  return text;
}

}  // namespace

void ProcessPool::wake_monitor() {
  const std::uint64_t one = 1;
  (void)!write(event_, &one, sizeof one);
}

void ProcessPool::kill() {
  const Lock lock(mutex_);
  kill_all();
}

void ProcessPool::kill_all() {
  for (const Crew& crew : crews_) {
    send_signal(crew.life.pidfd, SIGKILL);
    for (const Life& life : crew.leaving) send_signal(life.pidfd, SIGKILL);
  }
}

// ---- watching ----------------------------------------------------------------------------------

void ProcessPool::watch() {
  struct Watched {
    std::size_t worker;
    std::uint32_t life;
  };
  std::vector<pollfd> polled;
  std::vector<Watched> who;
  for (;;) {
    int timeout = -1;
    {
      Lock lock(mutex_);
      if (quit_) return;
      end_broken();
      if (const std::uint64_t next = check_deadlines(lock); next != 0)
        timeout = static_cast<int>(std::min<std::uint64_t>(next / 1'000'000 + 1, 3'600'000));
      polled.assign({{event_, POLLIN, 0}, {parent_writes_ ? obituaries_ : -1, POLLIN, 0}});
      who.clear();
      for (std::size_t w = 0; w < crews_.size(); ++w) {
        const auto add = [&](const Life& life) {
          if (life.pidfd < 0) return;
          polled.push_back({life.pidfd, POLLIN, 0});
          who.push_back({w, life.number});
        };
        add(crews_[w].life);
        for (const Life& life : crews_[w].leaving) add(life);
      }
    }
    if (poll(polled.data(), polled.size(), timeout) < 0) continue;
    std::uint64_t drained;
    (void)!read(event_, &drained, sizeof drained);
    Lock lock(mutex_);
    if (polled[1].revents & POLLIN) read_obituaries();
    else if (polled[1].revents != 0) parent_writes_ = false;  // it is gone
    for (std::size_t i = 0; i < who.size(); ++i)
      if (polled[i + 2].revents != 0) life_ended(lock, who[i].worker, who[i].life);
    if (all_ended()) ended_.notify_all();
  }
}

// Workers whose memory was found to be broken.
void ProcessPool::end_broken() {
  for (Crew& crew : crews_) {
    if (!crew.broken) continue;
    const Fault reason = *std::exchange(crew.broken, std::nullopt);
    if (crew.life.number == 0) continue;
    send_signal(crew.life.pidfd, SIGKILL);
    retire(crew, reason);
  }
}

void ProcessPool::read_obituaries() {
  std::array<std::int32_t, 3> one;  // worker, incarnation, exit code or minus the signal
  pollfd more{obituaries_, POLLIN, 0};
  while (poll(&more, 1, 0) == 1 && (more.revents & POLLIN)) {
    if (read(obituaries_, one.data(), sizeof one) != static_cast<ssize_t>(sizeof one)) return;
    if (one[0] < 0) {  // who starts the workers is gone, and took those along that there are: no more will come
      const auto note_end = [](Life& life) {
        pollfd its{life.pidfd, POLLIN, 0};
        if (life.pidfd >= 0 && !life.code && poll(&its, 1, 0) == 1) life.code = -SIGKILL;
      };
      for (Crew& crew : crews_) {
        note_end(crew.life);
        for (Life& life : crew.leaving) note_end(life);
      }
      continue;
    }
    if (one[0] >= process_.num_workers) continue;
    Crew& crew = crews_[static_cast<std::size_t>(one[0])];
    const auto number = static_cast<std::uint32_t>(one[1]) & 0xffffff;
    bool known = crew.life.number == number;
    if (known) crew.life.code = one[2];
    for (Life& life : crew.leaving)
      if (life.number == number) life.code = one[2], known = true;
    if (!known && number >= (crew.next & 0xffffff)) early_[{one[0], number}] = one[2];
  }
}

// How it ended comes another way, from who was its parent, perhaps a little later.
void ProcessPool::await_obituary(Lock& lock, std::uint32_t worker, std::uint32_t number) {
  const auto known = [&] {
    const Crew& crew = crews_[worker];
    if (crew.life.number == number) return crew.life.code.has_value();
    return std::any_of(crew.leaving.begin(), crew.leaving.end(),
                       [&](const Life& life) { return life.number == number && life.code; });
  };
  const auto end = monotonic_ns() + kObituaryMs * std::uint64_t{1'000'000};
  while (!known() && parent_writes_ && !quit_) {
    const std::uint64_t now = monotonic_ns();
    if (now >= end) return;
    pollfd one{obituaries_, POLLIN, 0};
    lock.unlock();
    poll(&one, 1, static_cast<int>((end - now) / 1'000'000) + 1);
    lock.lock();
    if (!(one.revents & POLLIN)) return;
    read_obituaries();
  }
}

// A process is seen to have ended: whatever it was about to write, it never will.
void ProcessPool::life_ended(Lock& lock, std::size_t worker, std::uint32_t number) {
  await_obituary(lock, static_cast<std::uint32_t>(worker), number);
  Crew& crew = crews_[worker];
  if (crew.life.number == number) retire(crew, why_ended(crew, crew.life));
  const auto found = std::find_if(crew.leaving.begin(), crew.leaving.end(),
                                  [&](const Life& life) { return life.number == number; });
  if (found == crew.leaving.end()) return;
  bury(crew, *found);
  ::close(found->pidfd);
  ::close(found->stack);
  crew.leaving.erase(found);
}

// Kept once it was seen. An env that got further than its queue shows it, too.
bool ProcessPool::has_started(const Crew& crew, const Life& life) const {
  if (life.started || life.number == 0) return life.started;
  life.started = checks_.has_announced(worker_of(crew.first), life.number);
  for (std::int32_t env = crew.first; env < crew.first + crew.count && !life.started; ++env)
    if (asked(env).incarnation == life.number)
      if (const auto now = checks_.word(env, asked(env))) life.started = now->stage != Stage::kQueued;
  return life.started;
}

Fault ProcessPool::why_ended(const Crew& crew, const Life& life) const {
  Fault fault;
  fault.kind = Fault::kDied;
  const bool started = has_started(crew, life);
  fault.phase = started ? SM_IN_STEP : SM_IN_CONSTRUCTOR;
  std::string how = "ended";
  if (life.code) {
    if (*life.code >= 0) {
      how = "exited with code " + std::to_string(*life.code);
    } else {
      const char* name = sigabbrev_np(-*life.code);
      how = "was killed by " + (name ? "SIG" + std::string(name) : "signal " + std::to_string(-*life.code));
      if (*life.code == -SIGKILL) how += " (by somebody, or for want of memory)";
    }
  }
  fault.message = "its worker process (pid " + std::to_string(life.pid) + ") " + how +
                  (started ? "" : " while it was starting");
  return fault;
}

// ---- deadlines ---------------------------------------------------------------------------------

// Nanoseconds until there may be something to look at; 0: never, unless something happens.
std::uint64_t ProcessPool::check_deadlines(Lock& lock) {
  std::uint64_t next = 0;
  const auto look_in = [&](std::uint64_t ns) { next = next == 0 ? std::max<std::uint64_t>(ns, 1) : std::min(next, std::max<std::uint64_t>(ns, 1)); };
  for (std::size_t w = 0; w < crews_.size(); ++w) {
    Crew& crew = crews_[w];
    if (crew.life.number == 0 || crew.life.start_deadline == 0 || stopping_) continue;
    if (has_started(crew, crew.life)) {
      crew.life.start_deadline = 0;
    } else if (const std::uint64_t now = monotonic_ns(); now >= crew.life.start_deadline) {
      miss_start(lock, w);
    } else {
      look_in(crew.life.start_deadline - now);
    }
  }
  if (deadlines_.step == 0 && deadlines_.reset == 0) return next;
  for (std::int32_t env = 0; env < num_envs(); ++env) {
    if (asked(env).incarnation == 0 || asked(env).incarnation != crew_of(env).life.number) continue;
    if (!is_awaited(env)) {
      if (!checks_.is_idle(env, asked(env))) found_broken(env, "the state of an idle env");
      continue;
    }
    const auto now = checks_.word(env, asked(env));
    const auto run = now && now->stage == Stage::kRunning ? checks_.run(env, asked(env)) : std::nullopt;
    if (!now || (now->stage == Stage::kRunning && !run)) {
      found_broken(env, now ? "since when an env runs" : "the state of an env");  // the next round ends it
      continue;
    }
    if (!run) continue;
    // Where it makes a difference, what the pool has asked for counts, and not what the worker says that it does.
    const bool says_reset = run->activity == Activity::kReset || run->activity == Activity::kResetAfterEnd;
    const bool was_asked = deadlines_.step == deadlines_.reset ? says_reset : asked(env).is_reset;
    const bool resets = !asked(env).is_call && (was_asked || run->activity == Activity::kResetAfterEnd);
    const std::uint64_t limit = resets ? deadlines_.reset : deadlines_.step;
    if (limit == 0) continue;
    const std::uint64_t spent = monotonic_ns() - run->since;
    if (spent >= limit)
      miss_step(lock, env, *now, resets, limit);
    else
      look_in(limit - spent);
  }
  for (std::size_t w = 0; w < crews_.size(); ++w)
    look_in(check_standstill(lock, w, std::max({deadlines_.step, deadlines_.reset, kStandstill})));
  // What begins after this look cannot be late before then.
  for (const std::uint64_t limit : {deadlines_.step, deadlines_.reset})
    if (limit != 0) look_in(limit);
  return next;
}

void ProcessPool::miss_step(Lock& lock, std::int32_t env, EnvWord seen, bool reset, std::uint64_t limit) {
  std::uint64_t expected = seen.pack();
  if (!tables_.word(env).compare_exchange_strong(expected, seen.at(Stage::kFault).pack(), std::memory_order_seq_cst))
    return;  // it was done in the last instant
  asked(env).given_up = true;
  Crew& crew = crew_of(env);
  const std::string stack = read_stack(lock, crew.life);
  send_signal(crew.life.pidfd, SIGKILL);
  Fault fault;
  fault.kind = Fault::kLate;
  fault.phase = reset ? SM_IN_RESET : SM_IN_STEP;
  fault.message = (reset ? "it ran longer than reset_timeout=" : "it ran longer than step_timeout=") + seconds(limit) +
                  " s" + stack;
  answer(env, seen, fault, std::nullopt);
  Fault others;
  others.kind = Fault::kDied;
  others.phase = SM_IN_STEP;
  others.message = "its worker process (pid " + std::to_string(crew.life.pid) + ") was ended because env " +
                   std::to_string(env) + ", which it also ran, missed its deadline";
  retire(crew, others);
}

// A worker that has something to do, runs no env's code and does not go on is stuck itself: stopped, as a
// rule. So is one that is seen to write the same row for so long. Returns when to look again.
std::uint64_t ProcessPool::check_standstill(Lock& lock, std::size_t worker, std::uint64_t limit) {
  Crew& crew = crews_[worker];
  const std::uint64_t now = monotonic_ns();
  std::uint64_t sight = 0, longest = 0;
  bool waits = false, runs = false;
  for (std::int32_t env = crew.first; env < crew.first + crew.count; ++env) {
    const auto its = checks_.word(env, asked(env));
    if (!its || crew.life.number == 0 || its->incarnation != crew.life.number) continue;
    sight = sight * 31 + its->pack();
    runs |= its->stage == Stage::kRunning;
    waits |= its->stage == Stage::kQueued || its->stage == Stage::kWriting || its->stage == Stage::kDone;
    Sight& last = sights_[static_cast<std::size_t>(env)];
    if (last.word != its->pack()) last = {its->pack(), now};
    if (its->stage == Stage::kWriting || its->stage == Stage::kDone) longest = std::max(longest, now - last.since);
  }
  if (!waits || runs || sight != crew.seen || !has_started(crew, crew.life)) {
    crew.seen = sight;
    crew.seen_at = now;
  }
  longest = std::max(longest, now - crew.seen_at);
  if (longest < limit) return limit - longest;
  const std::string stack = read_stack(lock, crew.life);
  send_signal(crew.life.pidfd, SIGKILL);
  Fault fault;
  fault.kind = Fault::kLate;
  fault.phase = SM_IN_STEP;
  fault.message = "its worker process (pid " + std::to_string(crew.life.pid) + ") has done nothing for " +
                  seconds(limit) + " s, though it had something to do" + stack;
  retire(crew, fault);
  return limit;
}

void ProcessPool::miss_start(Lock& lock, std::size_t worker) {
  Crew& crew = crews_[worker];
  const std::string stack = read_stack(lock, crew.life);
  send_signal(crew.life.pidfd, SIGKILL);
  Fault fault;
  fault.kind = Fault::kLate;
  fault.phase = SM_IN_CONSTRUCTOR;
  fault.message = "its worker process (pid " + std::to_string(crew.life.pid) +
                  ") did not build its envs within start_timeout" + stack;
  retire(crew, fault);
}

// Where the process is stuck, in its own words. Without the lock: nobody else ends lives.
std::string ProcessPool::read_stack(Lock& lock, const Life& life) {
  const int pidfd = life.pidfd, pipe = life.stack, pid = life.pid;
  const std::uint64_t end = monotonic_ns() + kWholeStackMs * std::uint64_t{1'000'000};
  lock.unlock();
  std::string text;
  const char state = state_of(pid);
  if (state == 'T' || state == 't') {
    text = ". Its process is stopped (SIGSTOP, or a debugger), so it can show no stack";
  } else {
    send_signal(pidfd, SIGRTMAX - 3);  // faulthandler writes the stacks of all threads
    pollfd one{pipe, POLLIN, 0};
    int patience = kStackMs;
    while (text.size() < 64 * 1024 && monotonic_ns() < end && poll(&one, 1, patience) == 1 && (one.revents & POLLIN)) {
      char some[4096];
      const ssize_t count = read(pipe, some, sizeof some);
      if (count <= 0) break;
      text.append(some, static_cast<std::size_t>(count));
      patience = kMoreStackMs;
    }
    text = text.empty() ? std::string(". Its process (state ") + state + ") showed no stack" : ". It was here:\n" + text;
  }
  lock.lock();
  return text;
}

}  // namespace stepmill
