// The caller's side of a process pool: waits for a batch and takes it.
#include "core/process/process_pool.h"

#include <algorithm>

namespace stepmill {
namespace {

using std::chrono::nanoseconds;

// How long to sleep at most if no count wakes the caller.
constexpr nanoseconds kDoubt = std::chrono::milliseconds(1);

}  // namespace

// Whether no process will touch what the env was last asked for: its row is counted, or the worker that should count it
// is gone, and then the pool has answered everything that was missing.
bool ProcessPool::is_over(std::int32_t env, bool counted) {
  const Asked& its = books_.asked(env);
  if (its.incarnation == 0) return true;
  const auto now = checks_.word(env, its);
  if (now && (now->stage == Stage::kRest || (now->stage == Stage::kDone && counted))) return true;
  if (!books_.roster.may_live(worker_of(env), its.incarnation)) return true;
  if (!now) books_.found_broken(env, "the state of an env");
  return false;
}

// Whether the action is over whose row is in flight. A call comes only after it.
bool ProcessPool::row_is_over(std::int32_t env, bool counted) {
  const std::uint32_t epoch = books_.seat(env).epoch;
  return (counted && checks_.is_written(env, epoch)) || books_.asked(env).epoch != epoch || is_over(env, counted);
}

// Counts only tell when to look; the words say what is there. So no worker writes into a batch that was returned, and a
// wrong count only delays a batch.
bool ProcessPool::ready() {
  if (found_over_ != 0 && found_over_ == wanted()) return true;  // what is over stays over
  const bool counted = Pool::ready();
  const bool suspect = (awaited()->header->done.load(std::memory_order_seq_cst) & BatchHeader::kSuspect) != 0;
  if (!counted && !suspect && !books_.is_broken() && !words_due_) return false;
  words_due_ = false;
  const Lock lock(books_.mutex);
  books_.check_whole();
  const bool over = rows_are_over(counted);
  found_over_ = over ? wanted() : 0;
  return over;
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
  // An env that is over has a slot, so we check this before the slots.
  const bool all = over && all_in_ring_are_over();
  if (!over || (all && !enough(slots_over(want, counted)))) {
    books_.break_down("which env has which row");
    books_.check_whole();
  }
  return false;
}

bool ProcessPool::all_in_ring_are_over() {
  for (std::int32_t env = 0; env < num_envs(); ++env)
    if (const Seat& seat = books_.seat(env); seat.in_flight && !seat.buffer && !row_is_over(env, false)) return false;
  return true;
}

// How many of the `wanted` rows of the next batch are over. Nothing: we cannot tell which env has which slot.
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

// Whether a slot belongs to an action in flight.
bool ProcessPool::has_row(const ProcessChecks::Slot& slot) const {
  if (slot.kind != slot.kTaken) return false;
  const Seat& seat = books_.seat(slot.env);
  return seat.in_flight && !seat.buffer && seat.epoch == slot.epoch;
}

void ProcessPool::work_or_wait(nanoseconds most) {
  BatchHeader& header = *awaited()->header;
  const std::uint32_t want = wanted();
  if (const auto sleep = pace_.sleep_for(most)) {
    most = *sleep;
  } else {
    const SpinBudget::Licence licence(SpinBudget::instance());
    if (licence && spin_until(WaitPace::kAwake, [&] { return ready(); })) return;
  }
  header.want.store(want, std::memory_order_seq_cst);
  const std::uint32_t done = header.done.load(std::memory_order_seq_cst);
  // If the count does not help, the words decide, and a change of a word does not wake the caller.
  const bool is_suspect = (done & BatchHeader::kSuspect) != 0;
  if (is_suspect || done >= header.rows_for(want)) most = std::min(most, kDoubt);
  if (!ready()) {
    futex_wait(header.done, done, most, true);
    look_around();
  }
  header.want.store(0, std::memory_order_relaxed);
}

// Called now and then in a long wait: an overwritten count or hint does not wake the caller.
void ProcessPool::look_around() {
  if (pace_.look_is_due()) doubt_counts();
}

void ProcessPool::doubt_counts() {
  words_due_ = true;
  // Without the lock: only the caller opens and closes batches, and the hint is an atomic that workers move, too.
  if (is_async()) books_.mend_hint();
}

// A row that a worker wrote.
[[gnu::always_inline]] inline void ProcessPool::inspect_row(std::int32_t env, const Batch& batch, std::int32_t row) {
  const sm_columns& c = batch.buffer->columns.c;
  const auto phase = checks_.fault_phase(env, books_.seat(env).epoch);
  if (!phase) [[unlikely]] {
    faults_.add(books_.spoil_row(env, *batch.buffer, row, "what is said of a row"));
    return;
  }
  books_.inbox.add_row(env, row);
  if (*phase < 0 && books_.failures(env) == 0) [[likely]] return;
  const bool is_good_step = *phase < 0 ? !books_.seat(env).is_reset : c.ended[row] != 0;
  if (is_good_step) books_.failures(env) = 0;
  if (*phase < 0) return;
  const sm_env_state& state = table_.state(env);
  faults_.add({env, *phase, state.episode, state.elapsed, ++books_.failures(env), "", Fault::kRaised});
}

// The pool knows which env each row belongs to: this replaces what the workers wrote.
void ProcessPool::inspect(Batch& batch, bool assigned) {
  const sm_columns& c = batch.buffer->columns.c;
  pace_.end();
  const Lock lock(books_.mutex);
  const std::vector<std::int32_t>& envs = assigned ? assigned_envs_ : slot_envs_;
  if (batch.rows > (assigned ? std::ssize(assigned_envs_) : slot_count_)) {
    books_.break_down("how many rows a batch has");
    books_.check_whole();
  }
  if (!assigned) books_.first_open = head_ + 1;
  found_over_ = 0;
  books_.inbox.begin_batch();
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    const std::int32_t env = envs[static_cast<std::size_t>(row)];
    c.env_id[row] = env;
    received_.set_env(row, env);
    Seat& seat = books_.seat(env);
    seat.in_flight = false;
    if (!seat.answered_here) inspect_row(env, batch, row);
  }
  received_.put_into(batch);
}

bool ProcessPool::read_note(std::int32_t env, const Inbox::Copy& copy) {
  const Lock lock(books_.mutex);  // the monitor unmaps the outboxes of ended workers
  return books_.seat(env).answered_here || books_.inbox.read_note(env, books_.seat(env).epoch, copy);
}

Fault ProcessPool::spoil(const Batch& batch, std::int32_t row) {
  const Lock lock(books_.mutex);
  const Fault fault = books_.spoil_row(received_.env(row), *batch.buffer, row, "what came with a row");
  received_.spoil(batch.buffer->columns.c, row);
  return fault;
}

}  // namespace stepmill
