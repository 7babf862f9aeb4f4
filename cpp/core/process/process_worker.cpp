#include "core/process/process_worker.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/kill_points.h"
#include "core/process/process_checks.h"

namespace stepmill {

#ifdef STEPMILL_KILL_POINTS
void (*kill_point)(const char* name) = nullptr;
#endif

namespace {

// A sleeper checks now and then, in case a wake was lost with the process that should have sent it.
constexpr auto kNap = std::chrono::milliseconds(500);

ProcessTables attached(ProcessTables tables, std::byte* base) {
  tables.attach(base);
  return tables;
}

// Ends this worker, which the pool replaces: anything that it did now could be wrong.
[[noreturn]] void throw_overwritten(const char* what, std::int32_t env) {
  throw std::runtime_error("the memory shared with the pool was overwritten: " + std::string(what) + " of env " +
                           std::to_string(env));
}

}  // namespace

ProcessWorker::ProcessWorker(int arena, int outbox, int rows_event, const EnvSpec& spec, const ProcessPlan& plan,
                             const WorkerPost& post)
    : arena_(Arena::attach(arena, plan.arena_bytes)),
      outbox_(outbox, true),
      rows_event_(rows_event),
      spec_(spec),
      plan_(plan),
      table_(*arena_, plan.table_offset, spec_, plan.table),
      tables_(attached({spec_, plan.table, plan.batch_size, plan.process},
                       arena_->at(plan.process_offset))),
      ring_(tables_.slot_ring(), plan.table.num_envs, plan.batch_size),
      worker_(post.worker),
      first_(post.first_env),
      count_(post.env_count),
      incarnation_(post.incarnation & 0xffffff),
      most_running_(plan.process.most_running_in(post.worker)),
      block_(tables_.worker(post.worker)),
      slot_layout_(spec_, plan.batch_size, plan.table.autoreset == SM_SAME_STEP, plan.table.reward_is_float32),
      gather_layout_(spec_, plan.table.num_envs, plan.table.autoreset == SM_SAME_STEP, plan.table.reward_is_float32),
      row_layout_(spec_, 1, plan.table.autoreset == SM_SAME_STEP, plan.table.reward_is_float32),
      state_(static_cast<std::size_t>(plan.table.num_envs)),
      reset_(static_cast<std::size_t>(plan.table.num_envs)),
      row_(row_layout_.bytes() + kCacheLine),
      turns_(static_cast<std::size_t>(count_)) {
  row_at_ = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::size_t>(row_.data()), kCacheLine));
  row_layout_.fill(columns_, row_at_);
  shared_ = table_.shared();
  shared_.state = state_.data();
  shared_.reset = reset_.data();
  if (tables_.keeps_last()) {
    // The stepper indexes by env id; it only touches the rows of our own envs.
    for (const Leaf& leaf : spec_.observation) {
      const auto bytes = static_cast<std::size_t>(leaf.row_bytes()) * static_cast<std::size_t>(spec_.max_num_players);
      last_leaves_.push_back(reinterpret_cast<void*>(last_.size()));
      last_.resize(last_.size() + align_up(bytes * static_cast<std::size_t>(count_), kCacheLine));
    }
    for (std::size_t i = 0; i < last_leaves_.size(); ++i) {
      const Leaf& leaf = spec_.observation[i];
      const auto row = static_cast<std::ptrdiff_t>(leaf.row_bytes() * spec_.max_num_players);
      last_leaves_[i] = last_.data() + reinterpret_cast<std::size_t>(last_leaves_[i]) - row * first_;
    }
    shared_.last_observation = last_leaves_.data();
    for (std::int32_t env = first_; env < first_ + count_; ++env) {  // what an earlier life left
      const std::byte* from = tables_.last_observation(env, tables_.report(env).last_good);
      for (std::size_t i = 0; i < last_leaves_.size(); ++i) {
        const auto bytes = spec_.observation[i].row_bytes() * spec_.max_num_players;
        std::memcpy(static_cast<std::byte*>(last_leaves_[i]) + env * bytes, from, static_cast<std::size_t>(bytes));
        from += bytes;
      }
    }
  }
  queued_.reserve(static_cast<std::size_t>(count_));
}

// ---- finding work ------------------------------------------------------------------------------

// Looks through the words. The least used env comes first: if one env is slow, the others still get their turns.
void ProcessWorker::find_queued() {
  heard_ = block_.bell.load(std::memory_order_acquire);
  turn_ended_at_ = 0;
  queued_.clear();
  for (std::int32_t env = first_; env < first_ + count_; ++env) {
    const EnvWord word = EnvWord::unpack(tables_.word(env).load(std::memory_order_acquire));
    if (word.stage == Stage::kQueued && word.incarnation == incarnation_) queued_.push_back(env);
  }
  std::stable_sort(queued_.begin(), queued_.end(), [this](std::int32_t a, std::int32_t b) {
    return turn(a).used_ns > turn(b).used_ns;
  });
}

std::int32_t ProcessWorker::next() {
  // In async mode an env that came back just now may deserve its turn before those found earlier.
  if (is_full()) return -1;
  if (queued_.empty() || block_.bell.load(std::memory_order_acquire) != heard_) find_queued();
  while (!queued_.empty()) {
    const std::int32_t env = queued_.back();
    queued_.pop_back();
    std::uint64_t seen = tables_.word(env).load(std::memory_order_acquire);
    const EnvWord word = EnvWord::unpack(seen);
    if (word.stage != Stage::kQueued || word.incarnation != incarnation_) continue;
    Turn& its = turn(env);
    its.word = word.at(Stage::kRunning);
    its.order = tables_.order(env);
    if (!its.order.is_whole(env, word.epoch)) {
      if (tables_.word(env).load(std::memory_order_acquire) != seen) continue;  // meanwhile the pool has given up on us
      throw_overwritten("an order", env);
    }
    const sm_env_state& state = table_.state(env);
    const Activity activity = is_call(env)                                                ? Activity::kCall
                              : state.phase == SM_LIVE && state.command == SM_STEP ? Activity::kStep
                                                                                   : Activity::kReset;
    // An env that was queued before the last turn starts when that turn ends: this saves reading the clock.
    const std::uint64_t now = turn_ended_at_ != 0 ? turn_ended_at_ : monotonic_ns();
    tables_.begun(env).store(pack_begun(now, activity), std::memory_order_relaxed);
    STEPMILL_KILL_POINT("before running");
    if (!tables_.word(env).compare_exchange_strong(seen, its.word.pack(), std::memory_order_acq_rel))
      continue;  // the pool was first: it has given up on us
    STEPMILL_KILL_POINT("running");
    running_ += 1;
    return env;
  }
  return -1;
}

void ProcessWorker::wait() {
  const auto something = [this] {
    return block_.bell.load(std::memory_order_acquire) != heard_ || told_to_stop();
  };
  // Stays awake for a while, as long as no other thread wants the core.
  const auto from = Clock::now();
  if (!awake_wait_.wait(something)) sleep();
  awake_wait_.learn(Clock::now() - from);
}

void ProcessWorker::sleep() {
  block_.sleeping.store(1, std::memory_order_seq_cst);
  // Ringers add to the bell before they look whether we sleep.
  if (block_.bell.load(std::memory_order_seq_cst) == heard_ && !told_to_stop())
    futex_wait(block_.bell, heard_, kNap, true);
  block_.sleeping.store(0, std::memory_order_relaxed);
}

void ProcessWorker::rise() {
  block_.sleeping.store(0, std::memory_order_relaxed);
  say_alive();
}

bool ProcessWorker::doze() {
  block_.sleeping.store(1, std::memory_order_seq_cst);
  // Ringers add to the bell before they look whether we sleep. If no more envs may run, the end of one is what we wait
  // for.
  const bool nothing = (is_full() || block_.bell.load(std::memory_order_seq_cst) == heard_) &&
                       block_.cancels.load(std::memory_order_seq_cst) == cancels_seen_ && !told_to_stop();
  if (!nothing) block_.sleeping.store(0, std::memory_order_relaxed);
  return nothing;
}

std::int32_t ProcessWorker::next_cancelled() {
  if (const std::uint32_t now = block_.cancels.load(std::memory_order_seq_cst); now != cancels_seen_) {
    cancels_seen_ = now;
    cancelled_.clear();
    for (std::int32_t env = first_; env < first_ + count_; ++env)
      if (is_cancelled(env)) cancelled_.push_back(env);
  }
  if (cancelled_.empty()) return -1;
  const std::int32_t env = cancelled_.back();
  cancelled_.pop_back();
  return env;
}

std::span<const std::byte> ProcessWorker::mail(std::int32_t env) const {
  const Order& order = turn(env).order;
  if (order.mail_bytes == 0) return {};
  // An env of another worker may have overwritten it: unpickling it could then take all memory.
  const std::span<const std::byte> mail(arena_->at(order.mail), static_cast<std::size_t>(order.mail_bytes));
  if (seal_of(mail, env, turn(env).word.epoch) != order.mail_seal) throw_overwritten("what came with an action", env);
  return mail;
}

// ---- running -----------------------------------------------------------------------------------

void ProcessWorker::advance(EnvSet& envs, std::int32_t env) {
  // Between two actions the shared rows are authoritative, even for an env that another life of this worker ran.
  state_[static_cast<std::size_t>(env)] = table_.state(env);
  reset_[static_cast<std::size_t>(env)] = table_.reset_request(env);
  fault_.clear();
  fault_phase_ = -1;
  sm_job job{};
  job.shared = &shared_;
  job.env = &env;
  job.columns = &columns_.c;
  job.first_row = 0;
  job.count = 1;
  job.context = this;
  job.fault = [](void* context, std::int32_t, std::int32_t phase, const char* message) {
    auto& self = *static_cast<ProcessWorker*>(context);
    self.fault_phase_ = phase;
    self.fault_ = message;
  };
  ended_ = envs.advance(job);
}

void ProcessWorker::leave_if_forked() const {
  if (mark_.in_child()) _exit(0);
}

// The pool does not read the row before the activity says that it is there.
void ProcessWorker::reset_after_end(std::int32_t env) {
  leave_if_forked();
  columns_.c.env_id[0] = env;
  std::memcpy(tables_.ending(env), row_at_, row_layout_.bytes());
  STEPMILL_KILL_POINT("end kept");
  tables_.begun(env).store(pack_begun(monotonic_ns(), Activity::kResetAfterEnd), std::memory_order_release);
}

// ---- writing -----------------------------------------------------------------------------------

bool ProcessWorker::enter_writing(std::int32_t env) {
  std::uint64_t seen = turn(env).word.pack();
  STEPMILL_KILL_POINT("before writing");
  const bool entered = tables_.word(env).compare_exchange_strong(
      seen, turn(env).word.at(Stage::kWriting).pack(), std::memory_order_acq_rel);
  STEPMILL_KILL_POINT("writing");
  return entered;
}

void ProcessWorker::end_turn(std::int32_t env) {
  const std::uint64_t begun = tables_.begun(env).load(std::memory_order_relaxed);
  turn_ended_at_ = monotonic_ns();
  const std::uint64_t spent = turn_ended_at_ - (begun >> 2);
  if (static_cast<Activity>(begun & 3) == Activity::kStep) tables_.times(env).add(spent);
  running_ -= 1;
  if (has_loop()) {  // what it used was counted where it ran, and an env that is taken now begins now
    turn_ended_at_ = 0;
  } else {
    add_work(env, spent);
  }
  block_.steps.fetch_add(1, std::memory_order_relaxed);
}

bool ProcessWorker::publish(std::int32_t env, std::span<const std::byte> note) {
  leave_if_forked();
  end_turn(env);
  // The block belongs to this env and was read with the previous row: it is safe to write it early.
  Turn& its = turn(env);
  if (!note.empty()) std::memcpy(outbox_.reserve(its.note, note.size()), note.data(), note.size());
  const std::uint64_t seal = note.empty() ? 0 : seal_of(note, env, its.word.epoch);
  if (!enter_writing(env)) return false;

  const Order& order = its.order;
  const bool claims = order.row < 0;
  std::uint64_t buffer = order.buffer;
  std::int64_t row = order.row;
  if (claims) {
    const SlotRing::Slot slot = ring_.claim(static_cast<std::uint32_t>(env), its.word.epoch);
    buffer = slot.offset;
    row = slot.row;
    STEPMILL_KILL_POINT("claimed");
  }
  std::byte* to = arena_->at(buffer);
  // In sync mode every batch has the gather's layout.
  const BatchLayout& layout = claims ? slot_layout_ : gather_layout_;
  row_layout_.copy_row(row_at_, 0, layout, to, row);
  STEPMILL_KILL_POINT("copied");
  table_.state(env) = state_[static_cast<std::size_t>(env)];
  table_.reset_request(env) = reset_[static_cast<std::size_t>(env)];
  Report& report = tables_.report(env);
  report.note = note.empty() ? 0 : its.note.offset;
  report.note_bytes = note.size();
  report.note_seal = seal;
  report.epoch = its.word.epoch;
  report.fault_phase = fault_phase_;
  // A row with a good end whose reset failed shows a good observation too.
  if (tables_.keeps_last() && (fault_phase_ < 0 || columns_.c.ended[0] != 0))
    tables_.keep_last(env, report.last_good + 1, shared_, columns_.c, 0);
  STEPMILL_KILL_POINT("reported");
  std::uint64_t seen = its.word.at(Stage::kWriting).pack();
  if (!tables_.word(env).compare_exchange_strong(seen, its.word.at(Stage::kDone).pack(), std::memory_order_seq_cst))
    return false;
  STEPMILL_KILL_POINT("done");
  commit(*BatchLayout::header(to), 1, static_cast<std::uint32_t>(order.is_reset), ended_, true, rows_event_);
  STEPMILL_KILL_POINT("committed");
  // If the caller was faster, the env already has its next action.
  seen = its.word.at(Stage::kDone).pack();
  tables_.word(env).compare_exchange_strong(seen, its.word.at(Stage::kRest).pack(), std::memory_order_seq_cst);
  STEPMILL_KILL_POINT("rest");
  announce_rest(block_);
  return true;
}

bool ProcessWorker::publish_call(std::int32_t env, std::span<const std::byte> answer) {
  leave_if_forked();
  end_turn(env);
  Turn& its = turn(env);
  if (!answer.empty()) std::memcpy(outbox_.reserve(its.call, answer.size()), answer.data(), answer.size());
  const std::uint64_t seal = seal_of(answer, env, its.word.epoch);
  if (!enter_writing(env)) return false;
  Report& report = tables_.report(env);
  report.call = its.call.offset;
  report.call_bytes = answer.size();
  report.call_seal = seal;
  std::uint64_t seen = its.word.at(Stage::kWriting).pack();
  if (!tables_.word(env).compare_exchange_strong(seen, its.word.at(Stage::kRest).pack(), std::memory_order_seq_cst))
    return false;
  STEPMILL_KILL_POINT("call at rest");
  announce_rest(block_);
  return true;
}

}  // namespace stepmill
