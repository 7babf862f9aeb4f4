#include "core/process_pool.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
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
Descriptor make_event() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return Descriptor(event);
}

// As 0 and 1, whatever they were. Returns whether any is set.
bool copy_flags(const std::uint8_t* __restrict from, std::uint8_t* __restrict to, std::int32_t count) {
  std::uint8_t any = 0;
  for (std::int32_t i = 0; i < count; ++i) any |= to[i] = from[i] != 0;
  return any != 0;
}

constexpr nanoseconds kDoubt = std::chrono::milliseconds(1), kLook = std::chrono::milliseconds(5);

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
      checks_(spec_, num_envs(), tables_, ring_),
      seeds_(std::move(seeds)),
      has_spare_core_(process.num_workers < available_cores()),
      to_ring_(static_cast<std::size_t>(process.num_workers)),
      asked_(static_cast<std::size_t>(num_envs())),
      roster_(num_envs(), process.num_workers, checks_, asked_, obituaries),
      event_(make_event()) {
  const auto n = static_cast<std::size_t>(num_envs());
  mail_.resize(n);
  call_mail_.resize(n);
  slot_envs_.resize(n);
  slot_looks_.resize(n);
  row_env_.resize(n);
  row_players_.resize(n);
  row_terminated_.resize(n);
  row_truncated_.resize(n);
  row_ended_.resize(n);
  row_notes_.resize(n);
  failures_.resize(n);
  flying_.resize(n);
  calling_.resize(n);
  seats_.resize(n);
  answered_here_.resize(n);
  call_faults_.resize(n);
  saved_notes_.resize(n);
  saved_calls_.resize(n);
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
}

ProcessPlan ProcessPool::plan() const {
  return {options_.table, options_.batch_size, process_, arena_->reserved(), table_.offset(), tables_offset_};
}

// ---- workers -----------------------------------------------------------------------------------

void ProcessPool::admit(std::int32_t worker, std::uint32_t incarnation, int pid, int pidfd, int stack, int outbox,
                        std::uint64_t start_ns) {
  Life life;
  life.pid = pid;
  life.outbox = std::make_unique<Outbox>(outbox, false);
  life.pidfd = Descriptor::duplicate(pidfd);
  life.stack = Descriptor::duplicate(stack);
  life.start_deadline = start_ns ? monotonic_ns() + start_ns : 0;
  {
    const Lock lock(mutex_);
    roster_.admit(worker, incarnation, std::move(life));
    if (stopping_) tell_to_stop(worker);
  }
  wake_monitor();
}

std::vector<std::pair<std::int32_t, std::uint32_t>> ProcessPool::to_restart() {
  const Lock lock(mutex_);
  return roster_.to_restart();
}

void ProcessPool::restart_failed(std::int32_t worker, std::uint32_t incarnation, const std::string& why) {
  const Lock lock(mutex_);
  Fault fault;
  fault.phase = SM_IN_CONSTRUCTOR;
  fault.kind = Fault::kDied;
  fault.message = why;
  roster_.expect_nobody(worker, incarnation);
  const std::uint32_t number = roster_.crew(worker).life.number;
  retire(worker, fault, false);
  bury(worker, number);
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

// Hands the env to its worker, or to the life that will come: all that the worker reads is written. Field by field: to
// put it together first, and then to copy it, costs more than all the rest.
[[gnu::always_inline]] inline void ProcessPool::queue(std::int32_t env, Mailbox& box, const Errand& errand) {
  Asked& its = asked(env);
  its.epoch += 1;
  its.incarnation = roster_.call_for(env);
  its.at = errand.at;
  its.is_call = errand.kind == Order::kCall;
  its.is_reset = errand.is_reset;
  its.given_up = false;
  const std::uint64_t mail_seal = box.bytes == 0 ? 0 : seal_of({arena_->at(box.offset), box.bytes}, env, its.epoch);
  Order& order = tables_.order(env);
  order.buffer = errand.buffer;
  order.row = errand.row;
  order.kind = errand.kind;
  order.is_reset = errand.counts_as_reset;
  order.mail = box.offset;
  order.mail_bytes = box.bytes;
  order.mail_seal = mail_seal;
  order.seal = Order::seal_for(errand.buffer, errand.row, errand.kind, errand.counts_as_reset, box.offset, box.bytes,
                               mail_seal, env, its.epoch);
  box.bytes = 0;
  // Whatever the word was: nobody needs that of an idle env.
  tables_.word(env).store(EnvWord{its.epoch, its.incarnation, Stage::kQueued}.pack(), std::memory_order_seq_cst);
}

// Whether the env lives no more: it was built by a life of its worker that is gone. What was answered
// here instead has no life, and is told only once.
bool ProcessPool::is_lost(std::int32_t env) const {
  return asked(env).incarnation != 0 && asked(env).incarnation != roster_.crew_of(env).life.number;
}

// Whether the action means a reset, or stands for one. In memory that the env's worker has just written: looked at only
// where it matters.
bool ProcessPool::will_reset(std::int32_t env) const {
  const sm_env_state& state = table_.state(env);
  return state.phase != SM_LIVE || state.command != SM_STEP;
}

void ProcessPool::open_batch(std::uint32_t number, Buffer& buffer) {
  const Lock lock(mutex_);
  ring_.open(number, buffer.offset);
  end_open_ = number + 1;
}

void ProcessPool::start(std::span<const std::int32_t> envs, bool assigned, bool) {
  std::fill(to_ring_.begin(), to_ring_.end(), 0);
  found_over_ = 0;
  if (assigned && assigned_ == static_cast<std::int32_t>(envs.size())) assigned_envs_.clear();
  const std::uint64_t now = monotonic_ns();
  const bool watches_resets = deadlines_.step != deadlines_.reset;
  const std::uint64_t buffer = assigned ? assigned_buffer_->offset : 0;
  {
    const Lock lock(mutex_);
    bool ring_is_lost = ring_is_lost_;
    for (const std::int32_t env : envs) {
      const auto e = static_cast<std::size_t>(env);
      if (assigned) assigned_envs_.push_back(env);
      flying_[e] = 1;
      answered_here_[e] = 0;
      saved_notes_[e].reset();
      Seat& seat = seats_[e];
      seat.buffer = assigned ? assigned_buffer_ : nullptr;
      seat.row = assigned ? row_of_[e] : -1;
      seat.epoch = asked(env).epoch + 1;
      seat.is_reset = failures_[e] != 0 && will_reset(env);
      if (const sm_reset_request& request = table_.reset_request(env); request.has_seed) seeds_[e] = request.seed;
      const bool lost = is_lost(env);
      if (lost) reseed(env);
      // A reset begins anew, whatever was lost.
      if ((lost && table_.state(env).command != SM_RESET) || (ring_is_lost && !assigned)) {
        mail_[e].bytes = 0;
        asked(env) = Asked{};
        asked(env).epoch = seat.epoch;
        answer_row(env, {seat.epoch, 0, Stage::kFault}, lost ? roster_.crew_of(env).loss : ring_loss_, std::nullopt);
        ring_is_lost = ring_is_lost_;
        continue;
      }
      queue(env, mail_[e], {buffer, seat.row, Order::kAct, resetting_[e], now, watches_resets && will_reset(env)});
      to_ring_[static_cast<std::size_t>(worker_of(env))] = 1;
    }
  }
  for (std::size_t w = 0; w < to_ring_.size(); ++w)
    if (to_ring_[w]) ring_bell(static_cast<std::int32_t>(w));
}

// ---- receiving ---------------------------------------------------------------------------------

// Whether nobody will touch what the env was asked for last any more: its row is counted, or who should count it is
// gone, and then all that was missing has been answered.
bool ProcessPool::is_over(std::int32_t env, bool counted) {
  const Asked& its = asked(env);
  if (its.incarnation == 0) return true;
  const auto now = checks_.word(env, its);
  if (now && (now->stage == Stage::kRest || (now->stage == Stage::kDone && counted))) return true;
  if (!roster_.may_live(worker_of(env), its.incarnation)) return true;
  if (!now) found_broken(env, "the state of an env");
  return false;
}

// Whether the action is over whose row is in flight. A call comes only after it.
bool ProcessPool::row_is_over(std::int32_t env, bool counted) {
  const std::uint32_t epoch = seats_[static_cast<std::size_t>(env)].epoch;
  return (counted && checks_.is_written(env, epoch)) || asked(env).epoch != epoch || is_over(env, counted);
}

// Counts only tell when to look: it is the words that say what is there. So nobody writes into what is handed out, and
// a count that is wrong delays a batch and does no more.
bool ProcessPool::ready() {
  if (found_over_ != 0 && found_over_ == wanted()) return true;  // what is over stays so
  const bool counted = Pool::ready();
  const bool suspect = (awaited()->header->done.load(std::memory_order_seq_cst) & BatchHeader::kSuspect) != 0;
  if (!counted && !suspect && !ring_is_lost_ && !words_due_) return false;
  words_due_ = false;
  const Lock lock(mutex_);
  check_whole();
  if (ring_is_lost_ && !restore_ring() && assigned_ == 0) return false;
  const bool over = rows_are_over(counted);
  found_over_ = over ? wanted() : 0;
  return over;
}

void ProcessPool::check_whole() const {
  if (!broken_.empty()) throw BrokenMemory(broken_);  // which the caller alone writes
}

bool ProcessPool::rows_are_over(bool counted) {
  const std::uint32_t want = wanted();
  if (assigned_ != 0) {
    std::uint32_t over = 0;
    for (const std::int32_t env : assigned_envs_) over += row_is_over(env, counted);
    return over >= want;
  }
  const auto enough = [&](const auto& over) { return over && *over >= (want & ~BatchHeader::kStepsOnly); };
  const auto over = slots_over(want, counted);
  if (enough(over)) return true;
  // Who is over has a slot: this is looked at before the slots are.
  const bool all = over && all_in_ring_are_over();
  if (!over || (all && !enough(slots_over(want, counted)))) lose_ring();
  return false;
}

bool ProcessPool::all_in_ring_are_over() {
  for (std::int32_t env = 0; env < num_envs(); ++env) {
    const auto e = static_cast<std::size_t>(env);
    if (flying_[e] && !seats_[e].buffer && !row_is_over(env, false)) return false;
  }
  return true;
}

// How many rows of the batch that is awaited are over, of those that are `wanted`. Nothing: it cannot be said whose
// the slots are.
std::optional<std::uint32_t> ProcessPool::slots_over(std::uint32_t want, bool counted) {
  looks_ += 1;
  slot_count_ = 0;
  std::uint32_t over = 0;
  for (std::int32_t row = 0; row < options_.batch_size; ++row) {
    const ProcessChecks::Slot slot = checks_.slot(head_, static_cast<std::uint32_t>(row));
    if (slot.kind == slot.kFree || (slot.kind == slot.kSealed && row != 0 && row == sealed_rows_)) break;
    if (!has_row(slot) || slot_looks_[static_cast<std::size_t>(slot.env)] == looks_) return std::nullopt;
    slot_looks_[static_cast<std::size_t>(slot.env)] = looks_;
    slot_envs_[static_cast<std::size_t>(slot_count_++)] = slot.env;
    checks_.will_read_row(slot.env);
  }
  const bool steps_only = (want & BatchHeader::kStepsOnly) != 0;
  for (std::int32_t row = 0; row < slot_count_; ++row) {
    const std::int32_t env = slot_envs_[static_cast<std::size_t>(row)];
    over += row_is_over(env, counted) && !(steps_only && resetting_[static_cast<std::size_t>(env)]);
  }
  return over;
}

// Whether a slot is one of an action in flight.
bool ProcessPool::has_row(const ProcessChecks::Slot& slot) const {
  if (slot.kind != slot.kTaken) return false;
  const auto e = static_cast<std::size_t>(slot.env);
  return flying_[e] && !seats_[e].buffer && seats_[e].epoch == slot.epoch;
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
  // Where the count is no help, it is the words that count, and their changes wake nobody here.
  if (ring_is_lost_ || (done & ~BatchHeader::kSuspect) >= header.rows_for(want) || (done & BatchHeader::kSuspect) != 0)
    most = std::min(most, kDoubt);
  if (!ready()) {
    futex_wait(header.done, done, most, true);
    look_around();
  }
  header.want.store(0, std::memory_order_relaxed);
}

// Now and then in a long wait: a count or a hint that was overwritten wakes nobody.
void ProcessPool::look_around() {
  const auto now = Clock::now();
  if (now - std::max(*wait_began_, looked_at_) < kLook) return;
  looked_at_ = now;
  words_due_ = true;
  if (is_async() && !ring_is_lost_) mend_hint();
}

// A row that a worker wrote.
[[gnu::always_inline]] inline void ProcessPool::inspect_row(std::int32_t env, const Batch& batch, std::int32_t row) {
  const auto e = static_cast<std::size_t>(env);
  const sm_columns& c = batch.buffer->columns.c;
  const auto phase = checks_.fault_phase(env, seats_[e].epoch);
  if (!phase || (c.players && !checks_.players(c, row))) [[unlikely]] {
    faults_.add(spoil_row(env, *batch.buffer, row, phase ? "the players of a row" : "what is said of a row"));
    return;
  }
  ProcessChecks::Note& note = row_notes_[e];
  note.offset = checks_.note_offset(env);
  if (note.offset != 0) {
    note = checks_.note(env);
    noted_.emplace_back(row, env);
  }
  if (*phase < 0 && failures_[e] == 0) [[likely]] return;
  const bool is_good_step = *phase < 0 ? !seats_[e].is_reset : c.ended[row] != 0;
  if (is_good_step) failures_[e] = 0;
  if (*phase < 0) return;
  const sm_env_state& state = table_.state(env);
  faults_.add({env, *phase, state.episode, state.elapsed, ++failures_[e], "", Fault::kRaised});
}

// Which env each row belongs to is known here: what the workers wrote is replaced by it.
void ProcessPool::inspect(Batch& batch, bool assigned) {
  const sm_columns& c = batch.buffer->columns.c;
  if (wait_began_) usual_wait_ += (Clock::now() - *wait_began_ - usual_wait_) / 4;
  wait_began_.reset();
  was_early_ = false;
  noted_.clear();
  const Lock lock(mutex_);
  const std::vector<std::int32_t>& envs = assigned ? assigned_envs_ : slot_envs_;
  if (batch.rows > (assigned ? std::ssize(assigned_envs_) : slot_count_)) give_in("a batch was taken that is not ready");
  if (!assigned) first_open_ = head_ + 1;
  found_over_ = 0;
  std::int32_t* const ids = row_env_.data();
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    const std::int32_t env = envs[static_cast<std::size_t>(row)];
    const auto e = static_cast<std::size_t>(env);
    ids[row] = c.env_id[row] = env;
    flying_[e] = 0;
    if (!answered_here_[e]) inspect_row(env, batch, row);
    if (c.players) row_players_[static_cast<std::size_t>(row)] = checks_.players(c, row).value_or(spec_.max_num_players);
  }
  copy_flags(c.terminated, row_terminated_.data(), batch.rows);
  copy_flags(c.truncated, row_truncated_.data(), batch.rows);
  batch.any_ended = copy_flags(c.ended, row_ended_.data(), batch.rows);  // as the rows say
  batch.env_id = row_env_.data();
  if (batch.players) batch.players = row_players_.data();
  batch.terminated = row_terminated_.data();
  batch.truncated = row_truncated_.data();
  batch.ended = row_ended_.data();
}

bool ProcessPool::read_note(std::int32_t env, const Copy& copy) {
  const auto e = static_cast<std::size_t>(env);
  const Lock lock(mutex_);  // the monitor unmaps what is gone
  if (saved_notes_[e]) {
    if (saved_notes_[e]->good) copy(saved_notes_[e]->bytes);
    return saved_notes_[e]->good;
  }
  const ProcessChecks::Note note = row_notes_[e];
  if (answered_here_[e] || note.offset == 0) return true;
  const auto found = read_outbox(env, note);
  if (found.size() != note.bytes) return false;
  return seal_of(copy(found), env, seats_[e].epoch) == note.seal;  // of the copy, which nobody else can change
}

Fault ProcessPool::spoil(const Batch& batch, std::int32_t row) {
  const auto r = static_cast<std::size_t>(row);
  const Lock lock(mutex_);
  row_players_[r] = spec_.max_num_players;
  row_terminated_[r] = row_ended_[r] = 0;
  row_truncated_[r] = 1;
  return spoil_row(row_env_[r], *batch.buffer, row, "what came with a row");
}

// In the outbox of the life that was asked last.
std::span<const std::byte> ProcessPool::read_outbox(std::int32_t env, const ProcessChecks::Note& note) {
  const Life* life = roster_.crew_of(env).find(asked(env).incarnation);
  if (!life || !life->outbox) return {};
  return life->outbox->read(note.offset, note.bytes);
}

// ---- calls -------------------------------------------------------------------------------------

bool ProcessPool::at_rest(std::int32_t env) {
  const Lock lock(mutex_);
  check_whole();
  return is_over(env, false);
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
    save_notes(worker_of(env), asked(env).incarnation);  // the call takes over the word of a row not yet received
    call_faults_[e].reset();
    saved_calls_[e].reset();
    if (is_lost(env)) {
      call_faults_[e] = roster_.crew_of(env).loss;
      call_faults_[e]->env = env;
      call_faults_[e]->phase = SM_IN_CALL;
      return;  // at rest as it is
    }
    calling_[e] = 1;
    queue(env, call_mail_[e], {0, -1, Order::kCall, 0, monotonic_ns(), false});
  }
  ring_bell(worker_of(env));
}

std::optional<Fault> ProcessPool::take_call(std::int32_t env, std::vector<std::byte>& answer) {
  const auto e = static_cast<std::size_t>(env);
  const Lock lock(mutex_);
  calling_[e] = 0;
  if (call_faults_[e]) return std::exchange(call_faults_[e], std::nullopt);
  bool good = false;
  if (saved_calls_[e]) {
    answer = saved_calls_[e]->bytes;
    good = saved_calls_[e]->good;
  } else {
    const ProcessChecks::Note note = checks_.call(env);
    const auto found = read_outbox(env, note);
    answer.assign(found.begin(), found.end());
    good = answer.size() == note.bytes && seal_of(answer, env, asked(env).epoch) == note.seal;
  }
  if (good) return std::nullopt;
  Fault fault = found_broken(env, "the answer to a call");
  fault.env = env;
  fault.phase = SM_IN_CALL;
  return fault;
}

// ---- ending ------------------------------------------------------------------------------------

void ProcessPool::ask_to_stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    for (std::int32_t w = 0; w < process_.num_workers; ++w) tell_to_stop(w);
  }
  for (std::int32_t w = 0; w < process_.num_workers; ++w) ring_bell(w);
  wake_monitor();
}

void ProcessPool::tell_to_stop(std::int32_t worker) {
  tables_.worker(worker).stop.store(roster_.crew(worker).life.number, std::memory_order_seq_cst);
}

bool ProcessPool::stopped() const {
  const Lock lock(mutex_);
  return roster_.all_ended();
}

void ProcessPool::wait_stopped(nanoseconds most) {
  Lock lock(mutex_);
  ended_.wait_for(lock, most, [this] { return roster_.all_ended(); });
}

// ---- measurements ------------------------------------------------------------------------------

double ProcessPool::step_cost_ns() const {
  std::uint64_t busy = 0, steps = 0;
  for (std::int32_t w = 0; w < process_.num_workers; ++w) {
    busy += checks_.busy_ns(w);
    steps += checks_.steps(w);
  }
  return steps ? static_cast<double>(busy) / static_cast<double>(steps) : 0.0;
}

std::vector<ProcessPool::WorkerStats> ProcessPool::worker_stats() const {
  std::vector<WorkerStats> out;
  const Lock lock(mutex_);
  for (std::int32_t w = 0; w < process_.num_workers; ++w) {
    const Crew& crew = roster_.crew(w);
    out.push_back({crew.life.pid, crew.life.number != 0, static_cast<double>(checks_.busy_ns(w)) * 1e-9,
                   checks_.steps(w), crew.restarts,
                   crew.life.outbox ? crew.life.outbox->memory() : 0});
  }
  return out;
}

std::vector<double> ProcessPool::step_percentiles(std::int32_t env, std::span<const double> parts) const {
  std::array<std::uint32_t, StepTimes::kBuckets> counts;
  std::uint64_t all = 0;
  for (int i = 0; i < StepTimes::kBuckets; ++i) all += counts[static_cast<std::size_t>(i)] = checks_.step_count(env, i);
  std::vector<double> out;
  for (const double part : parts) {
    std::uint64_t below = 0;
    double value = 0.0;
    for (int i = 0; i < StepTimes::kBuckets && all != 0; ++i) {
      below += counts[static_cast<std::size_t>(i)];
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
