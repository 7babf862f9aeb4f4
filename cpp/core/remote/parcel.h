// What passes between a pool and the engine that has its envs, if the two share no memory: parcels of bytes.
//
// An order tells envs what to do: rows of the action table. An answer has rows of a batch. Both carry the state of each
// env: whoever has an env at the moment owns its state. States without anything else pass an idle env to the other end,
// which steps it as it likes, and back. Both ends have the same spec, options and build, so a parcel is a copy of their
// arrays, with nothing to translate. Everything is read by memcpy: a parcel may begin at any address.
//
//   order, answer:  | head | rows | enclosures: what goes with some of the envs and fits into no array |
//   states:         | rows |
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/action_table.h"
#include "core/memory/batch_layout.h"
#include "core/fault_log.h"
#include "core/pool.h"

namespace stepmill {

// A parcel that its other end cannot have packed.
struct BrokenParcel : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// ---- the whole of an order or an answer --------------------------------------------------------

// What goes with an env, beside its row.
struct Enclosure {
  enum Kind : std::int32_t { kObjects, kOptions, kNote, kFault };

  std::int32_t env;  // counted from the first env that the other end has
  Kind kind;
  std::span<const std::byte> content;
};

class Parcel {
 public:
  static std::size_t bytes(std::size_t row_bytes, std::span<const Enclosure> enclosures);
  // Writes everything but the rows, and returns the place for these. `spare`: of an order, see `ParcelServer`.
  static std::span<std::byte> pack(std::span<std::byte> to, std::size_t row_bytes, std::span<const Enclosure> enclosures,
                                   std::int32_t spare = 0);

  // A parcel that has arrived, for some of `num_envs` envs. It refers to the bytes. Throws BrokenParcel.
  Parcel(std::span<const std::byte> parcel, std::int32_t num_envs);

  std::int32_t spare() const { return spare_; }
  std::span<const std::byte> rows() const { return rows_; }
  const std::vector<Enclosure>& enclosures() const { return enclosures_; }

 private:
  std::int32_t spare_;
  std::span<const std::byte> rows_;
  std::vector<Enclosure> enclosures_;
};

// A failure as the content of an enclosure, and back. Throws BrokenParcel.
std::vector<std::byte> packed(const Fault& fault);
Fault read_fault(const Enclosure& enclosure);

// ---- rows of orders, and states ----------------------------------------------------------------

// Columns of the action table, for some envs: their states and, in orders, what they are told to do. Without their last
// observations, which each kind of pool keeps in its own way. Ids count from `first`, the first env that the other end has.
class EnvRows {
 public:
  explicit EnvRows(const ActionTable& table);         // states
  EnvRows(const ActionTable& table, const EnvSpec&);  // orders

  std::size_t bytes(std::size_t envs) const { return sizeof(std::int64_t) + envs * env_bytes_; }
  void pack(std::span<const std::int32_t> envs, std::int32_t first, std::span<std::byte> to) const;

  // The envs of rows that have arrived. Throws BrokenParcel if these cannot be rows of `num_envs` envs.
  std::vector<std::int32_t> envs(std::span<const std::byte> rows, std::int32_t num_envs) const;
  // The state of the i-th of these.
  sm_env_state state(std::span<const std::byte> rows, std::size_t i) const;
  // Writes these rows into the table. `first`: where the envs of the other end begin here.
  void unpack(std::span<const std::byte> rows, std::span<const std::int32_t> envs, std::int32_t first = 0) const;

 private:
  // A column of the table, with its bytes per env.
  struct Column {
    std::byte* data;
    std::size_t bytes;
  };
  void add(void* column, std::size_t bytes);

  std::vector<Column> columns_;
  std::size_t env_bytes_ = sizeof(std::int32_t);
};

// ---- rows of answers ---------------------------------------------------------------------------

// The states of some envs, and behind them their rows of a batch, in the layout of one that has no others.
class AnswerRows {
 public:
  AnswerRows(const EnvSpec& spec, const TableOptions& options, const ActionTable& table)
      : spec_(spec), options_(options), states_(table) {}

  std::size_t bytes(std::int32_t rows) const { return states_bytes(rows) + layout(rows).bytes(); }
  void pack(const Batch& batch, std::span<std::byte> to) const;

  // Rows that have arrived. They refer to the bytes.
  struct Parts {
    std::span<const std::byte> states;
    const std::byte* batch;
    BatchLayout layout;
  };
  // Throws BrokenParcel unless there are as many bytes as these rows take.
  Parts split(std::span<const std::byte> rows) const;

 private:
  std::size_t states_bytes(std::int32_t rows) const { return align_up(states_.bytes(static_cast<std::size_t>(rows)), 16); }
  BatchLayout layout(std::int32_t rows) const {
    return BatchLayout(spec_, rows, options_.autoreset == SM_SAME_STEP, options_.reward_is_float32);
  }

  const EnvSpec& spec_;
  const TableOptions options_;
  const EnvRows states_;
};

}  // namespace stepmill
