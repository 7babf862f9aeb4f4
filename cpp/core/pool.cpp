#include "core/pool.h"

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
  Pool& pool;
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

Pool::Pool(const sm_env_table* table, const std::vector<Config>& configs, EnvSpec spec,
           const PoolOptions& options)
    : spec_(std::move(spec)),
      options_(options),
      arena_(Arena::create(options.arena)),
      table_(*arena_, spec_, options.table),
      caller_steps_(!table || table->never_blocks || options.num_threads == 0),
      control_offset_(lay_out_control()),
      queue_(arena_->at(control_offset_), num_envs(), options.num_threads, is_async()),
      ring_(arena_->at(control_offset_ + ReadyLanes::bytes(num_envs(), options.num_threads)), num_envs(),
            options.batch_size),
      in_flight_(static_cast<std::size_t>(num_envs())),
      ring_buffers_(ring_.places()),
      row_of_(static_cast<std::size_t>(num_envs())),
      is_assigned_(static_cast<std::size_t>(num_envs()), !is_async()),
      threads_(
          options.num_threads, options.affinity_offset, 
          [this](int thread) {
            return work_once(thread + first_thread_hand_.load(std::memory_order_relaxed));
          },
          [this] { return queue_.size() > 0; }) {
  if (table) envs_ = std::make_unique<EnvSet>(*table, configs);
  const bool same_step = options.table.autoreset == SM_SAME_STEP;
  const auto store = [&](std::int32_t rows) {
    return std::make_shared<BufferStore>(
        arena_, BatchLayout(spec_, rows, same_step, options.table.reward_is_float32));
  };
  store_ = store(options.batch_size);
  gather_store_ = is_async() ? store(num_envs()) : store_;
  backlog_.reserve(static_cast<std::size_t>(num_envs()));
}

std::size_t Pool::lay_out_control() {
  return arena_->grow(ReadyLanes::bytes(num_envs(), options_.num_threads) +
                          BatchRing::bytes(num_envs(), options_.batch_size),
                      kCacheLine);
}

Pool::~Pool() {
  threads_.stop();
  // What was in flight comes to nobody; only what the caller holds stays.
  for (; head_ != opened_; ++head_) store_->release(ring_buffers_[ring_.place(head_)]);
  if (assigned_buffer_) gather_store_->release(assigned_buffer_);
  store_->close();
  gather_store_->close();
}

// ---- sending -----------------------------------------------------------------------------------

void Pool::make_room(std::int32_t count, bool gather) {
  if (!gather && is_async())
    open_slots(ring_in_flight_ + count);
  else if (!assigned_buffer_)
    assigned_buffer_ = gather_store_->acquire();
}

void Pool::send(std::span<const std::int32_t> envs, bool gather, bool recv_follows) {
  const bool assign = gather || !is_async();
  const auto count = static_cast<std::int32_t>(envs.size());
  make_room(count, gather);  // throws where there is no memory: change nothing before
  if (assign)
    assign_rows(envs);
  else
    ring_in_flight_ += count;
  if (count == num_envs())
    std::fill(in_flight_.begin(), in_flight_.end(), std::uint8_t{1});
  else
    for (const std::int32_t env : envs) in_flight_[static_cast<std::size_t>(env)] = 1;
  if (is_async())
    for (const std::int32_t env : envs) is_assigned_[static_cast<std::size_t>(env)] = assign;

  const double work = (knows_cost() ? step_cost_ns() : kUnknownNs) * count;
  // Behind queued work even a little must queue: the caller does its backlog first, and what waits in
  // the queue would wait forever.
  const bool little = caller_steps_ && (work < kAloneNs || is_time_to_probe()) && queue_.size() == 0;
  if (!envs_ || options_.num_threads == 0 || little) {
    backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(backlog_done_));
    backlog_done_ = 0;
    backlog_.insert(backlog_.end(), envs.begin(), envs.end());
    return;
  }
  queue_.push(envs);
  call_threads(recv_follows);
}

// Row i of the batch for the i-th env sent.
void Pool::assign_rows(std::span<const std::int32_t> envs) {
  std::int32_t difference = 0;
  for (std::size_t i = 0; i < envs.size(); ++i)
    difference |= envs[i] ^ (assigned_ + static_cast<std::int32_t>(i));
  assigned_in_order_ = assigned_in_order_ && difference == 0;
  // All envs in their order is what most callers send, and then the rows are what they were.
  const bool all = assigned_in_order_ && envs.size() == row_of_.size();
  if (!all || !rows_are_ids_)
    for (std::size_t i = 0; i < envs.size(); ++i)
      row_of_[static_cast<std::size_t>(envs[i])] = assigned_ + static_cast<std::int32_t>(i);
  rows_are_ids_ = all;
  assigned_ += static_cast<std::int32_t>(envs.size());
}

// Gets threads to all that is queued.
void Pool::call_threads(bool recv_follows) {
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
bool Pool::is_time_to_probe() {
  shared_sends_ += 1;
  const bool early = shared_sends_ < 64 && (shared_sends_ & (shared_sends_ - 1)) == 0;
  return step_cost_ns() < kSlowNs && (early || shared_sends_ % 64 == 0);
}

// Makes sure that so many envs in flight will each find a slot, so that workers never allocate.
// Workers see the buffers because the queue push that follows releases them.
void Pool::open_slots(std::int32_t in_flight) {
  const auto batches = static_cast<std::uint32_t>((in_flight + options_.batch_size - 1) /
                                                  options_.batch_size);
  while (opened_ - head_ < batches) {
    Buffer* buffer = store_->acquire();
    ring_buffers_[ring_.place(opened_)] = buffer;
    ring_.open(opened_, buffer->offset);
    opened_ += 1;
  }
}

// ---- stepping ----------------------------------------------------------------------------------

std::int32_t Pool::chunk_size(std::int64_t waiting) const {
  if (!knows_cost()) return 1;  // it may be a slow one
  const double cost = std::max(1.0, step_cost_ns());
  const auto most = static_cast<std::int64_t>(kChunkNs / cost);
  const auto least = static_cast<std::int64_t>(kLeastChunkNs / cost);
  const auto share = waiting / (2 * std::max(1, hands_.load(std::memory_order_relaxed)));
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(std::clamp(share, least, most), 1, kMostChunk));
}

// One chunk from the queue, by whoever calls. False when the queue is empty.
bool Pool::work_once(int hand) {
  const int hands = std::max(1, hands_.load(std::memory_order_relaxed));
  std::int32_t envs[kMostChunk];
  const std::int32_t count = queue_.pop(hand % hands, hands, chunk_size(queue_.size()), envs);
  if (count == 0) return false;
  run({envs, static_cast<std::size_t>(count)}, false);
  return true;
}

void Pool::run(std::span<const std::int32_t> envs, bool alone) {
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
void Pool::run_assigned(std::span<const std::int32_t> envs) {
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
    commit(*assigned_buffer_->header, static_cast<std::uint32_t>(count),
           advance(job, envs.first(count)), arena_->shared());
    envs = envs.subspan(count);
  }
}

// Envs that take the next slots of the open batch: before the step where that is short, after it
// where a slow step would hold the batch back.
void Pool::run_claimed(std::span<const std::int32_t> envs) {
  const double cost = step_cost_ns();
  if (cost == 0.0 || cost > kLateNs) {
    for (const std::int32_t& env : envs) {
      Chunk chunk{*this};
      sm_job job{};
      job.context = &chunk;
      const bool ended = advance(job, {&env, 1});
      commit(*chunk.buffer->header, 1, ended, arena_->shared());
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
    commit(*buffer->header, slots.count, advance(job, part), arena_->shared());
    envs = envs.subspan(slots.count);
  }
}

bool Pool::advance(sm_job& job, std::span<const std::int32_t> envs) {
  job.shared = &table_.shared();
  job.env = envs.data();
  job.count = static_cast<std::int32_t>(envs.size());
  job.claim = &Chunk::claim;
  job.fault = &Chunk::fault;
  return envs_->advance(job);
}

void Pool::measure(Clock::time_point from, std::size_t steps, bool alone) {
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

void Pool::record_fault(std::int32_t env, std::int32_t phase, const char* message) {
  const sm_env_state& state = table_.state(env);
  std::lock_guard lock(fault_mutex_);
  faults_.push_back({env, phase, state.episode, state.elapsed, state.failures, message});
  fault_count_.fetch_add(1, std::memory_order_relaxed);
}

// ---- receiving ---------------------------------------------------------------------------------

Buffer* Pool::awaited() const {
  return assigned_ != 0 ? assigned_buffer_ : ring_buffers_[ring_.place(head_)];
}

std::int32_t Pool::expected() const {
  return assigned_ != 0 ? assigned_ : std::min(options_.batch_size, ring_in_flight_);
}

bool Pool::ready() const {
  return awaited()->header->done.load(std::memory_order_acquire) >=
         static_cast<std::uint32_t>(expected());
}

void Pool::work_or_wait(nanoseconds most) {
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
  const auto want = static_cast<std::uint32_t>(expected());
  {
    const SpinBudget::Licence licence(SpinBudget::instance());
    if (licence && spin_until(kCallerSpin, [&] { return ready(); })) return;
  }
  header.want.store(want, std::memory_order_seq_cst);
  const std::uint32_t done = header.done.load(std::memory_order_seq_cst);
  if (done < want) futex_wait(header.done, done, most, arena_->shared());
  header.want.store(0, std::memory_order_relaxed);
}

bool Pool::is_brief() const {
  const auto rest = static_cast<double>(backlog_.size() - backlog_done_);
  return short_work() && knows_cost() && step_cost_ns() * rest < kAloneNs;
}

// Steps a part of what was too little to share. What turns out to be much after all is shared then.
void Pool::work_on_backlog() {
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

Batch Pool::take_batch(std::vector<Fault>& faults) {
  Batch batch;
  batch.buffer = awaited();
  batch.rows = expected();
  batch.any_ended = batch.buffer->header->any_ended.load(std::memory_order_relaxed) != 0;
  if (assigned_ != 0) {
    batch.store = gather_store_;
    batch.all_in_order = assigned_in_order_ && assigned_ == num_envs();
    assigned_buffer_ = nullptr;
    assigned_ = 0;
    assigned_in_order_ = true;
  } else {
    batch.store = store_;
    // Fewer rows than a batch: then everything in flight is in it, and no claim can come between.
    if (batch.rows < options_.batch_size) ring_.seal(head_);
    head_ += 1;
    ring_in_flight_ -= batch.rows;
  }
  const std::int32_t* ids = batch.buffer->columns.c.env_id;
  if (batch.rows == num_envs())
    std::fill(in_flight_.begin(), in_flight_.end(), std::uint8_t{0});
  else
    for (std::int32_t i = 0; i < batch.rows; ++i) in_flight_[static_cast<std::size_t>(ids[i])] = 0;
  if (fault_count_.load(std::memory_order_relaxed) != 0) take_faults(faults);
  return batch;
}

// Moves out the faults of envs that have come back.
void Pool::take_faults(std::vector<Fault>& into) {
  std::lock_guard lock(fault_mutex_);
  const auto back = std::stable_partition(
      faults_.begin(), faults_.end(),
      [&](const Fault& fault) { return in_flight_[static_cast<std::size_t>(fault.env)] != 0; });
  into.assign(std::make_move_iterator(back), std::make_move_iterator(faults_.end()));
  faults_.erase(back, faults_.end());
  fault_count_.store(static_cast<std::int32_t>(faults_.size()), std::memory_order_relaxed);
}

// ---- stepping by the caller's own means --------------------------------------------------------

std::int32_t Pool::next_env() {
  if (!short_work()) return -1;
  const std::int32_t env = backlog_[backlog_done_++];
  if (!short_work()) {
    backlog_.clear();
    backlog_done_ = 0;
  }
  return env;
}

sm_place Pool::take_place(std::int32_t env) {
  if (is_assigned_[static_cast<std::size_t>(env)])
    return {&assigned_buffer_->columns.c, row_of_[static_cast<std::size_t>(env)]};
  const BatchRing::Slots slots = ring_.claim(1);
  claimed_ = ring_buffers_[slots.place];
  return {&claimed_->columns.c, slots.first};
}

void Pool::finish_row(std::int32_t env, bool ended) {
  Buffer* buffer = is_assigned_[static_cast<std::size_t>(env)] ? assigned_buffer_ : claimed_;
  commit(*buffer->header, 1, ended, arena_->shared());
}

}  // namespace stepmill
