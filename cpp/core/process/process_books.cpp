#include "core/process/process_books.h"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "core/failed_row.h"
#include "core/next_seed.h"
#include "core/process/worker_bells.h"

namespace stepmill {
namespace {

// Some rows of a batch may be there without being counted, so the words decide about it. Wakes the caller to look.
void doubt(Buffer& buffer, const RowsEvent& rows_event) {
  buffer.header->done.fetch_or(BatchHeader::kSuspect, std::memory_order_seq_cst);
  futex_wake(buffer.header->done, 1, true);
  rows_event.ring();
}

}  // namespace

ProcessBooks::ProcessBooks(const Parts& parts, std::span<const std::int32_t> first_envs,
                           std::vector<std::uint64_t> seeds, int obituaries, std::span<WorkerRecord> shown)
    : roster(parts.options.table.num_envs, first_envs, parts.checks, asked_, obituaries, shown),
      inbox(parts.options.table.num_envs, parts.checks, roster, asked_),
      pool_(parts),
      asked_(static_cast<std::size_t>(parts.options.table.num_envs)),
      seats_(asked_.size()),
      calls_(asked_.size()),
      failures_(asked_.size()),
      seeds_(std::move(seeds)),
      event_(make_event()) {
  for (std::int32_t env = 0; env < num_envs(); ++env) pool_.tables.report(env).fault_phase = -1;
}

void ProcessBooks::wake_monitor() {
  const std::uint64_t one = 1;
  (void)!write(event_.get(), &one, sizeof one);
}

// ---- giving up ---------------------------------------------------------------------------------

void ProcessBooks::retire(std::int32_t worker, const Fault& reason, bool start_again) {
  const Crew& crew = roster.crew(worker);
  const std::uint32_t number = crew.life.number;
  save_notes(worker, number);
  roster.retire(worker, reason, start_again && !stopping);
  for (std::int32_t env = crew.first; env < crew.end(); ++env) give_up(env, number, reason);
  if (roster.wants_attention()) pool_.rows_event.ring();  // a caller in an event loop starts the next one
}

// Answers for an env that waits for, or is run by, that life of its worker. An impossible word does not tell whether a
// row is being written: such an env is answered when the end of the life is certain.
void ProcessBooks::give_up(std::int32_t env, std::uint32_t incarnation, const Fault& reason) {
  for (;;) {
    if (asked(env).incarnation != incarnation) return;
    const auto now = pool_.checks.word(env, asked(env));
    if (!now || (now->stage != Stage::kQueued && now->stage != Stage::kRunning)) return;
    std::uint64_t seen = now->pack();
    if (!pool_.tables.word(env).compare_exchange_strong(seen, now->at(Stage::kFault).pack(), std::memory_order_seq_cst))
      continue;  // it made progress meanwhile: look again
    Fault fault = reason;
    const Activity activity = pool_.checks.activity(env);
    if (fault.phase == SM_IN_STEP && now->stage == Stage::kRunning &&
        (activity == Activity::kReset || activity == Activity::kResetAfterEnd))
      fault.phase = SM_IN_RESET;
    answer(env, *now, fault);
    return;
  }
}

void ProcessBooks::bury(std::int32_t worker, std::uint32_t number) {
  const Crew& crew = roster.crew(worker);
  const Fault reason = crew.loss;
  for (std::int32_t env = crew.first; env < crew.end(); ++env) {
    const Asked its = asked(env);
    if (its.incarnation != number || !is_awaited(env)) continue;
    const auto now = pool_.checks.word(env, its);
    if (now && now->stage == Stage::kRest) continue;
    if (now && now->stage == Stage::kDone) {
      if (!its.is_call) doubt_row(env);
      continue;
    }
    const bool claims = !its.is_call && !seat(env).buffer;
    const auto slot = claims ? find_slot(env, its.epoch) : std::nullopt;
    if (claims && !slot) mend_hint();  // it may have searched for one in vain
    answer(env, {its.epoch, its.incarnation, Stage::kWriting}, reason, slot);
  }
  save_notes(worker, number);
  roster.remove(worker, number);
  announce_rest(pool_.tables.worker(worker));
  pool_.rows_event.ring();  // it may have been about to, see `BatchHeader::want`
}

void ProcessBooks::entrust(std::int32_t worker) {
  const Crew& crew = roster.crew(worker);
  for (std::int32_t env = crew.first; env < crew.end(); ++env) {
    Asked& its = asked(env);
    its.incarnation = crew.life.number;
    its.given_up = false;
    pool_.tables.word(env).store(EnvWord{its.epoch, its.incarnation, Stage::kRest}.pack(), std::memory_order_seq_cst);
  }
}

// The row of an env is complete, but perhaps not counted.
void ProcessBooks::doubt_row(std::int32_t env) {
  Buffer* buffer = seat(env).buffer;
  if (!buffer) {
    const auto slot = find_slot(env, seat(env).epoch);
    if (!slot) return;
    buffer = ring_buffer(slot->number);
  }
  doubt(*buffer, pool_.rows_event);
}

void ProcessBooks::save_notes(std::int32_t worker, std::uint32_t incarnation) {
  const Crew& crew = roster.crew(worker);
  for (std::int32_t env = crew.first; env < crew.end(); ++env) {
    const Asked& its = asked(env);
    if (its.incarnation != incarnation || !pool_.checks.is_idle(env, its)) continue;
    if (its.is_call && call(env).is_open) inbox.save_answer(env);
    if (!its.is_call && !seat(env).answered_here) inbox.save_note(env);
  }
}

std::optional<SlotRing::Slot> ProcessBooks::find_slot(std::int32_t env, std::uint32_t epoch) const {
  for (std::uint32_t number = first_open; number != end_open; ++number)
    for (std::int32_t row = 0; row < pool_.options.batch_size; ++row) {
      const ProcessChecks::Slot slot = pool_.checks.slot(number, static_cast<std::uint32_t>(row));
      if (slot.kind == slot.kTaken && slot.env == env && slot.epoch == epoch)
        return SlotRing::Slot{number, static_cast<std::uint32_t>(row), 0};
    }
  return std::nullopt;
}

void ProcessBooks::answer(std::int32_t env, EnvWord from, const Fault& reason, std::optional<SlotRing::Slot> slot) {
  if (!asked(env).is_call) {
    answer_row(env, from, reason, slot);
  } else {
    fail_call(env, reason);
    asked(env).given_up = false;
    pool_.tables.word(env).store(from.at(Stage::kRest).pack(), std::memory_order_seq_cst);
  }
  announce_rest(pool_.tables.worker(roster.worker_of(env)));
}

void ProcessBooks::fail_call(std::int32_t env, Fault reason) {
  reason.env = env;
  reason.phase = SM_IN_CALL;
  call(env).fault = std::move(reason);
}

void ProcessBooks::answer_row(std::int32_t env, EnvWord from, const Fault& reason,
                              std::optional<SlotRing::Slot> slot) {
  Buffer* buffer = seat(env).buffer;
  std::int64_t row = seat(env).row;
  if (!buffer) {
    if (!slot)
      slot = pool_.ring.claim_between(first_open, end_open, static_cast<std::uint32_t>(env), from.epoch);
    if (!slot) {
      break_down("which env has which row");
      return take_back(env, from.epoch);
    }
    buffer = ring_buffer(slot->number);
    row = slot->row;
  }
  const bool ended = keep_end(env, from, *buffer, row);
  if (!ended) fill_row(env, buffer->columns, row);
  pool_.faults.add(end_by_fault(env, reason));
  // At rest only after it was counted: the words decide about a suspect batch.
  commit(*buffer->header, 1, pool_.resetting[static_cast<std::size_t>(env)], ended, true,
         pool_.rows_event.descriptor());
  take_back(env, from.epoch);
}

// The env has no action and no life any more: it cannot be lost again. Does nothing if it was asked something else
// since.
void ProcessBooks::take_back(std::int32_t env, std::uint32_t epoch) {
  if (asked(env).epoch != epoch) return;
  asked(env).incarnation = 0;
  asked(env).given_up = false;
  pool_.tables.word(env).store(EnvWord{epoch, 0, Stage::kRest}.pack(), std::memory_order_seq_cst);
}

// The pool's answer in place of the env's: the env starts over.
Fault ProcessBooks::end_by_fault(std::int32_t env, Fault fault) {
  sm_env_state& state = pool_.table.state(env);
  state.phase = SM_ENDED;
  state.command = SM_STEP;
  if (state.failures < SM_MOST_FAILURES) state.failures += 1;
  reseed(env);
  fault.env = env;
  fault.episode = state.episode;
  fault.step = state.elapsed;
  fault.failures = ++failures(env);
  seat(env).answered_here = true;
  inbox.forget_note(env);
  return fault;
}

void ProcessBooks::reseed(std::int32_t env) {
  sm_reset_request& request = pool_.table.reset_request(env);
  if (request.has_seed) return;
  request.seed = next_seed(seed(env), pool_.former_lives[static_cast<std::size_t>(env)] + roster.crew_of(env).next);
  request.has_seed = 1;
}

// `same_step`, and the env failed in the reset after a good end: reward and end stay, and the observation is the final
// one. So are the infos that are arrays; an info dict is lost, because it comes with the note, which is written after
// the reset.
bool ProcessBooks::keep_end(std::int32_t env, EnvWord from, Buffer& buffer, std::int64_t row) {
  const bool ran = from.stage == Stage::kRunning || from.stage == Stage::kWriting;
  if (!ran || pool_.checks.activity(env) != Activity::kResetAfterEnd) return false;
  const BatchLayout single(pool_.spec, 1, true, pool_.options.table.reward_is_float32);
  const BatchLayout& layout = seat(env).buffer ? pool_.assigned_layout : pool_.ring_layout;
  single.copy_row(pool_.tables.ending(env), 0, layout, pool_.arena.at(buffer.offset), row);
  const sm_shared& shared = pool_.table.shared();
  const sm_columns& columns = buffer.columns.c;
  show_end(shared, columns, row);
  if (pool_.tables.keeps_last())  // it is the last good one now; the life that kept the other is given up
    pool_.tables.keep_last(env, pool_.checks.last_good(env) + 1, shared, columns, row);
  columns.env_id[row] = env;
  columns.ended[row] = 1;
  pool_.table.state(env).elapsed = columns.elapsed_step[row];
  return true;
}

void ProcessBooks::fill_row(std::int32_t env, const Columns& columns, std::int64_t row) {
  const sm_shared& shared = pool_.table.shared();
  // Leaf by leaf, one after another.
  const std::byte* next =
      pool_.tables.keeps_last() ? pool_.tables.last_observation(env, pool_.checks.last_good(env)) : nullptr;
  write_failed_row(shared, columns.c, row, env, shared.state[env].elapsed, [&](int leaf) {
    const std::byte* const last = next;
    if (next) next += shared.observation_bytes[leaf] * shared.max_num_players;
    return last;
  });
}

// ---- memory that an env has overwritten ---------------------------------------------------------

Fault ProcessBooks::found_broken(std::int32_t env, const char* what) {
  const Fault fault{
      .phase = SM_IN_STEP,
      .message = std::string("the memory that its worker process shares with the pool was overwritten (") + what +
                 "), by code of this env or of another one of the pool: the worker is replaced",
      .kind = Fault::kDied};
  const std::int32_t worker = roster.worker_of(env);
  if (roster.crew(worker).life.number == asked(env).incarnation && roster.condemn(worker, fault)) wake_monitor();
  return fault;
}

Fault ProcessBooks::spoil_row(std::int32_t env, Buffer& buffer, std::int32_t row, const char* what) {
  const Fault fault = found_broken(env, what);
  fill_row(env, buffer.columns, row);
  take_back(env, seat(env).epoch);
  return end_by_fault(env, fault);
}

void ProcessBooks::mend_hint() {
  if (!pool_.ring.hint_is_good(first_open, end_open)) pool_.ring.set_hint(first_open);
}

void ProcessBooks::break_down(const std::string& what) {
  if (is_broken()) return;
  broken_ = "the memory that the pool shares with its worker processes was overwritten (" + what +
            "), by code of an env: close the pool and make it again";
  is_broken_.store(true, std::memory_order_release);
  stopping = true;  // nothing is started again
  roster.kill_all();
  if (first_open != end_open) doubt(*ring_buffer(first_open), pool_.rows_event);  // a sleeping caller sleeps on this one
}

}  // namespace stepmill
