#include "core/process_pool.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace stepmill {
namespace {

using std::chrono::nanoseconds;

PoolOptions shared_options(PoolOptions options) {
  options.arena = Arena::Kind::kShared;
  // Workers keep the last observations themselves, where they survive a kill (`ProcessTables`).
  options.table.keep_last_observation = false;
  return options;
}

// Before a batch is expected: about what a wake takes.
constexpr nanoseconds kEarly = std::chrono::microseconds(60);
int duplicate(int descriptor) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw std::system_error(errno, std::generic_category(), "duplicating a descriptor");
  return copy;
}

int make_event() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return event;
}

constexpr nanoseconds kDoubt = std::chrono::milliseconds(1);

}  // namespace

ProcessPool::ProcessPool(EnvSpec spec, const PoolOptions& options, const ProcessOptions& process,
                         const Deadlines& deadlines, std::vector<std::uint64_t> seeds, int obituaries)
    : Pool(std::move(spec), shared_options(options),
           BatchRing::places_for(options.table.num_envs, options.batch_size)),
      process_(process),
      deadlines_(deadlines),
      tables_(spec_, options.table, options.batch_size, process),
      tables_offset_(arena_->grow(tables_.bytes(), 2 * kCacheLine)),
      ring_((tables_.attach(arena_->at(tables_offset_)), tables_.slot_ring()), num_envs(), options.batch_size),
      seeds_(std::move(seeds)),
      has_spare_core_(process.num_workers < available_cores()),
      to_ring_(static_cast<std::size_t>(process.num_workers)),
      obituaries_(-1),
      event_(-1) {
  try {
    obituaries_ = duplicate(obituaries);
    event_ = make_event();
    begin();
  } catch (...) {  // no descriptors, threads or memory left
    for (const int descriptor : {obituaries_, event_})
      if (descriptor >= 0) ::close(descriptor);
    throw;
  }
}

void ProcessPool::begin() {
  const auto n = static_cast<std::size_t>(num_envs());
  mail_.resize(n);
  call_mail_.resize(n);
  flying_.resize(n);
  calling_.resize(n);
  seats_.resize(n);
  answered_here_.resize(n);
  call_faults_.resize(n);
  saved_notes_.resize(n);
  saved_calls_.resize(n);
  worker_of_.resize(n);
  crews_.resize(static_cast<std::size_t>(process_.num_workers));
  for (std::int32_t w = 0; w < process_.num_workers; ++w) {
    Crew& crew = crews_[static_cast<std::size_t>(w)];
    crew.first = first_env_of(w, process_.num_workers, num_envs());
    crew.count = first_env_of(w + 1, process_.num_workers, num_envs()) - crew.first;
    std::fill_n(worker_of_.begin() + crew.first, crew.count, w);
  }
  for (std::int32_t env = 0; env < num_envs(); ++env) tables_.report(env).fault_phase = -1;
  monitor_ = std::thread([this] { watch(); });
}

ProcessPool::~ProcessPool() {
  kill();
  {
    const Lock lock(mutex_);
    quit_ = true;
  }
  wake_monitor();
  monitor_.join();
  const auto close_life = [](const Life& life) {
    for (const int descriptor : {life.pidfd, life.stack})
      if (descriptor >= 0) ::close(descriptor);
  };
  for (const Crew& crew : crews_) {
    close_life(crew.life);
    for (const Life& life : crew.leaving) close_life(life);
  }
  if (obituaries_ >= 0) ::close(obituaries_);
  ::close(event_);
}

ProcessPlan ProcessPool::plan() const {
  return {options_.table, options_.batch_size, process_, table_.offset(), tables_offset_};
}

EnvWord ProcessPool::word(std::int32_t env) const {
  return EnvWord::unpack(tables_.word(env).load(std::memory_order_seq_cst));
}

// ---- workers -----------------------------------------------------------------------------------

void ProcessPool::admit(std::int32_t worker, std::uint32_t incarnation, int pid, int pidfd, int stack, int outbox,
                        std::uint64_t start_ns) {
  Life life;
  life.number = incarnation & 0xffffff;
  life.pid = pid;
  life.outbox = std::make_shared<Outbox>(outbox, false);
  life.pidfd = duplicate(pidfd);
  try {
    life.stack = duplicate(stack);
  } catch (...) {
    ::close(life.pidfd);
    throw;
  }
  life.start_deadline = start_ns ? monotonic_ns() + start_ns : 0;
  {
    const Lock lock(mutex_);
    Crew& crew = crews_[static_cast<std::size_t>(worker)];
    if (const auto known = early_.find({worker, life.number}); known != early_.end()) life.code = known->second;
    std::erase_if(early_, [&](const auto& one) { return one.first.first == worker; });
    crew.life = std::move(life);
    crew.next = incarnation + 1;
    crew.wanted = false;
    if (incarnation > 1) crew.restarts += 1;
    if (stopping_) tables_.worker(worker).stop.store(crew.life.number, std::memory_order_seq_cst);
    look_whom_to_start();
  }
  wake_monitor();
}

std::vector<std::pair<std::int32_t, std::uint32_t>> ProcessPool::to_restart() {
  std::vector<std::pair<std::int32_t, std::uint32_t>> out;
  const Lock lock(mutex_);
  for (std::size_t w = 0; w < crews_.size(); ++w)
    if (crews_[w].wanted) out.emplace_back(static_cast<std::int32_t>(w), crews_[w].next);
  return out;
}

void ProcessPool::look_whom_to_start() {
  attention_.store(std::any_of(crews_.begin(), crews_.end(), [](const Crew& crew) { return crew.wanted; }),
                   std::memory_order_release);
}

void ProcessPool::restart_failed(std::int32_t worker, std::uint32_t incarnation, const std::string& why) {
  const Lock lock(mutex_);
  Crew& crew = crews_[static_cast<std::size_t>(worker)];
  Fault fault;
  fault.phase = SM_IN_CONSTRUCTOR;
  fault.kind = Fault::kDied;
  fault.message = why;
  crew.life = Life{};
  crew.life.number = incarnation & 0xffffff;
  crew.next = incarnation + 1;
  retire(crew, fault);
  crew.leaving.pop_back();  // it never lived
  crew.wanted = false;
  look_whom_to_start();
}

void ProcessPool::ring_bell(std::int32_t worker) {
  WorkerBlock& block = tables_.worker(worker);
  block.bell.fetch_add(1, std::memory_order_seq_cst);
  if (block.sleeping.load(std::memory_order_seq_cst) != 0) futex_wake(block.bell, 1, true);
}

// ---- sending -----------------------------------------------------------------------------------

void ProcessPool::set_mail(std::int32_t env, std::span<const std::byte> mail) {
  put_mail(mail_[static_cast<std::size_t>(env)], mail);
}

void ProcessPool::put_mail(Mailbox& box, std::span<const std::byte> mail) {
  if (mail.size() > box.capacity) {
    const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(mail.size(), 256));
    box.offset = arena_->grow(capacity, kCacheLine);
    box.capacity = capacity;
  }
  if (!mail.empty()) std::memcpy(arena_->at(box.offset), mail.data(), mail.size());
  box.bytes = mail.size();
}

// Hands the env to its worker, or to the life that will come: all that the worker reads is written.
std::uint32_t ProcessPool::queue(std::int32_t env, Mailbox& box) {
  Order& order = tables_.order(env);
  order.mail = box.offset;
  order.mail_bytes = std::exchange(box.bytes, 0);
  Crew& crew = crew_of(env);
  const bool served = crew.life.number != 0;
  if (!served && !crew.wanted) {
    crew.wanted = true;
    attention_.store(true, std::memory_order_release);
  }
  const EnvWord queued{word(env).epoch + 1, served ? crew.life.number : crew.next, Stage::kQueued};
  tables_.word(env).store(queued.pack(), std::memory_order_seq_cst);
  return queued.epoch;
}

// Whether the env lives no more: it was built by a life of its worker that is gone. What was answered
// here instead has no life, and is told only once.
bool ProcessPool::is_lost(std::int32_t env, EnvWord now) const {
  return now.incarnation != 0 && now.incarnation != crew_of(env).life.number;
}

void ProcessPool::start(std::span<const std::int32_t> envs, bool assigned, bool) {
  std::fill(to_ring_.begin(), to_ring_.end(), 0);
  if (assigned && assigned_ == static_cast<std::int32_t>(envs.size())) assigned_envs_.clear();
  {
    const Lock lock(mutex_);
    for (const std::int32_t env : envs) {
      const auto e = static_cast<std::size_t>(env);
      if (assigned) assigned_envs_.push_back(env);
      flying_[e] = 1;
      answered_here_[e] = 0;
      saved_notes_[e].reset();
      const EnvWord now = word(env);
      seats_[e] = assigned ? Seat{assigned_buffer_, row_of_[e], now.epoch + 1} : Seat{nullptr, -1, now.epoch + 1};
      Order& order = tables_.order(env);
      order.kind = Order::kAct;
      order.buffer = assigned ? assigned_buffer_->offset : 0;
      order.row = seats_[e].row;
      order.is_reset = resetting_[e];
      if (const sm_reset_request& request = table_.reset_request(env); request.has_seed) seeds_[e] = request.seed;
      if (is_lost(env, now)) {
        reseed(env);
        if (table_.state(env).command != SM_RESET) {  // which begins anew, whatever was lost
          mail_[e].bytes = 0;
          answer_row(env, {now.epoch + 1, 0, Stage::kFault}, crew_of(env).loss, std::nullopt);
          continue;
        }
      }
      queue(env, mail_[e]);
      to_ring_[static_cast<std::size_t>(worker_of(env))] = 1;
    }
  }
  for (std::size_t w = 0; w < to_ring_.size(); ++w)
    if (to_ring_[w]) ring_bell(static_cast<std::int32_t>(w));
}

// ---- receiving ---------------------------------------------------------------------------------

// Whether nobody will touch the env's row any more: it is counted, or who should count it is gone.
bool ProcessPool::is_over(std::int32_t env, EnvWord now) const {
  if (now.stage != Stage::kDone) return now.stage == Stage::kRest;
  const Crew& crew = crew_of(env);
  return now.incarnation != crew.life.number &&
         std::none_of(crew.leaving.begin(), crew.leaving.end(),
                      [&](const Life& life) { return life.number == now.incarnation; });
}

// Whether that action is over. A later action or call comes only after it.
bool ProcessPool::answered(std::int32_t env, std::uint32_t epoch) const {
  const EnvWord now = word(env);
  return now.epoch != epoch || is_over(env, now);
}

bool ProcessPool::ready() const {
  if (Pool::ready()) return true;
  if ((awaited()->header->done.load(std::memory_order_seq_cst) & BatchHeader::kSuspect) == 0) return false;
  // A worker died and may not have counted its last row: the words know.
  const Lock lock(mutex_);
  const std::uint32_t want = wanted();
  std::uint32_t done = 0;
  if (assigned_ != 0) {
    for (const std::int32_t env : assigned_envs_)
      done += answered(env, seats_[static_cast<std::size_t>(env)].epoch);
  } else {
    for (std::int32_t row = 0; row < options_.batch_size; ++row) {
      const SlotRing::Owner owner = ring_.owner(head_, static_cast<std::uint32_t>(row));
      if (owner.env >= static_cast<std::uint32_t>(num_envs())) break;
      const bool counts = (want & BatchHeader::kStepsOnly) == 0 || !resetting_[owner.env];
      done += counts && answered(static_cast<std::int32_t>(owner.env), owner.epoch);
    }
  }
  return done >= (want & ~BatchHeader::kStepsOnly);
}

void ProcessPool::work_or_wait(nanoseconds most) {
  BatchHeader& header = *awaited()->header;
  const std::uint32_t want = wanted();
  // With a core to spare, the caller is awake, once, when its batch is about to be complete.
  if (!wait_began_) wait_began_ = Clock::now();
  if (has_spare_core_ && !was_early_) {
    const nanoseconds left = usual_wait_ - (Clock::now() - *wait_began_) - kEarly;
    if (left.count() > 0) {
      most = std::min(most, left);
    } else {
      was_early_ = true;
      const SpinBudget::Licence licence(SpinBudget::instance());
      if (licence && spin_until(2 * kEarly, [&] { return ready(); })) return;
    }
  }
  header.want.store(want, std::memory_order_seq_cst);
  const std::uint32_t done = header.done.load(std::memory_order_seq_cst);
  // In a suspect batch it is the words that count, and their changes wake nobody here.
  if ((done & BatchHeader::kSuspect) != 0) most = std::min(most, kDoubt);
  if (!ready()) futex_wait(header.done, done, most, true);
  header.want.store(0, std::memory_order_relaxed);
}

// Which env each row belongs to is known here: what the workers wrote is replaced by it.
void ProcessPool::inspect(Batch& batch, bool assigned) {
  const sm_columns& c = batch.buffer->columns.c;
  if (wait_began_) usual_wait_ += (Clock::now() - *wait_began_ - usual_wait_) / 4;
  wait_began_.reset();
  was_early_ = false;
  noted_.clear();
  const Lock lock(mutex_);
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    std::int32_t env = assigned ? assigned_envs_[static_cast<std::size_t>(row)]
                                : static_cast<std::int32_t>(ring_.owner(head_, static_cast<std::uint32_t>(row)).env);
    if (env < 0 || env >= num_envs()) throw std::runtime_error("a worker broke the pool's memory: a slot has no owner");
    c.env_id[row] = env;
    batch.any_ended |= c.ended[row] != 0;  // who died before it counted its row did not say so
    const auto e = static_cast<std::size_t>(env);
    flying_[e] = 0;
    if (saved_notes_[e] ? !saved_notes_[e]->empty() : !answered_here_[e] && tables_.report(env).note != 0)
      noted_.emplace_back(row, env);
    const std::int32_t phase = tables_.report(env).fault_phase;
    if (phase >= 0 && !answered_here_[e]) {
      const sm_env_state& state = table_.state(env);
      faults_.push_back({env, phase, state.episode, state.elapsed, state.failures, "", Fault::kRaised});
    }
  }
}

void ProcessPool::take_faults(std::vector<Fault>& into) {
  const Lock lock(mutex_);
  if (faults_.empty()) return;
  const auto back = std::stable_partition(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return in_flight_[static_cast<std::size_t>(fault.env)] != 0;
  });
  into.assign(std::make_move_iterator(back), std::make_move_iterator(faults_.end()));
  faults_.erase(back, faults_.end());
}

void ProcessPool::read_note(std::int32_t env, const std::function<void(std::span<const std::byte>)>& use) {
  const auto e = static_cast<std::size_t>(env);
  const Lock lock(mutex_);  // the monitor unmaps what is gone
  if (saved_notes_[e]) return use(*saved_notes_[e]);
  if (answered_here_[e]) return;
  const Report& report = tables_.report(env);
  use(read_outbox(env, report.note, report.note_bytes));
}

// In the outbox of the life that the env's word names.
std::span<const std::byte> ProcessPool::read_outbox(std::int32_t env, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint32_t number = word(env).incarnation;
  const Crew& crew = crew_of(env);
  if (crew.life.number == number && crew.life.outbox) return crew.life.outbox->read(offset, bytes);
  for (const Life& life : crew.leaving)
    if (life.number == number && life.outbox) return life.outbox->read(offset, bytes);
  return {};
}

// ---- calls -------------------------------------------------------------------------------------

bool ProcessPool::at_rest(std::int32_t env) const {
  const EnvWord now = word(env);
  if (now.stage != Stage::kDone) return now.stage == Stage::kRest;
  const Lock lock(mutex_);
  return is_over(env, now);
}

void ProcessPool::wait_at_rest(std::int32_t env, nanoseconds most) {
  WorkerBlock& block = tables_.worker(worker_of(env));
  block.watched.store(1, std::memory_order_seq_cst);
  const std::uint32_t seen = block.rested.load(std::memory_order_seq_cst);
  if (!at_rest(env)) futex_wait(block.rested, seen, most, true);
  block.watched.store(0, std::memory_order_relaxed);
}

void ProcessPool::queue_call(std::int32_t env, std::span<const std::byte> call) {
  const auto e = static_cast<std::size_t>(env);
  {
    const Lock lock(mutex_);
    put_mail(call_mail_[e], call);  // throws where there is no memory: change nothing before
    const EnvWord now = word(env);
    save_notes(crew_of(env), now.incarnation);  // the call takes over the word of a row not yet received
    call_faults_[e].reset();
    saved_calls_[e].reset();
    if (is_lost(env, now)) {
      call_faults_[e] = crew_of(env).loss;
      call_faults_[e]->env = env;
      call_faults_[e]->phase = SM_IN_CALL;
      return;  // at rest as it is
    }
    calling_[e] = 1;
    tables_.order(env).kind = Order::kCall;
    queue(env, call_mail_[e]);
  }
  ring_bell(worker_of(env));
}

std::optional<Fault> ProcessPool::take_call(std::int32_t env, std::vector<std::byte>& answer) {
  const auto e = static_cast<std::size_t>(env);
  const Lock lock(mutex_);
  calling_[e] = 0;
  if (call_faults_[e]) return std::exchange(call_faults_[e], std::nullopt);
  const Report& report = tables_.report(env);
  std::span<const std::byte> bytes =
      saved_calls_[e] ? *saved_calls_[e] : read_outbox(env, report.call, report.call_bytes);
  answer.assign(bytes.begin(), bytes.end());
  return std::nullopt;
}

// ---- ending ------------------------------------------------------------------------------------

void ProcessPool::ask_to_stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    for (std::size_t w = 0; w < crews_.size(); ++w)
      tables_.worker(static_cast<std::int32_t>(w)).stop.store(crews_[w].life.number, std::memory_order_seq_cst);
  }
  for (std::int32_t w = 0; w < process_.num_workers; ++w) ring_bell(w);
  wake_monitor();
}

bool ProcessPool::all_ended() const {
  return std::all_of(crews_.begin(), crews_.end(),
                     [](const Crew& crew) { return crew.life.number == 0 && crew.leaving.empty(); });
}

bool ProcessPool::stopped() const {
  const Lock lock(mutex_);
  return all_ended();
}

void ProcessPool::wait_stopped(nanoseconds most) {
  Lock lock(mutex_);
  ended_.wait_for(lock, most, [this] { return all_ended(); });
}

// ---- measurements ------------------------------------------------------------------------------

double ProcessPool::step_cost_ns() const {
  std::uint64_t busy = 0, steps = 0;
  for (std::int32_t w = 0; w < process_.num_workers; ++w) {
    busy += tables_.worker(w).busy_ns.load(std::memory_order_relaxed);
    steps += tables_.worker(w).steps.load(std::memory_order_relaxed);
  }
  return steps ? static_cast<double>(busy) / static_cast<double>(steps) : 0.0;
}

std::vector<ProcessPool::WorkerStats> ProcessPool::worker_stats() const {
  std::vector<WorkerStats> out;
  const Lock lock(mutex_);
  for (std::int32_t w = 0; w < process_.num_workers; ++w) {
    const Crew& crew = crews_[static_cast<std::size_t>(w)];
    const WorkerBlock& block = tables_.worker(w);
    out.push_back({crew.life.pid, crew.life.number != 0,
                   static_cast<double>(block.busy_ns.load(std::memory_order_relaxed)) * 1e-9,
                   block.steps.load(std::memory_order_relaxed), crew.restarts,
                   crew.life.outbox ? crew.life.outbox->memory() : 0});
  }
  return out;
}

std::vector<double> ProcessPool::step_percentiles(std::int32_t env, std::span<const double> parts) const {
  const StepTimes& times = tables_.times(env);
  std::uint64_t all = 0;
  for (const std::uint32_t count : times.count) all += count;
  std::vector<double> out;
  for (const double part : parts) {
    std::uint64_t below = 0;
    double value = 0.0;
    for (int i = 0; i < StepTimes::kBuckets && all != 0; ++i) {
      below += times.count[i];
      if (static_cast<double>(below) >= part * static_cast<double>(all)) {
        value = StepTimes::upper_bound_ns(i) * 1e-9;
        break;
      }
    }
    out.push_back(value);
  }
  return out;
}

}  // namespace stepmill
