// What passes between a pool and the place where its envs live, if the two share no memory: parcels of bytes.
//
// An order tells envs what to do: rows of the action table. An answer has rows of a batch. Both carry the state of each
// env: whoever has an env at the moment owns its state. States without anything else pass an idle env to the other end,
// which steps it as it likes, and back. Both ends have the same spec, options and build, so a parcel is a copy of their
// arrays, with nothing to translate. Everything is read by memcpy: a parcel may begin at any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/action_table.h"
#include "core/memory/batch_layout.h"
#include "core/pool.h"

namespace stepmill {

// A parcel that its other end cannot have packed.
struct BrokenParcel : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- orders and states -------------------------------------------------------------------------

// Columns of the action table, for some envs. Ids in it count from `first`, the first env that the other end has.
class EnvParcel {
 public:
  std::size_t bytes(std::size_t envs) const { return sizeof(std::int64_t) + envs * env_bytes_; }
  void pack(std::span<const std::int32_t> envs, std::int32_t first, std::span<std::byte> to) const;
  // The envs of a parcel. Throws BrokenParcel if it cannot be one for so many envs.
  std::vector<std::int32_t> envs(std::span<const std::byte> parcel, std::int32_t num_envs) const;
  // The state of the i-th of these.
  sm_env_state state(std::span<const std::byte> parcel, std::size_t i) const;
  // Writes the rows into the table, and returns their envs. `first`: where those of the other end begin here. Throws like
  // `envs`, and then has changed nothing.
  std::vector<std::int32_t> unpack(std::span<const std::byte> parcel, std::int32_t num_envs, std::int32_t first = 0) const;

 protected:
  explicit EnvParcel(const ActionTable& table);
  // A column of the table that goes along: so many bytes per env, one after another.
  void add(void* column, std::size_t bytes);

 private:
  struct Column {
    std::byte* data;
    std::size_t bytes;
  };
  std::vector<Column> columns_;
  std::size_t env_bytes_ = sizeof(std::int32_t);
};

// What envs are told to do.
class OrderParcel : public EnvParcel {
 public:
  OrderParcel(const EnvSpec& spec, const ActionTable& table);
};

// What there is to know of idle envs. Without their last observations, which each kind of pool keeps in its own way.
class StateParcel : public EnvParcel {
 public:
  explicit StateParcel(const ActionTable& table) : EnvParcel(table) {}
};

// ---- answers -----------------------------------------------------------------------------------

// Rows of a batch, with the state of their envs and what their next reset is given.
class AnswerParcel {
 public:
  AnswerParcel(const EnvSpec& spec, const TableOptions& options) : spec_(spec), options_(options) {}

  std::size_t bytes(std::int32_t rows) const { return head_bytes(rows) + layout(rows).bytes(); }
  void pack(const Batch& batch, const ActionTable& table, std::span<std::byte> to) const;

  // An answer that has arrived. It refers to the parcel.
  class Reader {
   public:
    // Throws BrokenParcel unless it has the size that so many rows take.
    Reader(const AnswerParcel& kind, std::span<const std::byte> parcel);

    std::int32_t rows() const { return rows_; }
    // Counted from the first env of the other end; anything, if that is broken.
    std::int32_t env(std::int32_t row) const;
    sm_env_state state(std::int32_t row) const;
    sm_reset_request reset_request(std::int32_t row) const;
    // Copies the row into a buffer of a pool of the same kind.
    void copy_row(std::int32_t row, const BatchLayout& layout, std::byte* to, std::int64_t to_row) const;

   private:
    std::span<const std::byte> parcel_;
    std::int32_t rows_;
    BatchLayout layout_;
    std::size_t batch_at_;
  };

 private:
  static std::size_t head_bytes(std::int32_t rows);
  BatchLayout layout(std::int32_t rows) const {
    return BatchLayout(spec_, rows, options_.autoreset == SM_SAME_STEP, options_.reward_is_float32);
  }

  const EnvSpec& spec_;
  const TableOptions options_;
};

}  // namespace stepmill
