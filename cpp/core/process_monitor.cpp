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

#include "core/process_pool.h"

namespace stepmill {
namespace {

// How long to wait for word of how a process ended, and for its stack.
constexpr int kObituaryMs = 500, kStackMs = 500, kMoreStackMs = 50;

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

// A different seed for an env that is built anew: the same one would play the same episodes again.
std::uint64_t next_seed(std::uint64_t seed, std::uint32_t life) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (life + std::uint64_t{1});
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) >> 1;  // below 2^63, as seeds are
}

}  // namespace

void ProcessPool::wake_monitor() {
  const std::uint64_t one = 1;
  (void)!write(event_, &one, sizeof one);
}

void ProcessPool::kill() {
  const Lock lock(mutex_);
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

void ProcessPool::read_obituaries() {
  std::array<std::int32_t, 3> one;  // worker, incarnation, exit code or minus the signal
  pollfd more{obituaries_, POLLIN, 0};
  while (poll(&more, 1, 0) == 1 && (more.revents & POLLIN)) {
    if (read(obituaries_, one.data(), sizeof one) != static_cast<ssize_t>(sizeof one)) return;
    if (one[0] < 0) {  // who starts the workers is gone, and took those along that there are: no more will come
      for (Crew& crew : crews_) {
        if (crew.life.number != 0 && !crew.life.code) crew.life.code = -SIGKILL;
        for (Life& life : crew.leaving)
          if (!life.code) life.code = -SIGKILL;
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

bool ProcessPool::has_started(const Crew& crew, const Life& life) const {
  return tables_.worker(worker_of(crew.first)).ready.load(std::memory_order_acquire) == life.number;
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

// ---- giving up ---------------------------------------------------------------------------------

void ProcessPool::retire(Crew& crew, const Fault& reason) {
  const std::uint32_t number = crew.life.number;
  const bool started = has_started(crew, crew.life);
  save_notes(crew, number);
  crew.loss = reason;
  crew.leaving.push_back(std::move(crew.life));
  crew.life = Life{};
  for (std::int32_t env = crew.first; env < crew.first + crew.count; ++env) give_up(env, number, reason);
  // One that could not even start is tried again when there is something for it to do.
  crew.wanted = started && !stopping_;
  look_whom_to_start();
}

// Answers for an env that waits for, or is run by, that life of its worker.
void ProcessPool::give_up(std::int32_t env, std::uint32_t incarnation, const Fault& reason) {
  for (;;) {
    std::uint64_t seen = tables_.word(env).load(std::memory_order_seq_cst);
    const EnvWord now = EnvWord::unpack(seen);
    if (now.incarnation != incarnation || (now.stage != Stage::kQueued && now.stage != Stage::kRunning)) return;
    if (!tables_.word(env).compare_exchange_strong(seen, now.at(Stage::kFault).pack(), std::memory_order_seq_cst))
      continue;  // it went on meanwhile: look again
    Fault fault = reason;
    const auto activity = static_cast<Activity>(tables_.begun(env).load(std::memory_order_relaxed) & 3);
    if (fault.phase == SM_IN_STEP && now.stage == Stage::kRunning &&
        (activity == Activity::kReset || activity == Activity::kResetAfterEnd))
      fault.phase = SM_IN_RESET;
    answer(env, now, fault, std::nullopt);
    return;
  }
}

void ProcessPool::bury(Crew& crew, const Life& life) {
  const Fault reason = crew.loss;
  for (std::int32_t env = crew.first; env < crew.first + crew.count; ++env) {
    const EnvWord now = word(env);
    if (now.incarnation != life.number) continue;
    if (now.stage == Stage::kWriting) {
      const bool claims = tables_.order(env).kind == Order::kAct && !seats_[static_cast<std::size_t>(env)].buffer;
      answer(env, now, reason, claims ? find_slot(env, now.epoch) : std::nullopt);
    } else if (now.stage == Stage::kDone && flying_[static_cast<std::size_t>(env)]) {
      doubt(env);
    }
  }
  save_notes(crew, life.number);
  announce_rest(tables_.worker(worker_of(crew.first)));
}

// The row of an env is whole, but perhaps not counted.
void ProcessPool::doubt(std::int32_t env) {
  const Seat& seat = seats_[static_cast<std::size_t>(env)];
  Buffer* buffer = seat.buffer;
  if (!buffer) {
    const auto slot = find_slot(env, seat.epoch);
    if (!slot) return;
    buffer = ring_buffer(slot->number);
  }
  buffer->header->done.fetch_or(BatchHeader::kSuspect, std::memory_order_seq_cst);
  futex_wake(buffer->header->done, 1, true);
}

// What came with rows of that life that are not received yet, before its outbox goes.
void ProcessPool::save_notes(const Crew& crew, std::uint32_t incarnation) {
  for (std::int32_t env = crew.first; env < crew.first + crew.count; ++env) {
    const auto e = static_cast<std::size_t>(env);
    const EnvWord now = word(env);
    if (now.incarnation != incarnation || (now.stage != Stage::kDone && now.stage != Stage::kRest)) continue;
    const Report& report = tables_.report(env);
    const auto keep = [&](auto& saved, std::uint64_t offset, std::uint64_t bytes) {
      if (saved[e]) return;
      const auto found = read_outbox(env, offset, bytes);
      saved[e].emplace(found.begin(), found.end());
    };
    if (calling_[e]) keep(saved_calls_, report.call, report.call_bytes);
    else if (!answered_here_[e]) keep(saved_notes_, report.note, report.note_bytes);
  }
}

std::optional<SlotRing::Slot> ProcessPool::find_slot(std::int32_t env, std::uint32_t epoch) const {
  for (std::uint32_t place = 0; place < ring_.places(); ++place)
    for (std::int32_t row = 0; row < options_.batch_size; ++row) {
      const SlotRing::Owner owner = ring_.owner(place, static_cast<std::uint32_t>(row));
      if (owner.env == static_cast<std::uint32_t>(env) && owner.epoch == epoch)
        return SlotRing::Slot{place, static_cast<std::uint32_t>(row), 0};
    }
  return std::nullopt;
}

// In place of the worker. `from` is the word as it was; it is ours now.
void ProcessPool::answer(std::int32_t env, EnvWord from, const Fault& reason, std::optional<SlotRing::Slot> slot) {
  const auto e = static_cast<std::size_t>(env);
  if (!calling_[e]) {
    answer_row(env, from, reason, slot);
  } else {
    call_faults_[e] = reason;
    call_faults_[e]->env = env;
    call_faults_[e]->phase = SM_IN_CALL;
    tables_.word(env).store(from.at(Stage::kRest).pack(), std::memory_order_seq_cst);
  }
  announce_rest(tables_.worker(worker_of(env)));
}

void ProcessPool::answer_row(std::int32_t env, EnvWord from, const Fault& reason,
                             std::optional<SlotRing::Slot> slot) {
  const auto e = static_cast<std::size_t>(env);
  const Seat& seat = seats_[e];
  Buffer* buffer = seat.buffer;
  std::int64_t row = seat.row;
  if (!buffer) {
    if (!slot) slot = ring_.claim(static_cast<std::uint32_t>(env), from.epoch);
    buffer = ring_buffer(slot->number);
    row = slot->row;
  }
  const bool ended = keep_end(env, from, *buffer, row);
  if (!ended) fill_row(env, buffer->columns, row);
  sm_env_state& state = table_.state(env);
  state.phase = SM_ENDED;
  state.command = SM_STEP;
  if (state.failures < 255) state.failures += 1;
  reseed(env);
  Fault fault = reason;
  fault.env = env;
  fault.episode = state.episode;
  fault.step = state.elapsed;
  fault.failures = state.failures;
  faults_.push_back(std::move(fault));
  answered_here_[e] = 1;
  saved_notes_[e].reset();
  // At rest only when it is counted: a suspect batch goes by the words. No life: not lost once more.
  commit(*buffer->header, 1, ended, true);
  tables_.word(env).store(EnvWord{from.epoch, 0, Stage::kRest}.pack(), std::memory_order_seq_cst);
}

// An env that is built anew is seeded anew, unless a seed waits for its next reset.
void ProcessPool::reseed(std::int32_t env) {
  sm_reset_request& request = table_.reset_request(env);
  if (request.has_seed) return;
  request.seed = next_seed(seeds_[static_cast<std::size_t>(env)], crew_of(env).next);
  request.has_seed = 1;
}

// `same_step`, and the env failed in the reset after a good end: reward and end stand, the observation is
// the final one.
bool ProcessPool::keep_end(std::int32_t env, EnvWord from, Buffer& buffer, std::int64_t row) {
  const std::uint64_t begun = tables_.begun(env).load(std::memory_order_acquire);
  const bool ran = from.stage == Stage::kRunning || from.stage == Stage::kWriting;
  if (!ran || static_cast<Activity>(begun & 3) != Activity::kResetAfterEnd) return false;
  const BatchLayout single(spec_, 1, true, options_.table.reward_is_float32);
  const BatchLayout& layout = (seats_[static_cast<std::size_t>(env)].buffer ? gather_store_ : store_)->layout();
  single.copy_row(tables_.ending(env), 0, layout, arena_->at(buffer.offset), row);
  const Columns& columns = buffer.columns;
  for (std::size_t i = 0; i < spec_.observation.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(spec_.observation[i].row_bytes()) *
                       static_cast<std::size_t>(spec_.max_num_players);
    const std::size_t at = static_cast<std::size_t>(row) * bytes;
    std::memcpy(static_cast<std::byte*>(columns.observation[i]) + at,
                static_cast<std::byte*>(columns.final_observation[i]) + at, bytes);
  }
  if (tables_.keeps_last()) {  // it is the last good one now; the life that kept the other is given up
    Report& report = tables_.report(env);
    std::byte* last = tables_.last_observation(env, report.last_good + 1);
    for (std::size_t i = 0; i < spec_.observation.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(spec_.observation[i].row_bytes()) *
                         static_cast<std::size_t>(spec_.max_num_players);
      std::memcpy(last, static_cast<std::byte*>(columns.observation[i]) + static_cast<std::size_t>(row) * bytes, bytes);
      last += bytes;
    }
    report.last_good += 1;
  }
  columns.c.env_id[row] = env;
  columns.c.ended[row] = 1;
  table_.state(env).elapsed = columns.c.elapsed_step[row];
  return true;
}

// A failure fills its row like any result: the last good observation, where it is kept.
void ProcessPool::fill_row(std::int32_t env, const Columns& columns, std::int64_t row) {
  const sm_columns& c = columns.c;
  const auto players = static_cast<std::size_t>(spec_.max_num_players);
  c.env_id[row] = env;
  c.terminated[row] = 0;
  c.truncated[row] = 1;
  c.ended[row] = 0;
  c.elapsed_step[row] = table_.state(env).elapsed;
  c.episode_return[row] = 0.0;
  c.episode_length[row] = 0;
  if (c.players) c.players[row] = spec_.max_num_players;
  const std::size_t reward = players * (options_.table.reward_is_float32 ? sizeof(float) : sizeof(double));
  std::memset(static_cast<std::byte*>(c.reward) + static_cast<std::size_t>(row) * reward, 0, reward);
  const std::byte* last =
      tables_.keeps_last() ? tables_.last_observation(env, tables_.report(env).last_good) : nullptr;
  for (std::size_t i = 0; i < spec_.observation.size(); ++i) {
    const std::size_t bytes = static_cast<std::size_t>(spec_.observation[i].row_bytes()) * players;
    std::byte* to = static_cast<std::byte*>(c.observation[i]) + static_cast<std::size_t>(row) * bytes;
    if (last) {
      std::memcpy(to, last, bytes);
      last += bytes;
    } else {
      std::memset(to, 0, bytes);
    }
  }
  for (std::size_t i = 0; i < spec_.info.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(spec_.info[i].row_bytes());
    std::memset(static_cast<std::byte*>(c.info[i]) + static_cast<std::size_t>(row) * bytes, 0, bytes);
  }
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
    const EnvWord now = word(env);
    const std::uint64_t begun = tables_.begun(env).load(std::memory_order_relaxed);
    if (now.stage != Stage::kRunning || now.incarnation != crew_of(env).life.number) continue;
    const auto activity = static_cast<Activity>(begun & 3);
    const bool resets = activity == Activity::kReset || activity == Activity::kResetAfterEnd;
    const std::uint64_t limit = resets ? deadlines_.reset : deadlines_.step;
    if (limit == 0) continue;
    const std::uint64_t spent = monotonic_ns() - (begun >> 2);
    if (spent >= limit)
      miss_step(lock, env, now, activity, limit);
    else
      look_in(limit - spent);
  }
  for (std::size_t w = 0; w < crews_.size(); ++w)
    look_in(check_standstill(lock, w, std::max(deadlines_.step, deadlines_.reset)));
  // What begins after this look cannot be late before then.
  for (const std::uint64_t limit : {deadlines_.step, deadlines_.reset})
    if (limit != 0) look_in(limit);
  return next;
}

void ProcessPool::miss_step(Lock& lock, std::int32_t env, EnvWord seen, Activity activity, std::uint64_t limit) {
  std::uint64_t expected = seen.pack();
  if (!tables_.word(env).compare_exchange_strong(expected, seen.at(Stage::kFault).pack(), std::memory_order_seq_cst))
    return;  // it was done in the last instant
  Crew& crew = crew_of(env);
  const bool reset = activity == Activity::kReset || activity == Activity::kResetAfterEnd;
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
// rule. Returns when to look again.
std::uint64_t ProcessPool::check_standstill(Lock& lock, std::size_t worker, std::uint64_t limit) {
  Crew& crew = crews_[worker];
  const std::uint64_t now = monotonic_ns();
  std::uint64_t sight = 0;
  bool waits = false, runs = false;
  for (std::int32_t env = crew.first; env < crew.first + crew.count; ++env) {
    const EnvWord its = word(env);
    sight = sight * 31 + its.pack();
    if (crew.life.number == 0 || its.incarnation != crew.life.number) continue;
    runs |= its.stage == Stage::kRunning;
    waits |= its.stage == Stage::kQueued || its.stage == Stage::kWriting || its.stage == Stage::kDone;
  }
  if (!waits || runs || sight != crew.seen || !has_started(crew, crew.life)) {
    crew.seen = sight;
    crew.seen_at = now;
    return limit;
  }
  if (now - crew.seen_at < limit) return limit - (now - crew.seen_at);
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
  lock.unlock();
  std::string text;
  const char state = state_of(pid);
  if (state == 'T' || state == 't') {
    text = ". Its process is stopped (SIGSTOP, or a debugger), so it can show no stack";
  } else {
    send_signal(pidfd, SIGRTMAX - 3);  // faulthandler writes the stacks of all threads
    pollfd one{pipe, POLLIN, 0};
    int patience = kStackMs;
    while (text.size() < 64 * 1024 && poll(&one, 1, patience) == 1 && (one.revents & POLLIN)) {
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
