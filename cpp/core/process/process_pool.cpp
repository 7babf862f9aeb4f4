#include "core/process/process_pool.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace stepmill {
namespace {

using std::chrono::nanoseconds;

PoolOptions shared_options(PoolOptions options) {
  options.arena = Arena::Kind::kShared;
  // Workers keep the last observations themselves, in memory that survives a kill (`ProcessTables`).
  options.table.keep_last_observation = false;
  return options;
}

}  // namespace

ProcessPool::ProcessPool(EnvSpec spec, const PoolOptions& options, const ProcessOptions& process,
                         const Deadlines& deadlines, std::span<const std::int32_t> first_envs,
                         std::vector<std::uint64_t> seeds, int obituaries)
    : Pool(std::move(spec), shared_options(options),
           BatchRing::places_for(options.table.num_envs, options.batch_size), process.num_workers),
      process_(process),
      watches_resets_(deadlines.step != deadlines.reset),
      tables_(spec_, options.table, options.batch_size, process),
      tables_offset_(arena_->grow(tables_.bytes(), 2 * kCacheLine)),
      bells_((tables_.attach(arena_->at(tables_offset_)), tables_), process),
      ring_(tables_.slot_ring(), num_envs(), options.batch_size),
      checks_(num_envs(), tables_, ring_),
      pace_(process.num_workers < available_cores()),
      slot_envs_(static_cast<std::size_t>(num_envs())),
      slot_looks_(static_cast<std::size_t>(num_envs())),
      received_(num_envs(), spec_.max_num_players),
      to_ring_(static_cast<std::size_t>(process.num_workers)),
      mail_(static_cast<std::size_t>(num_envs())),
      books_({spec_, options_, *arena_, store_->layout(), gather_store_->layout(), ring_buffers_, resetting_,
              former_lives_, table_, faults_, tables_, ring_, checks_, rows_event_},
             first_envs, std::move(seeds), obituaries,
             {counters_->pool().workers(), static_cast<std::size_t>(process.num_workers)}),
      monitor_(books_, tables_, checks_, bells_, process, deadlines, num_envs()) {
  show_arena();
  counters_->publish();
}

// Where the workers count, in their own memory: they have no other.
void ProcessPool::show_arena() {
  PoolRecord& record = counters_->pool();
  struct stat status{};
  if (fstat(arena_->descriptor(), &status) != 0) return;
  set(record.arena, static_cast<std::uint64_t>(arena_->descriptor()));
  set(record.arena_inode, static_cast<std::uint64_t>(status.st_ino));
  const ProcessTables::Places places = tables_.places();
  set(record.env_words, tables_offset_ + places.words);
  set(record.env_begun, tables_offset_ + places.begun);
  set(record.env_times, tables_offset_ + places.times);
  set(record.worker_blocks, tables_offset_ + places.workers);
}

// The monitor ends after this, with the members.
ProcessPool::~ProcessPool() { kill(); }

ProcessPlan ProcessPool::plan() const {
  return {options_.table, options_.batch_size, process_, arena_->reserved(), table_.offset(), tables_offset_};
}

// ---- workers -----------------------------------------------------------------------------------

WorkerRoster::Life ProcessPool::make_life(int pid, int pidfd, int stack, int outbox) {
  WorkerRoster::Life life;
  life.pid = pid;
  life.outbox = std::make_unique<Outbox>(outbox, false);
  life.pidfd = Descriptor::duplicate(pidfd);
  life.stack = Descriptor::duplicate(stack);
  return life;
}

void ProcessPool::admit(std::int32_t worker, std::uint32_t incarnation, int pid, int pidfd, int stack, int outbox,
                        std::uint64_t start_ns) {
  WorkerRoster::Life life = make_life(pid, pidfd, stack, outbox);
  life.start_deadline = start_ns ? monotonic_ns() + start_ns : 0;
  {
    const Lock lock(books_.mutex);
    books_.roster.admit(worker, incarnation, std::move(life));
    if (books_.stopping) tell_to_stop(worker);
  }
  books_.wake_monitor();
}

std::vector<std::pair<std::int32_t, std::uint32_t>> ProcessPool::to_restart() {
  const Lock lock(books_.mutex);
  return books_.roster.to_restart();
}

std::vector<std::string> ProcessPool::take_news() {
  const Lock lock(books_.mutex);
  return books_.take_news();
}

void ProcessPool::restart_failed(std::int32_t worker, std::uint32_t incarnation, const std::string& why) {
  const Lock lock(books_.mutex);
  books_.roster.record_failed_start(worker, incarnation);
  const std::uint32_t number = books_.roster.crew(worker).life.number;
  books_.retire(worker, {.phase = SM_IN_CONSTRUCTOR, .message = why, .kind = Fault::kDied}, false);
  books_.bury(worker, number);
}

std::uint32_t ProcessPool::next_incarnation(std::int32_t worker) const {
  const Lock lock(books_.mutex);
  return books_.roster.crew(worker).next;
}

void ProcessPool::name_successor(std::int32_t worker, std::uint32_t incarnation, int pid, int pidfd, int stack,
                                 int outbox) {
  successors_.push_back({worker, incarnation, make_life(pid, pidfd, stack, outbox)});
}

bool ProcessPool::install_successors() {
  if (successors_.empty()) return false;
  {
    Lock lock(books_.mutex);
    for (Successor& one : successors_) {
      monitor_.replace(lock, one.worker);
      books_.roster.admit_successor(one.worker, one.incarnation, std::move(one.life));
      books_.entrust(one.worker);
      if (books_.stopping) tell_to_stop(one.worker);
    }
  }
  successors_.clear();
  books_.wake_monitor();
  return true;
}

void ProcessPool::drop_successors() {
  const Lock lock(books_.mutex);
  for (const Successor& one : successors_) {
    one.life.signal(SIGKILL);
    books_.roster.skip(one.worker, one.incarnation);
  }
  successors_.clear();
}

// Nothing is in flight without somebody who looks whether the loops are alive.
void ProcessPool::ring_bell(std::int32_t worker) {
  bells_.ring(worker);
  if (process_.has_loops() && monitor_.rests()) books_.wake_monitor();
}

// ---- sending -----------------------------------------------------------------------------------

void ProcessPool::set_mail(std::int32_t env, std::span<const std::byte> mail) {
  mail_[static_cast<std::size_t>(env)].put(*arena_, mail);
}

// Whether the action is a reset, or counts as one. The env's worker has just written that memory, so we read it only if
// it matters.
bool ProcessPool::will_reset(std::int32_t env) const {
  const sm_env_state& state = table_.state(env);
  return state.phase != SM_LIVE || state.command != SM_STEP;
}

void ProcessPool::open_batch(std::uint32_t number, Buffer& buffer) {
  const Lock lock(books_.mutex);
  ring_.open(number, buffer.offset);
  books_.end_open = number + 1;
}

void ProcessPool::start(std::span<const std::int32_t> envs, bool assigned, bool) {
  std::fill(to_ring_.begin(), to_ring_.end(), 0);
  found_over_ = 0;
  if (assigned && assigned_ == static_cast<std::int32_t>(envs.size())) assigned_envs_.clear();
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t buffer = assigned ? assigned_buffer_->offset : 0;
  {
    const Lock lock(books_.mutex);
    for (const std::int32_t env : envs) {
      const auto e = static_cast<std::size_t>(env);
      if (assigned) assigned_envs_.push_back(env);
      books_.inbox.forget_note(env);
      Seat& seat = books_.seat(env);
      seat.in_flight = true;
      seat.answered_here = false;
      seat.buffer = assigned ? assigned_buffer_ : nullptr;
      seat.row = assigned ? row_of_[e] : -1;
      seat.epoch = books_.asked(env).epoch + 1;
      seat.is_reset = books_.failures(env) != 0 && will_reset(env);
      if (table_.reset_request(env).has_seed) books_.seed(env) = table_.reset_request(env).seed;
      const bool lost = books_.is_lost(env);
      if (lost) books_.reseed(env);
      // A reset starts over, whatever was lost.
      if (lost && table_.state(env).command != SM_RESET) {
        mail_[e].clear();
        books_.asked(env) = Asked{.epoch = seat.epoch};
        books_.answer_row(env, {seat.epoch, 0, Stage::kFault}, books_.roster.crew_of(env).loss);
        continue;
      }
      queue(env, mail_[e], {buffer, seat.row, Order::kAct, resetting_[e], now, watches_resets_ && will_reset(env)});
      to_ring_[static_cast<std::size_t>(worker_of(env))] = 1;
    }
  }
  for (std::size_t w = 0; w < to_ring_.size(); ++w)
    if (to_ring_[w]) ring_bell(static_cast<std::int32_t>(w));
}

// For a row that the pool has already: its worker is done with it, and so is whatever the env was asked last.
Pool::Row ProcessPool::take_row(std::int32_t env) {
  const auto e = static_cast<std::size_t>(env);
  const bool assigned = is_assigned_[e] != 0;
  found_over_ = 0;
  const Lock lock(books_.mutex);
  if (assigned && row_of_[e] == 0) assigned_envs_.clear();
  if (assigned) assigned_envs_.push_back(env);
  books_.inbox.forget_note(env);
  Seat& seat = books_.seat(env);
  seat = Seat{.buffer = assigned ? assigned_buffer_ : nullptr,
              .row = assigned ? row_of_[e] : -1,
              .epoch = books_.asked(env).epoch,
              .in_flight = true,
              .answered_here = true};
  if (assigned) return {*assigned_buffer_, gather_store_->layout(), row_of_[e]};
  const auto slot =
      ring_.claim_between(books_.first_open, books_.end_open, static_cast<std::uint32_t>(env), seat.epoch);
  if (!slot) {
    books_.break_down("which env has which row");
    books_.check_whole();
  }
  return {*ring_buffer(slot->number), store_->layout(), slot->row};
}

// ---- states ------------------------------------------------------------------------------------

// The pool has answered for it, and no worker has had it since.
bool ProcessPool::is_new(std::int32_t env) const {
  const Lock lock(books_.mutex);
  return Pool::is_new(env) || books_.asked(env).incarnation == 0;
}

std::uint32_t ProcessPool::lives_here(std::int32_t env) const {
  const Lock lock(books_.mutex);
  return books_.lives_here(env);
}

void ProcessPool::adopt(std::int32_t env, std::optional<std::uint32_t> lives) {
  const Lock lock(books_.mutex);
  Pool::adopt(env, lives);
  books_.failures(env) = table_.state(env).failures;
  books_.seed(env) = table_.reset_request(env).seed;
}

// ---- calls: questions to envs, besides their actions --------------------------------------------

bool ProcessPool::at_rest(std::int32_t env) {
  const Lock lock(books_.mutex);
  books_.check_whole();
  return is_over(env, false);
}

void ProcessPool::wait_at_rest(std::int32_t env, std::chrono::nanoseconds most) {
  WorkerBlock& block = tables_.worker(worker_of(env));
  block.watched.store(1, std::memory_order_seq_cst);
  const std::uint32_t seen = block.rested.load(std::memory_order_seq_cst);
  if (!at_rest(env)) futex_wait(block.rested, seen, most, true);
  block.watched.store(0, std::memory_order_relaxed);
}

void ProcessPool::queue_call(std::int32_t env, std::span<const std::byte> call) {
  {
    const Lock lock(books_.mutex);
    Call& its = books_.call(env);
    its.mail.put(*arena_, call);  // throws if there is no memory: change nothing before
    // The call takes over the word of a row not yet received.
    books_.save_notes(worker_of(env), books_.asked(env).incarnation);
    its.fault.reset();
    books_.inbox.forget_answer(env);
    if (books_.is_lost(env)) return books_.fail_call(env, books_.roster.crew_of(env).loss);  // it stays at rest
    its.is_open = true;
    queue(env, its.mail, {0, -1, Order::kCall, 0, monotonic_ns(), false});
  }
  ring_bell(worker_of(env));
}

std::optional<Fault> ProcessPool::take_call(std::int32_t env, std::vector<std::byte>& answer) {
  const Lock lock(books_.mutex);
  Call& its = books_.call(env);
  its.is_open = false;
  if (!its.fault && !books_.inbox.read_answer(env, answer))
    books_.fail_call(env, books_.found_broken(env, "the answer to a call"));
  return std::exchange(its.fault, std::nullopt);
}

void ProcessPool::cancel(std::span<const std::int32_t> envs) {
  if (!process_.can_cancel) return;
  const Lock lock(books_.mutex);
  for (const std::int32_t env : envs) {
    tables_.cancelled(env).store(books_.asked(env).epoch, std::memory_order_release);
    tables_.worker(worker_of(env)).cancels.fetch_add(1, std::memory_order_seq_cst);
    ring_bell(worker_of(env));
  }
}

// ---- ending ------------------------------------------------------------------------------------

void ProcessPool::ask_to_stop() {
  {
    const Lock lock(books_.mutex);
    books_.stopping = true;
    for (std::int32_t w = 0; w < process_.num_workers; ++w) tell_to_stop(w);
  }
  for (std::int32_t w = 0; w < process_.num_workers; ++w) ring_bell(w);
  books_.wake_monitor();
}

void ProcessPool::tell_to_stop(std::int32_t worker) {
  tables_.worker(worker).stop.store(books_.roster.crew(worker).life.number, std::memory_order_seq_cst);
}

bool ProcessPool::stopped() const {
  const Lock lock(books_.mutex);
  return books_.roster.all_ended();
}

void ProcessPool::wait_stopped(nanoseconds most) { monitor_.wait_all_ended(most); }

void ProcessPool::kill() {
  const Lock lock(books_.mutex);
  books_.roster.kill_all();
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

std::vector<std::size_t> ProcessPool::outbox_bytes() const {
  std::vector<std::size_t> out;
  const Lock lock(books_.mutex);
  for (std::int32_t w = 0; w < process_.num_workers; ++w) {
    const WorkerRoster::Life& life = books_.roster.crew(w).life;
    out.push_back(life.outbox ? life.outbox->memory() : 0);
  }
  return out;
}

}  // namespace stepmill
