#include "core/process/worker_roster.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "core/process/signal_name.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424  // on every architecture; an older system's headers lack it
#endif

namespace stepmill {
namespace {

// How long to wait for the obituary of a process.
constexpr int kObituaryMs = 500;

}  // namespace

WorkerRoster::WorkerRoster(std::int32_t num_envs, std::span<const std::int32_t> first_envs, const ProcessChecks& checks,
                           const std::vector<Asked>& asked, int obituaries, std::span<WorkerRecord> shown)
    : checks_(checks),
      asked_(asked),
      worker_of_(static_cast<std::size_t>(num_envs)),
      obituaries_(Descriptor::duplicate(obituaries)),
      shown_(shown),
      crews_(first_envs.size()),
      sights_(static_cast<std::size_t>(num_envs)) {
  std::int32_t end = num_envs;
  for (std::int32_t w = num_workers(); w-- > 0;) {
    Crew& crew = at(w);
    crew.first = first_envs[static_cast<std::size_t>(w)];
    crew.count = end - crew.first;
    std::fill_n(worker_of_.begin() + crew.first, crew.count, w);
    end = crew.first;
  }
}

void WorkerRoster::Life::signal(int signal_number) const {
  if (pidfd.get() >= 0) (void)syscall(SYS_pidfd_send_signal, pidfd.get(), signal_number, nullptr, 0);
}

const WorkerRoster::Life* WorkerRoster::Crew::find(std::uint32_t number) const {
  if (life.number == number) return &life;
  const auto found = std::find_if(leaving.begin(), leaving.end(), [&](const Life& one) { return one.number == number; });
  return found != leaving.end() ? &*found : nullptr;
}

// ---- lives begin -------------------------------------------------------------------------------

void WorkerRoster::admit(std::int32_t worker, std::uint32_t incarnation, Life life) {
  Crew& crew = at(worker);
  life.number = number_of(incarnation);
  if (const auto known = early_.find({worker, life.number}); known != early_.end()) life.code = known->second;
  std::erase_if(early_, [&](const auto& one) { return one.first.first == worker; });
  crew.life = std::move(life);
  crew.broken.reset();
  crew.next = incarnation + 1;
  crew.wanted = false;
  if (incarnation > 1) crew.restarts += 1;
  update_attention();
  show(worker);
}

void WorkerRoster::admit_successor(std::int32_t worker, std::uint32_t incarnation, Life life) {
  const std::uint32_t restarts = crew(worker).restarts;
  admit(worker, incarnation, std::move(life));
  at(worker).restarts = restarts;
  show(worker);
}

void WorkerRoster::skip(std::int32_t worker, std::uint32_t incarnation) {
  Crew& crew = at(worker);
  if (crew.next == incarnation) crew.next += 1;
}

// In the words of which the thread that holds the pool's lock is the only writer.
void WorkerRoster::show(std::int32_t worker) {
  if (shown_.empty()) return;
  WorkerRecord& record = shown_[static_cast<std::size_t>(worker)];
  set(record.pid, static_cast<std::uint64_t>(std::max(0, crew(worker).life.pid)));
  set(record.restarts, crew(worker).restarts);
  set(record.first_env, static_cast<std::uint64_t>(crew(worker).first));
}

std::vector<std::pair<std::int32_t, std::uint32_t>> WorkerRoster::to_restart() const {
  std::vector<std::pair<std::int32_t, std::uint32_t>> out;
  for (std::int32_t w = 0; w < num_workers(); ++w)
    if (crew(w).wanted) out.emplace_back(w, crew(w).next);
  return out;
}

void WorkerRoster::update_attention() {
  attention_.store(std::any_of(crews_.begin(), crews_.end(), [](const Crew& crew) { return crew.wanted; }),
                   std::memory_order_release);
}

void WorkerRoster::record_failed_start(std::int32_t worker, std::uint32_t incarnation) {
  Crew& crew = at(worker);
  crew.life = Life{};
  crew.life.number = number_of(incarnation);
  crew.next = incarnation + 1;
}

// Remembered once it was seen. An env that has got further than queued shows it too.
bool WorkerRoster::has_started(Crew& crew) {
  Life& life = crew.life;
  if (life.started || life.number == 0) return life.started;
  life.started = checks_.has_announced(worker_of(crew.first), life.number);
  for (std::int32_t env = crew.first; env < crew.end() && !life.started; ++env)
    if (asked(env).incarnation == life.number)
      if (const auto now = checks_.word(env, asked(env))) life.started = now->stage != Stage::kQueued;
  return life.started;
}

std::uint64_t WorkerRoster::start_deadline(std::int32_t worker) {
  Crew& crew = at(worker);
  if (crew.life.number == 0 || crew.life.start_deadline == 0) return 0;
  if (has_started(crew)) crew.life.start_deadline = 0;
  return crew.life.start_deadline;
}

std::uint64_t WorkerRoster::stands_still_for(std::int32_t worker) {
  Crew& crew = at(worker);
  const std::uint64_t now = monotonic_ns();
  std::uint64_t sight = 0, longest = 0;
  bool waits = false, runs = false;
  for (std::int32_t env = crew.first; env < crew.end(); ++env) {
    const auto its = checks_.word(env, asked(env));
    if (!its || crew.life.number == 0 || its->incarnation != crew.life.number) continue;
    sight = sight * 31 + its->pack();
    runs |= its->stage == Stage::kRunning;
    waits |= its->stage == Stage::kQueued || its->stage == Stage::kWriting || its->stage == Stage::kDone;
    Sight& last = sights_[static_cast<std::size_t>(env)];
    if (last.word != its->pack()) last = {its->pack(), now};
    if (its->stage == Stage::kWriting || its->stage == Stage::kDone) longest = std::max(longest, now - last.since);
  }
  if (!waits || runs || sight != crew.seen || !has_started(crew)) {
    crew.seen = sight;
    crew.seen_at = now;
  }
  return std::max(longest, now - crew.seen_at);
}

// ---- lives end ---------------------------------------------------------------------------------

bool WorkerRoster::condemn(std::int32_t worker, const Fault& reason) {
  Crew& crew = at(worker);
  if (crew.life.number == 0 || crew.broken) return false;
  crew.broken = reason;
  return true;
}

std::optional<Fault> WorkerRoster::take_condemned(std::int32_t worker) {
  return std::exchange(at(worker).broken, std::nullopt);
}

void WorkerRoster::retire(std::int32_t worker, const Fault& reason, bool start_again) {
  Crew& crew = at(worker);
  crew.wanted = has_started(crew) && start_again;
  crew.loss = reason;
  crew.leaving.push_back(std::exchange(crew.life, Life{}));
  crew.broken.reset();
  update_attention();
  show(worker);
}

void WorkerRoster::remove(std::int32_t worker, std::uint32_t number) {
  std::erase_if(at(worker).leaving, [&](const Life& life) { return life.number == number; });
}

bool WorkerRoster::all_ended() const {
  return std::all_of(crews_.begin(), crews_.end(),
                     [](const Crew& crew) { return crew.life.number == 0 && crew.leaving.empty(); });
}

void WorkerRoster::kill_all() const {
  for (const Crew& crew : crews_) {
    crew.life.signal(SIGKILL);
    for (const Life& life : crew.leaving) life.signal(SIGKILL);
  }
}

// ---- obituaries --------------------------------------------------------------------------------

void WorkerRoster::read_obituaries(short events) {
  if (!(events & POLLIN)) {
    if (events != 0) parent_writes_ = false;  // it is gone
    return;
  }
  std::array<std::int32_t, 3> one;  // worker, incarnation, exit code or minus the signal
  pollfd more{obituaries_.get(), POLLIN, 0};
  while (poll(&more, 1, 0) == 1 && (more.revents & POLLIN)) {
    if (read(obituaries_.get(), one.data(), sizeof one) != static_cast<ssize_t>(sizeof one)) return;
    if (one[0] < 0)
      note_end_of_all();
    else if (one[0] < num_workers())
      note_end(one[0], number_of(static_cast<std::uint32_t>(one[1])), one[2]);
  }
}

void WorkerRoster::note_end(std::int32_t worker, std::uint32_t number, int code) {
  Crew& crew = at(worker);
  bool known = crew.life.number == number;
  if (known) crew.life.code = code;
  for (Life& life : crew.leaving)
    if (life.number == number) life.code = code, known = true;
  if (!known && number >= crew.next_number()) early_[{worker, number}] = code;
}

// The process that starts the workers is gone, and its workers with it: no more obituaries will come.
void WorkerRoster::note_end_of_all() {
  const auto note = [](Life& life) {
    pollfd its{life.pidfd.get(), POLLIN, 0};
    if (its.fd >= 0 && !life.code && poll(&its, 1, 0) == 1) life.code = -SIGKILL;
  };
  for (Crew& crew : crews_) {
    note(crew.life);
    for (Life& life : crew.leaving) note(life);
  }
}

void WorkerRoster::await_obituary(Lock& lock, std::int32_t worker, std::uint32_t number, const bool& quit) {
  const auto known = [&] {
    const Life* life = crew(worker).find(number);
    return life && life->code;
  };
  const auto end = monotonic_ns() + kObituaryMs * std::uint64_t{1'000'000};
  while (!known() && parent_writes_ && !quit) {
    const std::uint64_t now = monotonic_ns();
    if (now >= end) return;
    pollfd one{obituaries_.get(), POLLIN, 0};
    lock.unlock();
    poll(&one, 1, static_cast<int>((end - now) / 1'000'000) + 1);
    lock.lock();
    if (!(one.revents & POLLIN)) return;
    read_obituaries(one.revents);
  }
}

Fault WorkerRoster::why_ended(std::int32_t worker) {
  Crew& crew = at(worker);
  const Life& life = crew.life;
  const bool started = has_started(crew);
  Fault fault;
  fault.kind = Fault::kDied;
  fault.phase = started ? SM_IN_STEP : SM_IN_CONSTRUCTOR;
  std::string how = "ended";
  if (life.code) {
    if (*life.code >= 0) {
      how = "exited with code " + std::to_string(*life.code);
    } else {
      how = "was killed by " + signal_name(-*life.code);
      if (*life.code == -SIGKILL) how += " (from another process, or from the kernel because memory ran out)";
    }
  }
  fault.message = "its worker process (pid " + std::to_string(life.pid) + ") " + how +
                  (started ? "" : " while it was starting");
  return fault;
}

}  // namespace stepmill
