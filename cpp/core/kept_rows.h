// Rows that were received, and are kept until the caller asks for them in an order that it chooses.
//
// Their envs stay in flight for as long. There is one buffer, with a row for every env, so that it never has to grow.
#pragma once

#include <span>
#include <vector>

#include "core/pool.h"
#include "core/received_rows.h"

namespace stepmill {

class KeptRows {
 public:
  explicit KeptRows(Pool& pool)
      : pool_(pool),
        store_(pool.gather_store()),
        buffer_(store_->acquire()),
        taken_(pool.num_envs(), pool.spec().max_num_players),
        is_kept_(static_cast<std::size_t>(pool.num_envs())) {}
  ~KeptRows() { store_->release(buffer_); }
  KeptRows(const KeptRows&) = delete;
  KeptRows& operator=(const KeptRows&) = delete;

  bool has(std::int32_t env) const { return is_kept_[static_cast<std::size_t>(env)] != 0; }

  // Keeps the rows of a batch, and releases its buffer.
  void keep(const Batch& batch) {
    for (std::int32_t row = 0; row < batch.rows; ++row) {
      const std::int32_t env = batch.env_id[row];
      batch.store->layout().copy_row(bytes_of(batch.buffer), row, store_->layout(), bytes_of(buffer_), env);
      set_kept(env, true);
    }
    batch.store->release(batch.buffer);
  }

  // A batch of these envs, which all have a row here, in this order. Throws if there is no memory, and then changes nothing.
  Batch take(std::span<const std::int32_t> envs) {
    Batch batch;
    batch.store = pool_.store();
    batch.buffer = batch.store->acquire();
    batch.rows = static_cast<std::int32_t>(envs.size());
    for (std::int32_t row = 0; row < batch.rows; ++row) {
      const std::int32_t env = envs[static_cast<std::size_t>(row)];
      store_->layout().copy_row(bytes_of(buffer_), env, batch.store->layout(), bytes_of(batch.buffer), row);
      batch.buffer->columns.c.env_id[row] = env;
      taken_.set_env(row, env);
      set_kept(env, false);
    }
    taken_.put_into(batch);
    if (pool_.options().arena == Arena::Kind::kShared) batch.store->hand_out(batch.buffer);
    return batch;
  }

  void drop() {
    for (std::int32_t env = 0; env < pool_.num_envs(); ++env)
      if (has(env)) set_kept(env, false);
  }

 private:
  static std::byte* bytes_of(Buffer* buffer) { return reinterpret_cast<std::byte*>(buffer->header); }
  void set_kept(std::int32_t env, bool kept) {
    is_kept_[static_cast<std::size_t>(env)] = kept;
    pool_.set_kept(env, kept);
  }

  Pool& pool_;
  const std::shared_ptr<BufferStore> store_;
  Buffer* const buffer_;  // row i is that of env i
  ReceivedRows taken_;    // of the batch that was taken last
  std::vector<std::uint8_t> is_kept_;
};

}  // namespace stepmill
