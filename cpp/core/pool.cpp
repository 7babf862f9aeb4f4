#include "core/pool.h"

#include <algorithm>

#include "core/batch_ring.h"

namespace stepmill {

Pool::Pool(EnvSpec spec, const PoolOptions& options, std::uint32_t ring_places, std::int32_t workers)
    : spec_(std::move(spec)),
      options_(options),
      arena_(Arena::create(options.arena)),
      table_(*arena_, spec_, options.table),
      counters_(std::make_shared<PoolCounters>(options.label, options.table.num_envs, options.batch_size, workers)),
      as_ready_(options.as_ready),
      in_flight_(static_cast<std::size_t>(num_envs())),
      ring_buffers_(ring_places),
      row_of_(static_cast<std::size_t>(num_envs())),
      is_assigned_(static_cast<std::size_t>(num_envs()), !is_async()),
      resetting_(static_cast<std::size_t>(num_envs())),
      former_lives_(static_cast<std::size_t>(num_envs())) {
  if (arena_->shared()) rows_event_.open();
  const bool same_step = options.table.autoreset == SM_SAME_STEP;
  const auto store = [&](std::int32_t rows) {
    return std::make_shared<BufferStore>(
        arena_, BatchLayout(spec_, rows, same_step, options.table.reward_is_float32));
  };
  store_ = store(options.batch_size);
  gather_store_ = options.batch_size < num_envs() ? store(num_envs()) : store_;
}

// By now no thread steps any more: what was in flight is dropped; only what the caller holds stays.
Pool::~Pool() {
  for (; head_ != opened_; ++head_) store_->release(ring_buffer(head_));
  if (assigned_buffer_) gather_store_->release(assigned_buffer_);
  store_->close();
  gather_store_->close();
  arena_->close_descriptor();
  counters_->withdraw();
}

void Pool::return_as_ready(bool as_ready) {
  as_ready_ = as_ready;
  std::fill(is_assigned_.begin(), is_assigned_.end(), !is_async());
  std::fill(resetting_.begin(), resetting_.end(), 0);
  changed_order();
}

void Pool::lock_pages(const std::shared_ptr<PageLock>& lock) {
  store_->lock_pages(lock);
  gather_store_->lock_pages(lock);
}

std::size_t Pool::locked() const {
  return store_->locked() + (gather_store_ == store_ ? 0 : gather_store_->locked());
}

// ---- sending -----------------------------------------------------------------------------------

void Pool::make_room(std::int32_t count, bool gather) {
  if (!gather && is_async())
    open_slots(ring_in_flight_ + count);
  else if (!assigned_buffer_)
    assigned_buffer_ = gather_store_->acquire();
}

void Pool::send(std::span<const std::int32_t> envs, bool gather, bool recv_follows) {
  const bool assigned = take_places(envs, gather);
  start(envs, assigned, recv_follows);
}

// From now on these envs are in flight. Whether their rows are assigned.
bool Pool::take_places(std::span<const std::int32_t> envs, bool gather) {
  const bool assign = gather || !is_async();
  const auto count = static_cast<std::int32_t>(envs.size());
  make_room(count, gather);  // throws if there is no memory: change nothing before
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
  if (as_ready_) {
    for (const std::int32_t env : envs)
      resetting_[static_cast<std::size_t>(env)] = table_.state(env).command == SM_RESET;
    resets_in_flight_ += static_cast<std::int32_t>(resets_among(envs));
  }
  return assign;
}

// Row i of the batch for the i-th env sent.
void Pool::assign_rows(std::span<const std::int32_t> envs) {
  const auto count = static_cast<std::int32_t>(envs.size());
  const std::int32_t first = assigned_;
  std::int32_t difference = 0;
  for (std::int32_t i = 0; i < count; ++i) difference |= envs[static_cast<std::size_t>(i)] ^ (first + i);
  assigned_in_order_ = assigned_in_order_ && difference == 0;
  // All envs in their order is what most callers send, and then the rows are what they were.
  const bool all = assigned_in_order_ && envs.size() == row_of_.size();
  if (!all || !rows_are_ids_)
    for (std::size_t i = 0; i < envs.size(); ++i)
      row_of_[static_cast<std::size_t>(envs[i])] = first + static_cast<std::int32_t>(i);
  rows_are_ids_ = all;
  assigned_ += count;
}

// Makes sure that so many envs in flight will each find a slot, so that workers never allocate. Workers see the
// buffers, because starting an env is a release.
void Pool::open_slots(std::int32_t in_flight) {
  const std::int32_t open = in_flight - sealed_rows_;  // that may still take a slot
  const auto batches = static_cast<std::uint32_t>((open + options_.batch_size - 1) / options_.batch_size) +
                       (sealed_rows_ != 0 ? 1 : 0);
  while (opened_ - head_ < batches) {
    Buffer* buffer = store_->acquire();
    ring_buffers_[opened_ % ring_buffers_.size()] = buffer;
    open_batch(opened_, *buffer);
    opened_ += 1;
  }
}

// ---- rows that the caller writes itself --------------------------------------------------------

void Pool::put_back(std::span<const std::int32_t> envs, bool gather, const BatchLayout& layout, const std::byte* rows) {
  take_places(envs, gather);
  for (std::size_t i = 0; i < envs.size(); ++i) {
    const Row row = take_row(envs[i]);
    copy_row(envs[i], row, layout, rows, static_cast<std::int64_t>(i));
    finish_row(envs[i], row);
  }
}

Pool::Row Pool::take_row(std::int32_t env, BatchRing& ring) const {
  const auto e = static_cast<std::size_t>(env);
  if (is_assigned_[e]) return {*assigned_buffer_, gather_store_->layout(), row_of_[e]};
  const BatchRing::Slots slot = ring.claim(1);
  return {*ring_buffers_[slot.place], store_->layout(), slot.first};
}

void Pool::copy_row(std::int32_t env, const Row& row, const BatchLayout& layout, const std::byte* rows,
                    std::int64_t from) const {
  layout.copy_row(rows, from, row.layout, arena_->at(row.buffer.offset), row.number);
  row.buffer.columns.c.env_id[row.number] = env;
  mend_flags(row);
}

void Pool::finish_row(std::int32_t env, const Row& row) const {
  const bool ended = row.buffer.columns.c.ended[row.number] != 0;
  commit(*row.buffer.header, 1, resets_among({&env, 1}), ended, arena_->shared(), rows_event_.descriptor());
}

// Flags become arrays of bool, which must hold 0 or 1, wherever they come from.
void Pool::mend_flags(const Row& row) const {
  const sm_columns& c = row.buffer.columns.c;
  const auto mend = [&](std::uint8_t* flags, std::int64_t count, std::uint8_t bits) {
    if (flags)
      for (std::int64_t i = row.number * count; i < (row.number + 1) * count; ++i)
        flags[i] = bits == 1 ? flags[i] != 0 : flags[i] & bits;
  };
  mend(c.terminated, 1, 1);
  mend(c.truncated, 1, 1);
  mend(c.ended, 1, 1);
  const auto infos = static_cast<std::int64_t>(spec_.info.size());
  mend(c.info_present, infos, 1);
  mend(c.final_info_present, infos, 1);
  mend(c.players, spec_.max_num_players, SM_HAS_ROW | SM_PLAYER_TERMINATED | SM_PLAYER_TRUNCATED);
}

// ---- receiving ---------------------------------------------------------------------------------

bool Pool::LookAhead::go_on() {
  if (pool_.assigned_ != 0) {
    pool_.assigned_ = 0;
  } else {
    pool_.ring_in_flight_ -= pool_.expected();
    pool_.sealed_rows_ = 0;
    pool_.head_ += 1;
  }
  pool_.turned();
  return pool_.in_flight_count() != 0;
}

Buffer* Pool::awaited() const { return assigned_ != 0 ? assigned_buffer_ : ring_buffer(head_); }

std::int32_t Pool::expected() const {
  if (assigned_ != 0) return assigned_;
  return sealed_rows_ != 0 ? sealed_rows_ : std::min(options_.batch_size, ring_in_flight_);
}

std::uint32_t Pool::wanted() const {
  if (content_with_ == 0 || assigned_ != 0) return static_cast<std::uint32_t>(expected());
  const std::int32_t steps = std::min(content_with_, ring_in_flight_ - resets_in_flight_);
  // If a batch was sealed, or has no room for all, we do not know how many steps will be in it.
  const bool all_come = options_.batch_size == num_envs() && sealed_rows_ == 0;
  if (content_with_steps_ && steps > 0 && all_come) return static_cast<std::uint32_t>(steps) | BatchHeader::kStepsOnly;
  return static_cast<std::uint32_t>(std::min(content_with_, expected()));
}

bool Pool::ready() {
  const BatchHeader& header = *awaited()->header;
  const std::uint32_t done = header.done.load(std::memory_order_acquire) & ~BatchHeader::kSuspect;
  return done >= header.rows_for(wanted());
}

std::uint32_t Pool::resets_among(std::span<const std::int32_t> envs) const {
  std::uint32_t resets = 0;
  if (as_ready_)
    for (const std::int32_t env : envs) resets += resetting_[static_cast<std::size_t>(env)];
  return resets;
}

// Sequentially consistent, as `BatchHeader::want` says.
bool Pool::watch_rows() {
  be_content_with(1);
  const std::uint32_t want = wanted();
  watched_ = awaited()->header;
  watched_->want.store(want | BatchHeader::kByEvent, std::memory_order_seq_cst);
  const bool counted = watched_->done.load(std::memory_order_seq_cst) >= watched_->rows_for(want);
  const bool is_there = counted && ready();
  be_content_with(0);
  if (is_there) look_again(false);
  return !is_there;
}

// What is rung from here on wakes the loop again.
void Pool::look_again(bool was_rung) {
  if (was_rung) rows_event_.fall_silent();
  if (watched_) watched_->want.store(0, std::memory_order_relaxed);
  watched_ = nullptr;
}

void Pool::seal_early() {
  if (assigned_ != 0 || sealed_rows_ != 0) return;
  // After the seal, envs take slots of the next batch, so it must be open before. One more than all envs in flight
  // could need, since this batch keeps room that no env will take.
  open_slots(ring_in_flight_ + options_.batch_size);
  const std::int32_t taken = seal_batch(head_);
  if (taken < options_.batch_size) sealed_rows_ = taken;
}

Batch Pool::take_batch(std::vector<Fault>& faults) {
  Batch batch;
  batch.buffer = awaited();
  batch.rows = expected();
  batch.any_ended = batch.buffer->header->any_ended.load(std::memory_order_relaxed) != 0;
  const sm_columns& c = batch.buffer->columns.c;
  batch.env_id = c.env_id;
  batch.players = c.players;
  batch.terminated = c.terminated;
  batch.truncated = c.truncated;
  batch.ended = c.ended;
  inspect(batch, assigned_ != 0);
  if (assigned_ != 0) {
    batch.store = gather_store_;
    batch.all_in_order = assigned_in_order_ && assigned_ == num_envs();
    assigned_buffer_ = nullptr;
    assigned_ = 0;
    assigned_in_order_ = true;
  } else {
    batch.store = store_;
    // Fewer rows than a batch: then everything in flight is in it, and no claim can come in between.
    if (batch.rows < options_.batch_size && sealed_rows_ == 0) seal_batch(head_);
    sealed_rows_ = 0;
    head_ += 1;
    ring_in_flight_ -= batch.rows;
  }
  resets_in_flight_ -= static_cast<std::int32_t>(resets_among({batch.env_id, static_cast<std::size_t>(batch.rows)}));
  if (batch.rows == num_envs())
    std::fill(in_flight_.begin(), in_flight_.end(), std::uint8_t{0});
  else
    for (std::int32_t i = 0; i < batch.rows; ++i) in_flight_[static_cast<std::size_t>(batch.env_id[i])] = 0;
  faults_.take(in_flight_, faults);
  if (arena_->shared()) batch.store->hand_out(batch.buffer);
  return batch;
}

}  // namespace stepmill
