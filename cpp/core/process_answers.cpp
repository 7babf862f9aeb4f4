// What the pool does in place of workers that are gone: every action gets its row.
#include <algorithm>
#include <cstring>

#include "core/failed_row.h"
#include "core/process_pool.h"

namespace stepmill {
namespace {

// A killed process is gone in milliseconds, unless a driver or a debugger holds it.
constexpr std::uint64_t kEndPatience = 10'000'000'000;

// A different seed for an env that is built anew: the same one would play the same episodes again.
std::uint64_t next_seed(std::uint64_t seed, std::uint32_t life) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (life + std::uint64_t{1});
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) >> 1;  // below 2^63, as seeds are
}

}  // namespace

// ---- what cannot be true -------------------------------------------------------------------------

// The memory of an env, or of what it said, was overwritten: whose it is, is replaced. Who wrote there is not known.
Fault ProcessPool::found_broken(std::int32_t env, const char* what) {
  Fault fault;
  fault.kind = Fault::kDied;
  fault.phase = SM_IN_STEP;
  fault.message = std::string("the memory that its worker process shares with the pool was overwritten (") + what +
                  "), by code of this env or of another one of the pool: the worker is replaced";
  const std::int32_t worker = worker_of(env);
  if (roster_.crew(worker).life.number == asked(env).incarnation && roster_.condemn(worker, fault)) wake_monitor();
  return fault;
}

// A row that is there, but not to be believed.
Fault ProcessPool::spoil_row(std::int32_t env, Buffer& buffer, std::int32_t row, const char* what) {
  const Fault fault = found_broken(env, what);
  fill_row(env, buffer.columns, row);
  take_back(env, seats_[static_cast<std::size_t>(env)].epoch);
  return end_by_fault(env, fault);
}

// Claims set out from the hint, and would look for ever from a wrong one.
void ProcessPool::mend_hint() {
  if (!ring_.hint_is_good(first_open_, end_open_)) ring_.set_hint(first_open_);
}

// Whose the slots are cannot be said any more. So nobody may fill them: all workers end, and then every action that
// would have had a slot is answered in a ring that is laid out anew.
void ProcessPool::lose_ring() {
  if (ring_is_lost_) return;
  ring_is_lost_ = true;
  ring_lost_at_ = monotonic_ns();
  ring_loss_ = Fault{};
  ring_loss_.kind = Fault::kDied;
  ring_loss_.phase = SM_IN_STEP;
  ring_loss_.message =
      "the memory in which worker processes say which rows are whose was overwritten, by code of an env of the pool: "
      "all workers are replaced";
  for (std::int32_t w = 0; w < process_.num_workers; ++w) {
    roster_.condemn(w, ring_loss_);
    const Crew& crew = roster_.crew(w);
    if (crew.life.number != 0) continue;
    for (std::int32_t env = crew.first; env < crew.end(); ++env) give_up(env, crew.next_number(), ring_loss_);
  }
  wake_monitor();
}

// By the caller, who alone knows which batches are open. False: not yet.
bool ProcessPool::restore_ring() {
  for (const Crew& crew : roster_.crews()) {
    if (!crew.broken && crew.leaving.empty()) continue;
    if (monotonic_ns() - ring_lost_at_ < kEndPatience) return false;
    give_in("a worker process that should have ended has not");
  }
  for (std::uint32_t number = head_; number != opened_; ++number) {
    BatchHeader& header = *ring_buffer(number)->header;
    for (auto* count : {&header.done, &header.want, &header.resets, &header.any_ended})
      count->store(0, std::memory_order_relaxed);
    ring_.open(number, ring_buffer(number)->offset);
  }
  first_open_ = head_;
  end_open_ = opened_;
  ring_.set_hint(head_);
  sealed_rows_ = 0;
  ring_is_lost_ = false;
  for (std::int32_t env = 0; env < num_envs(); ++env) {
    const Seat& seat = seats_[static_cast<std::size_t>(env)];
    if (flying_[static_cast<std::size_t>(env)] && !seat.buffer)
      answer_row(env, {seat.epoch, 0, Stage::kFault}, ring_loss_, std::nullopt);
  }
  return true;
}

void ProcessPool::give_in(const std::string& why) {
  broken_ = "the memory that the pool shares with its worker processes was overwritten, by code of an env, and cannot be "
            "mended: " + why + ". Close the pool and make it again";
  roster_.kill_all();
  throw BrokenMemory(broken_);
}

// ---- giving up ---------------------------------------------------------------------------------

void ProcessPool::retire(std::int32_t worker, const Fault& reason, bool start_again) {
  const Crew& crew = roster_.crew(worker);
  const std::uint32_t number = crew.life.number;
  save_notes(worker, number);
  roster_.retire(worker, reason, start_again && !stopping_);
  for (std::int32_t env = crew.first; env < crew.end(); ++env) give_up(env, number, reason);
}

// Answers for an env that waits for, or is run by, that life of its worker. A word that cannot be true says nothing of
// whether a row is being written: such an env is answered when the life is buried.
void ProcessPool::give_up(std::int32_t env, std::uint32_t incarnation, const Fault& reason) {
  for (;;) {
    if (asked(env).incarnation != incarnation) return;
    const auto now = checks_.word(env, asked(env));
    if (!now || (now->stage != Stage::kQueued && now->stage != Stage::kRunning)) return;
    std::uint64_t seen = now->pack();
    if (!tables_.word(env).compare_exchange_strong(seen, now->at(Stage::kFault).pack(), std::memory_order_seq_cst))
      continue;  // it went on meanwhile: look again
    Fault fault = reason;
    const Activity activity = checks_.activity(env);
    if (fault.phase == SM_IN_STEP && now->stage == Stage::kRunning &&
        (activity == Activity::kReset || activity == Activity::kResetAfterEnd))
      fault.phase = SM_IN_RESET;
    answer(env, *now, fault, std::nullopt);
    return;
  }
}

// Whether the caller waits for what an env was asked last.
bool ProcessPool::is_awaited(std::int32_t env) const {
  const auto e = static_cast<std::size_t>(env);
  return asked(env).is_call ? calling_[e] : flying_[e];
}

void ProcessPool::bury(std::int32_t worker, std::uint32_t number) {
  const Crew& crew = roster_.crew(worker);
  const Fault reason = crew.loss;
  for (std::int32_t env = crew.first; env < crew.end(); ++env) {
    const Asked its = asked(env);
    if (its.incarnation != number || !is_awaited(env)) continue;
    const auto now = checks_.word(env, its);
    if (now && now->stage == Stage::kRest) continue;
    if (now && now->stage == Stage::kDone) {
      if (!its.is_call) doubt(env);
      continue;
    }
    const bool claims = !its.is_call && !seats_[static_cast<std::size_t>(env)].buffer;
    const auto slot = claims ? find_slot(env, its.epoch) : std::nullopt;
    if (claims && !slot) mend_hint();  // it may have looked for one in vain
    answer(env, {its.epoch, its.incarnation, Stage::kWriting}, reason, slot);
  }
  save_notes(worker, number);
  roster_.remove(worker, number);
  announce_rest(tables_.worker(worker));
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
void ProcessPool::save_notes(std::int32_t worker, std::uint32_t incarnation) {
  const Crew& crew = roster_.crew(worker);
  for (std::int32_t env = crew.first; env < crew.end(); ++env) {
    const auto e = static_cast<std::size_t>(env);
    const Asked& its = asked(env);
    if (its.incarnation != incarnation || !checks_.is_idle(env, its)) continue;
    const auto keep = [&](std::optional<Saved>& saved, const ProcessChecks::Note& note) {
      if (saved) return;
      const auto found = read_outbox(env, note);
      saved.emplace();
      saved->bytes.assign(found.begin(), found.end());
      saved->good = found.size() == note.bytes && seal_of(saved->bytes, env, its.epoch) == note.seal;
    };
    if (its.is_call && calling_[e]) {
      keep(saved_calls_[e], checks_.call(env));
    } else if (!its.is_call && !answered_here_[e]) {
      // What is said of a row that cannot be true is found when the row is received.
      if (!checks_.fault_phase(env, its.epoch)) continue;
      if (const auto note = checks_.note(env); note.offset != 0) keep(saved_notes_[e], note);
      else if (!saved_notes_[e]) saved_notes_[e].emplace();
    }
  }
}

std::optional<SlotRing::Slot> ProcessPool::find_slot(std::int32_t env, std::uint32_t epoch) const {
  for (std::uint32_t number = first_open_; number != end_open_; ++number)
    for (std::int32_t row = 0; row < options_.batch_size; ++row) {
      const ProcessChecks::Slot slot = checks_.slot(number, static_cast<std::uint32_t>(row));
      if (slot.kind == slot.kTaken && slot.env == env && slot.epoch == epoch)
        return SlotRing::Slot{number, static_cast<std::uint32_t>(row), 0};
    }
  return std::nullopt;
}

// In place of the worker. `from` is the word as it was; it is ours now.
void ProcessPool::answer(std::int32_t env, EnvWord from, const Fault& reason, std::optional<SlotRing::Slot> slot) {
  const auto e = static_cast<std::size_t>(env);
  if (!asked(env).is_call) {
    answer_row(env, from, reason, slot);
  } else {
    call_faults_[e] = reason;
    call_faults_[e]->env = env;
    call_faults_[e]->phase = SM_IN_CALL;
    asked(env).given_up = false;
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
  if (!buffer && !ring_is_lost_) {
    if (!slot)
      slot = ring_.claim_between(first_open_, end_open_, static_cast<std::uint32_t>(env), from.epoch);
    if (!slot) lose_ring();
  }
  if (!buffer && ring_is_lost_) return take_back(env, from.epoch);  // `restore_ring` gives it a row
  if (!buffer) {
    buffer = ring_buffer(slot->number);
    row = slot->row;
  }
  const bool ended = keep_end(env, from, *buffer, row);
  if (!ended) fill_row(env, buffer->columns, row);
  faults_.add(end_by_fault(env, reason));
  // At rest only when it is counted: a suspect batch goes by the words.
  commit(*buffer->header, 1, resetting_[e], ended, true);
  take_back(env, from.epoch);
}

// The env has no action any more, and no life: it is not lost once more. Nothing happens where it was asked something
// else since.
void ProcessPool::take_back(std::int32_t env, std::uint32_t epoch) {
  if (asked(env).epoch != epoch) return;
  asked(env).incarnation = 0;
  asked(env).given_up = false;
  tables_.word(env).store(EnvWord{epoch, 0, Stage::kRest}.pack(), std::memory_order_seq_cst);
}

// The pool's answer in place of the env's: it begins anew.
Fault ProcessPool::end_by_fault(std::int32_t env, Fault fault) {
  const auto e = static_cast<std::size_t>(env);
  sm_env_state& state = table_.state(env);
  state.phase = SM_ENDED;
  state.command = SM_STEP;
  if (state.failures < SM_MOST_FAILURES) state.failures += 1;
  reseed(env);
  fault.env = env;
  fault.episode = state.episode;
  fault.step = state.elapsed;
  fault.failures = ++failures_[e];
  answered_here_[e] = 1;
  saved_notes_[e].reset();
  return fault;
}

// An env that is built anew is seeded anew, unless a seed waits for its next reset.
void ProcessPool::reseed(std::int32_t env) {
  sm_reset_request& request = table_.reset_request(env);
  if (request.has_seed) return;
  request.seed = next_seed(seeds_[static_cast<std::size_t>(env)], roster_.crew_of(env).next);
  request.has_seed = 1;
}

// `same_step`, and the env failed in the reset after a good end: reward and end stand, the observation is
// the final one.
bool ProcessPool::keep_end(std::int32_t env, EnvWord from, Buffer& buffer, std::int64_t row) {
  const bool ran = from.stage == Stage::kRunning || from.stage == Stage::kWriting;
  if (!ran || checks_.activity(env) != Activity::kResetAfterEnd) return false;
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
    const std::uint32_t next = checks_.last_good(env) + 1;
    std::byte* last = tables_.last_observation(env, next);
    for (std::size_t i = 0; i < spec_.observation.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(spec_.observation[i].row_bytes()) *
                         static_cast<std::size_t>(spec_.max_num_players);
      std::memcpy(last, static_cast<std::byte*>(columns.observation[i]) + static_cast<std::size_t>(row) * bytes, bytes);
      last += bytes;
    }
    tables_.report(env).last_good = next;
  }
  columns.c.env_id[row] = env;
  columns.c.ended[row] = 1;
  table_.state(env).elapsed = columns.c.elapsed_step[row];
  return true;
}

void ProcessPool::fill_row(std::int32_t env, const Columns& columns, std::int64_t row) {
  const sm_shared& shared = table_.shared();
  // Leaf by leaf, one behind the other.
  const std::byte* next = tables_.keeps_last() ? tables_.last_observation(env, checks_.last_good(env)) : nullptr;
  write_failed_row(shared, columns.c, row, env, shared.state[env].elapsed, [&](int leaf) {
    const std::byte* const last = next;
    if (next) next += shared.observation_bytes[leaf] * shared.max_num_players;
    return last;
  });
}

}  // namespace stepmill
