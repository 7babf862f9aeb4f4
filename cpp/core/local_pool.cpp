#include "core/local_pool.h"

#include <algorithm>

namespace stepmill {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Work that the caller does alone: below this, sharing it costs more than it saves.
constexpr double kAloneNs = 14'000;
// How long a chunk should take: much longer than taking it, much shorter than a batch.
constexpr double kChunkNs = 12'000, kLeastChunkNs = 2'000;
// Work that justifies one more thread.
constexpr double kShareNs = 8'000;
// An env slower than this is not stepped by the caller: a batch may be ready before it.
constexpr double kSlowNs = 200'000;
// One slower than this takes its slot only when its step is done: the open batch must not wait for it.
constexpr double kLateNs = 20'000;
constexpr auto kCallerSpin = microseconds(40);
// Threads beside the caller that make it worthwhile to share what is no stepping.
constexpr int kFewestHelpers = 3;

}  // namespace

// Receives the stepper's callbacks: passes a claim that was made after a slow step to `run_claimed`, and failures to
// the pool.
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
    : Pool(std::move(spec), options, BatchRing::places_for(options.table.num_envs, options.batch_size),
           options.num_threads),
      envs_(std::move(envs)),
      may_block_(!envs_->never_blocks()),
      caller_steps_(!may_block_ || options.num_threads == 0),
      control_offset_(lay_out_control()),
      queue_(arena_->at(control_offset_), num_envs(), options.num_threads, is_async()),
      ring_(arena_->at(control_offset_ + ReadyLanes::bytes(num_envs(), options.num_threads)), num_envs(),
            options.batch_size),
      inside_(may_block_ ? static_cast<std::size_t>(options.num_threads) : 0),
      threads_(
          options.num_threads, options.affinity_offset,
          [this](int thread) {
            return pieces_.work_once() ||
                   work_once(thread + first_thread_hand_.load(std::memory_order_relaxed), thread);
          },
          [this] { return queue_.size() > 0 || pieces_.waiting(); }) {
  backlog_.reserve(static_cast<std::size_t>(num_envs()));
  if (may_block_) told_.resize(static_cast<std::size_t>(num_envs()));
  counters_->publish();
}

std::size_t LocalPool::lay_out_control() {
  return arena_->grow(ReadyLanes::bytes(num_envs(), options_.num_threads) +
                          BatchRing::bytes(num_envs(), options_.batch_size),
                      kCacheLine);
}

LocalPool::~LocalPool() { threads_.stop(); }

// ---- sending -----------------------------------------------------------------------------------

void LocalPool::do_pieces(std::uint32_t pieces, Piecework::Piece piece, void* context) {
  const int helpers = std::min(options_.num_threads, static_cast<int>(pieces)) - 1;
  // Threads that step envs come too late to help. A few save little, and a core that is taken from one of them in the
  // midst of its piece costs much.
  if (helpers < kFewestHelpers || may_block_ || in_flight_count() > 0) return Pool::do_pieces(pieces, piece, context);
  pieces_.open(pieces, piece, context);
  threads_.call(helpers);
  pieces_.finish();
}

void LocalPool::start(std::span<const std::int32_t> envs, bool, bool recv_follows) {
  const CallCost& cost = cost_of(envs);
  const double work = cost.expected_ns() * static_cast<double>(envs.size());
  // Behind queued work even a little must be queued: the caller does its backlog first, so what waits in the queue
  // could wait forever.
  const bool little = caller_steps_ && (work < kAloneNs || is_time_to_probe(cost)) && queue_.size() == 0;
  if (options_.num_threads == 0 || little) {
    backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(backlog_done_));
    backlog_done_ = 0;
    backlog_.insert(backlog_.end(), envs.begin(), envs.end());
    return;
  }
  share(envs);
  call_threads(recv_follows);
}

void LocalPool::share(std::span<const std::int32_t> envs) {
  const bool others_wait = queue_.size() > 0 && resets_wait_.load(std::memory_order_relaxed);
  resets_wait_.store(others_wait || is_sent_reset(envs[0]), std::memory_order_relaxed);
  // All of them, by their ids, is also in the order of their rows.
  if (rows_are_ids_ && static_cast<std::int32_t>(envs.size()) == num_envs())
    queue_.push_all();
  else
    queue_.push(envs);
}

// Wakes or starts threads for everything that is queued.
void LocalPool::call_threads(bool recv_follows) {
  const double cost = queued_cost().expected_ns();
  const auto waiting = static_cast<double>(queue_.size());
  const double shares = cost * waiting / kShareNs;
  // The caller is one of the hands if it helps. With a single thread, it helps only if `recv` follows: otherwise that
  // thread steps while the caller does something else.
  caller_helps_ = caller_steps_ && cost < kSlowNs && (recv_follows || options_.num_threads > 1);
  const int caller = caller_helps_ ? 1 : 0;
  const int wanted = static_cast<int>(std::min<double>(options_.num_threads - caller, shares));
  const int threads = std::max(wanted, 1 - caller);  // at least one hand
  hands_.store(may_block_ ? options_.num_threads : threads + caller, std::memory_order_relaxed);
  first_thread_hand_.store(caller, std::memory_order_relaxed);
  if (may_block_)
    threads_.call_free(static_cast<int>(std::min<double>(threads, waiting)), in_flight_count());
  else
    threads_.call(threads);
}

// The cost of a step on several threads says little about its cost on one. So now and then, more often at first, the
// caller starts a batch alone to measure it.
bool LocalPool::is_time_to_probe(const CallCost& cost) {
  shared_sends_ += 1;
  const bool early = shared_sends_ < 64 && (shared_sends_ & (shared_sends_ - 1)) == 0;
  return cost.ns() < kSlowNs && (early || shared_sends_ % 64 == 0);
}

// ---- stepping ----------------------------------------------------------------------------------

std::int32_t LocalPool::chunk_size(std::int64_t waiting) const {
  // Envs that may block, or were never measured, should not wait for each other.
  if (may_block_ || !queued_cost().known()) return 1;
  const double cost = queued_cost().ns();
  const auto most = static_cast<std::int64_t>(kChunkNs / cost);
  const auto least = static_cast<std::int64_t>(kLeastChunkNs / cost);
  const auto share = waiting / (2 * std::max(1, hands_.load(std::memory_order_relaxed)));
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(std::clamp(share, least, most), 1, kMostChunk));
}

// Does one chunk from the queue, in a thread or in the caller (`thread` is -1). False if the queue is empty.
bool LocalPool::work_once(int hand, int thread) {
  const int hands = std::max(1, hands_.load(std::memory_order_relaxed));
  std::int32_t envs[kMostChunk];
  const std::int32_t count = queue_.pop(hand % hands, hands, chunk_size(queue_.size()), envs);
  if (count == 0) return false;
  if (!may_block_ || thread < 0) {
    run({envs, static_cast<std::size_t>(count)}, false, record_of(thread));
    return true;
  }
  threads_.begin(thread);
  WorkerRecord& record = record_of(thread);
  const std::uint64_t turn = (get(record.inside) >> 32) + 1;
  set(record.inside, turn << 32 | static_cast<std::uint32_t>(envs[0] + 1));
  run({envs, static_cast<std::size_t>(count)}, false, record);
  set(record.inside, turn << 32);
  return true;
}

bool LocalPool::is_sent_reset(std::int32_t env) const {
  const sm_env_state& state = table_.state(env);
  return state.command == SM_RESET || state.phase == SM_FRESH;
}

void LocalPool::run(std::span<const std::int32_t> envs, bool alone, WorkerRecord& hand) {
  // A reset says nothing about the cost of a step, and the other way round. Few of the steps are resets because an
  // episode ended, and a chunk that starts with one is not measured.
  const bool of_resets = is_sent_reset(envs[0]);
  CallCost& cost = of_resets ? reset_cost_ : step_cost_;
  const bool of_a_kind = of_resets ? std::all_of(envs.begin(), envs.end(), [&](auto env) { return is_sent_reset(env); })
                                   : table_.state(envs[0]).phase == SM_LIVE;
  // Reading the clock twice costs as much as a few cheap steps: measure small chunks now and then.
  const bool small = cost.known() && cost.ns() * static_cast<double>(envs.size()) < kAloneNs / 2;
  const bool measured = of_a_kind && (!small || runs_.fetch_add(1, std::memory_order_relaxed) % 8 == 0);
  const auto from = measured ? Clock::now() : Clock::time_point();
  run_rows(envs);
  if (!measured) {
    add_work(hand, static_cast<std::uint64_t>(cost.ns() * static_cast<double>(envs.size())), envs.size());
    return;
  }
  const auto end = Clock::now();
  const auto spent = std::chrono::duration_cast<nanoseconds>(end - from).count();
  cost.learn(static_cast<float>(spent) / static_cast<float>(envs.size()), alone);
  add_work(hand, static_cast<std::uint64_t>(spent), envs.size());
  if (envs.size() == 1)
    add_slow_step(hand, envs[0], static_cast<std::uint64_t>(spent),
                  static_cast<std::uint64_t>(nanoseconds(end.time_since_epoch()).count()));
}

void LocalPool::run_rows(std::span<const std::int32_t> envs) {
  if (!is_async()) return run_assigned(envs);
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

// Envs whose rows the caller has assigned: sync mode, and gathers. Rows are assigned in the order of sending, so those
// of a chunk follow each other, unless what was sent in between went elsewhere.
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
           advance(job, envs.first(count)), arena_->shared(), rows_event_.descriptor());
    envs = envs.subspan(count);
  }
}

// Envs that take the next slots of the open batch: before the call if all calls are short, after it if a long one would
// hold the batch back. Any step may turn out to be a reset.
void LocalPool::run_claimed(std::span<const std::int32_t> envs) {
  if (may_block_ || !step_cost_.known() || std::max(step_cost_.ns(), reset_cost_.ns()) > kLateNs) {
    for (const std::int32_t& env : envs) {
      Chunk chunk{*this};
      sm_job job{};
      job.context = &chunk;
      const bool ended = advance(job, {&env, 1});
      commit(*chunk.buffer->header, 1, resets_among({&env, 1}), ended, arena_->shared(), rows_event_.descriptor());
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
    commit(*buffer->header, slots.count, resets_among(part), advance(job, part), arena_->shared(),
           rows_event_.descriptor());
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

void LocalPool::record_fault(std::int32_t env, std::int32_t phase, const char* message) {
  const sm_env_state& state = table_.state(env);
  faults_.add({env, phase, state.episode, state.elapsed, state.failures, message});
  if (options().after_fault) options().after_fault(env);
}

// ---- receiving ---------------------------------------------------------------------------------

void LocalPool::work_or_wait(nanoseconds most) {
  if (short_work()) {
    work_on_backlog();
    return;
  }
  // If the caller is not one of the hands, threads were called. But envs may have become slow since, or no thread could
  // be started.
  bool helps = caller_helps_ && queued_cost().ns() < kSlowNs;
  if (!helps && queue_.size() > 0) {
    call_threads(false);
    helps = threads_.started() == 0;
  }
  if (helps && work_once(0, -1)) return;

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

std::vector<std::int32_t> LocalPool::take_slow() {
  std::vector<std::int32_t> out;
  if (!may_block_ || options_.slow_ns == 0) return out;
  const auto now = Clock::now();
  if (now < next_look_) return out;
  const nanoseconds limit(options_.slow_ns);
  next_look_ = now + limit / 8;
  for (std::size_t thread = 0; thread < inside_.size(); ++thread) {
    Inside& one = inside_[thread];
    const std::uint64_t word = get(record_of(static_cast<int>(thread)).inside);
    if (word != one.seen) {
      one.seen = word;
      one.since = now;
    }
    const auto env = static_cast<std::int32_t>(word & 0xffffffff) - 1;
    if (env < 0 || now - one.since < limit || std::exchange(told_[static_cast<std::size_t>(env)], 1)) continue;
    out.push_back(env);
  }
  return out;
}

bool LocalPool::is_brief() const {
  if (may_block_ || !short_work()) return false;
  const auto rest = std::span(backlog_).subspan(backlog_done_);
  const CallCost& cost = cost_of(rest);
  return cost.known() && cost.ns() * static_cast<double>(rest.size()) < kAloneNs;
}

// Steps a part of what was too little to share. If it turns out to be much after all, the rest is shared.
void LocalPool::work_on_backlog() {
  const auto rest = std::span<const std::int32_t>(backlog_).subspan(backlog_done_);
  const CallCost& cost = cost_of(rest);
  // An env that was never measured might take any time: try one first. One that may block should not keep the caller
  // from a batch that is ready without it.
  const bool one = !cost.known() || (may_block_ && is_async());
  const auto most = one ? 1 : static_cast<std::size_t>(kAloneNs / cost.ns());
  const auto count = std::clamp<std::size_t>(most, 1, rest.size());
  backlog_done_ += count;
  run(rest.first(count), true, record_of(-1));
  const double work = cost.ns() * static_cast<double>(rest.size() - count);
  if (work > kAloneNs && options_.num_threads > 0) {
    share(rest.subspan(count));
    backlog_done_ = backlog_.size();
    call_threads(true);
  }
  if (!short_work()) {
    backlog_.clear();
    backlog_done_ = 0;
  }
}

}  // namespace stepmill
