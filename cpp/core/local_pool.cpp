#include "core/local_pool.h"

#include <algorithm>

namespace stepmill {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Work the caller does alone: below this, sharing it costs more than it saves.
constexpr double kAloneNs = 14'000;
// What a chunk should take: long against the cost of taking it, short against a batch.
constexpr double kChunkNs = 12'000, kLeastChunkNs = 2'000;
// Work that justifies one more thread.
constexpr double kShareNs = 8'000;
// An env slower than this is not stepped by the caller: a batch may be ready before it.
constexpr double kSlowNs = 200'000;
// One slower than this takes its slot only when its step is done: the open batch must not wait for it.
constexpr double kLateNs = 20'000;
// Cost assumed of an env that was never measured.
constexpr double kUnknownNs = 1'000;
// A step at least this long is measured well by any thread. A shorter one, on several threads, mostly
// shows how they get in each other's way.
constexpr float kTrustedNs = 10'000;
constexpr auto kCallerSpin = microseconds(40);

}  // namespace

// What the stepper calls back into: carries a claim made after a slow step to `run_claimed`, and
// failures to the pool.
struct Chunk {
  LocalPool& pool;
  Buffer* buffer = nullptr;

  static sm_place claim(void* context, std::int32_t) {
    auto& chunk = *static_cast<Chunk*>(context);
    const BatchRing::Slots slots = chunk.pool.ring_.claim(1);
    chunk.buffer = chunk.pool.ring_buffers_[slots.place];
    return {&chunk.buffer->columns.c, slots.first};
  }
  static void fault(void* context, std::int32_t env, std::int32_t phase, const char* message) {
    static_cast<Chunk*>(context)->pool.record_fault(env, phase, message);
  }
};

LocalPool::LocalPool(std::unique_ptr<EnvSet> envs, EnvSpec spec, const PoolOptions& options)
    : Pool(std::move(spec), options, BatchRing::places_for(options.table.num_envs, options.batch_size)),
      envs_(std::move(envs)),
      caller_steps_(envs_->never_blocks() || options.num_threads == 0),
      control_offset_(lay_out_control()),
      queue_(arena_->at(control_offset_), num_envs(), options.num_threads, is_async()),
      ring_(arena_->at(control_offset_ + ReadyLanes::bytes(num_envs(), options.num_threads)), num_envs(),
            options.batch_size),
      threads_(
          options.num_threads, options.affinity_offset,
          [this](int thread) {
            return work_once(thread + first_thread_hand_.load(std::memory_order_relaxed));
          },
          [this] { return queue_.size() > 0; }) {
  backlog_.reserve(static_cast<std::size_t>(num_envs()));
}

std::size_t LocalPool::lay_out_control() {
  return arena_->grow(ReadyLanes::bytes(num_envs(), options_.num_threads) +
                          BatchRing::bytes(num_envs(), options_.batch_size),
                      kCacheLine);
}

LocalPool::~LocalPool() { threads_.stop(); }

// ---- sending -----------------------------------------------------------------------------------

void LocalPool::start(std::span<const std::int32_t> envs, bool, bool recv_follows) {
  const double work = (knows_cost() ? step_cost_ns() : kUnknownNs) * static_cast<double>(envs.size());
  // Behind queued work even a little must queue: the caller does its backlog first, and what waits in
  // the queue would wait forever.
  const bool little = caller_steps_ && (work < kAloneNs || is_time_to_probe()) && queue_.size() == 0;
  if (options_.num_threads == 0 || little) {
    backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(backlog_done_));
    backlog_done_ = 0;
    backlog_.insert(backlog_.end(), envs.begin(), envs.end());
    return;
  }
  queue_.push(envs);
  call_threads(recv_follows);
}

// Gets threads to all that is queued.
void LocalPool::call_threads(bool recv_follows) {
  const double cost = knows_cost() ? step_cost_ns() : kUnknownNs;
  const double work = cost * static_cast<double>(queue_.size());
  // The caller is one of the hands where it helps. Only a lone thread is called while the caller may
  // be elsewhere: then stepping goes on beside it.
  caller_helps_ = caller_steps_ && cost < kSlowNs && (recv_follows || options_.num_threads > 1);
  const int caller = caller_helps_ ? 1 : 0;
  const int wanted = static_cast<int>(std::min<double>(options_.num_threads - caller, work / kShareNs));
  const int threads = std::max(wanted, 1 - caller);  // somebody must
  hands_.store(threads + caller, std::memory_order_relaxed);
  first_thread_hand_.store(caller, std::memory_order_relaxed);
  threads_.call(threads);
}

// What a step costs on several threads says little about what it costs on one, so now and then, more
// often in the beginning, the caller begins a batch alone to see.
bool LocalPool::is_time_to_probe() {
  shared_sends_ += 1;
  const bool early = shared_sends_ < 64 && (shared_sends_ & (shared_sends_ - 1)) == 0;
  return step_cost_ns() < kSlowNs && (early || shared_sends_ % 64 == 0);
}

// ---- stepping ----------------------------------------------------------------------------------

std::int32_t LocalPool::chunk_size(std::int64_t waiting) const {
  if (!knows_cost()) return 1;  // it may be a slow one
  const double cost = std::max(1.0, step_cost_ns());
  const auto most = static_cast<std::int64_t>(kChunkNs / cost);
  const auto least = static_cast<std::int64_t>(kLeastChunkNs / cost);
  const auto share = waiting / (2 * std::max(1, hands_.load(std::memory_order_relaxed)));
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(std::clamp(share, least, most), 1, kMostChunk));
}

// One chunk from the queue, by whoever calls. False when the queue is empty.
bool LocalPool::work_once(int hand) {
  const int hands = std::max(1, hands_.load(std::memory_order_relaxed));
  std::int32_t envs[kMostChunk];
  const std::int32_t count = queue_.pop(hand % hands, hands, chunk_size(queue_.size()), envs);
  if (count == 0) return false;
  run({envs, static_cast<std::size_t>(count)}, false);
  return true;
}

void LocalPool::run(std::span<const std::int32_t> envs, bool alone) {
  // Reading the clock twice costs as much as a few cheap steps: measure small chunks now and then.
  const double cost = step_cost_ns();
  const std::size_t steps = envs.size();
  const bool small = cost > 0.0 && cost * static_cast<double>(steps) < kAloneNs / 2;
  // A reset says nothing of a step.
  const sm_env_state& first = table_.state(envs[0]);
  const bool steps_first = first.phase == SM_LIVE && first.command == SM_STEP;
  const bool measured =
      steps_first && (!small || runs_.fetch_add(1, std::memory_order_relaxed) % 8 == 0);
  const auto from = measured ? Clock::now() : Clock::time_point();
  if (!is_async()) {
    run_assigned(envs);
  } else {
    // Results of a gather and of ordinary sends go to different batches: split the chunk.
    while (!envs.empty()) {
      const auto kind = is_assigned_[static_cast<std::size_t>(envs[0])];
      std::size_t end = 1;
      while (end < envs.size() && is_assigned_[static_cast<std::size_t>(envs[end])] == kind) ++end;
      if (kind)
        run_assigned(envs.first(end));
      else
        run_claimed(envs.first(end));
      envs = envs.subspan(end);
    }
  }
  if (measured) measure(from, steps, alone);
}

// Envs whose rows the caller has set: sync mode, and gathers. Rows are set in the order of sending,
// so those of a chunk follow each other, unless what was sent in between went another way.
void LocalPool::run_assigned(std::span<const std::int32_t> envs) {
  const auto row = [this](std::int32_t env) { return row_of_[static_cast<std::size_t>(env)]; };
  while (!envs.empty()) {
    const std::int32_t first = row(envs[0]);
    std::size_t count = 1;
    while (count < envs.size() && row(envs[count]) == first + static_cast<std::int32_t>(count)) ++count;
    Chunk chunk{*this};
    sm_job job{};
    job.columns = &assigned_buffer_->columns.c;
    job.first_row = first;
    job.context = &chunk;
    commit(*assigned_buffer_->header, static_cast<std::uint32_t>(count), resets_among(envs.first(count)),
           advance(job, envs.first(count)), arena_->shared());
    envs = envs.subspan(count);
  }
}

// Envs that take the next slots of the open batch: before the step where that is short, after it
// where a slow step would hold the batch back.
void LocalPool::run_claimed(std::span<const std::int32_t> envs) {
  const double cost = step_cost_ns();
  if (cost == 0.0 || cost > kLateNs) {
    for (const std::int32_t& env : envs) {
      Chunk chunk{*this};
      sm_job job{};
      job.context = &chunk;
      const bool ended = advance(job, {&env, 1});
      commit(*chunk.buffer->header, 1, resets_among({&env, 1}), ended, arena_->shared());
    }
    return;
  }
  while (!envs.empty()) {
    Chunk chunk{*this};
    const BatchRing::Slots slots = ring_.claim(static_cast<std::uint32_t>(envs.size()));
    const auto part = envs.first(slots.count);
    Buffer* buffer = ring_buffers_[slots.place];
    sm_job job{};
    job.columns = &buffer->columns.c;
    job.first_row = slots.first;
    job.context = &chunk;
    commit(*buffer->header, slots.count, resets_among(part), advance(job, part), arena_->shared());
    envs = envs.subspan(slots.count);
  }
}

bool LocalPool::advance(sm_job& job, std::span<const std::int32_t> envs) {
  job.shared = &table_.shared();
  job.env = envs.data();
  job.count = static_cast<std::int32_t>(envs.size());
  job.claim = &Chunk::claim;
  job.fault = &Chunk::fault;
  return envs_->advance(job);
}

void LocalPool::measure(Clock::time_point from, std::size_t steps, bool alone) {
  const auto spent = std::chrono::duration<float, std::nano>(Clock::now() - from).count();
  const float sample = std::max(1.0f, spent / static_cast<float>(steps));
  const float before = cost_ns_.load(std::memory_order_relaxed);
  float cost = before;
  if (before == 0.0f)
    cost = sample;
  else if (sample < before)
    cost = before + (alone ? 0.75f : 0.25f) * (sample - before);
  else if (alone || sample >= kTrustedNs)
    // Slowly, and never more than double: a thread that was preempted measures its absence.
    cost = before + std::min(before, (sample - before) / 16);
  cost_ns_.store(cost, std::memory_order_relaxed);
}

void LocalPool::record_fault(std::int32_t env, std::int32_t phase, const char* message) {
  const sm_env_state& state = table_.state(env);
  std::lock_guard lock(fault_mutex_);
  faults_.push_back({env, phase, state.episode, state.elapsed, state.failures, message});
  fault_count_.fetch_add(1, std::memory_order_relaxed);
}

// ---- receiving ---------------------------------------------------------------------------------

void LocalPool::work_or_wait(nanoseconds most) {
  if (short_work()) {
    work_on_backlog();
    return;
  }
  // Where the caller is no hand, threads were called. But envs may have turned slow since, or no
  // thread could be started.
  bool helps = caller_helps_ && step_cost_ns() < kSlowNs;
  if (!helps && queue_.size() > 0) {
    call_threads(false);
    helps = threads_.started() == 0;
  }
  if (helps && work_once(0)) return;

  BatchHeader& header = *awaited()->header;
  const std::uint32_t want = wanted();
  {
    const SpinBudget::Licence licence(SpinBudget::instance());
    if (licence && spin_until(kCallerSpin, [&] { return ready(); })) return;
  }
  header.want.store(want, std::memory_order_seq_cst);
  const std::uint32_t done = header.done.load(std::memory_order_seq_cst);
  if (done < header.rows_for(want)) futex_wait(header.done, done, most, arena_->shared());
  header.want.store(0, std::memory_order_relaxed);
}

bool LocalPool::is_brief() const {
  const auto rest = static_cast<double>(backlog_.size() - backlog_done_);
  return short_work() && knows_cost() && step_cost_ns() * rest < kAloneNs;
}

// Steps a part of what was too little to share. What turns out to be much after all is shared then.
void LocalPool::work_on_backlog() {
  const std::span<const std::int32_t> rest(backlog_.data() + backlog_done_,
                                           backlog_.size() - backlog_done_);
  // An env that was never measured might take any time: look at one first.
  const auto most = knows_cost() ? static_cast<std::size_t>(kAloneNs / step_cost_ns()) : 1;
  const auto count = std::clamp<std::size_t>(most, 1, rest.size());
  backlog_done_ += count;
  run(rest.first(count), true);
  const double work = step_cost_ns() * static_cast<double>(rest.size() - count);
  if (work > kAloneNs && options_.num_threads > 0) {
    queue_.push(rest.subspan(count));
    backlog_done_ = backlog_.size();
    call_threads(true);
  }
  if (!short_work()) {
    backlog_.clear();
    backlog_done_ = 0;
  }
}

// Moves out the faults of envs that have come back.
void LocalPool::take_faults(std::vector<Fault>& into) {
  if (fault_count_.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(fault_mutex_);
  const auto back = std::stable_partition(
      faults_.begin(), faults_.end(),
      [&](const Fault& fault) { return in_flight_[static_cast<std::size_t>(fault.env)] != 0; });
  into.assign(std::make_move_iterator(back), std::make_move_iterator(faults_.end()));
  faults_.erase(back, faults_.end());
  fault_count_.store(static_cast<std::int32_t>(faults_.size()), std::memory_order_relaxed);
}

}  // namespace stepmill
