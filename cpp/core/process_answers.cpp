// What the pool does in place of workers that are gone: every action gets its row.
#include <algorithm>
#include <cstring>

#include "core/process_pool.h"

namespace stepmill {
namespace {

// A different seed for an env that is built anew: the same one would play the same episodes again.
std::uint64_t next_seed(std::uint64_t seed, std::uint32_t life) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (life + std::uint64_t{1});
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) >> 1;  // below 2^63, as seeds are
}

}  // namespace

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
  if (state.failures < SM_MOST_FAILURES) state.failures += 1;
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
  commit(*buffer->header, 1, resetting_[e], ended, true);
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

}  // namespace stepmill
