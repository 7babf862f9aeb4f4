// The results of a program's `recv` or `step`: which columns of a batch they are, and how these become arrays of XLA.
//
// A program needs arrays of the same kinds in every call. So what a batch may lack is always there: numbers are 0 where
// nothing is told, as the flags beside them say.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bindings/xla/ffi.h"
#include "core/pool.h"

namespace stepmill {

enum class XlaPart {
  kObservation,
  kReward,
  kTerminated,
  kTruncated,
  kEnvId,
  kElapsedStep,
  kInfo,
  kHasInfo,
  kEpisodeReturn,
  kEpisodeLength,
  kEnded,
  kFinalObservation,
  kFinalInfo,
  kHasFinalInfo,
  kAbnormal,
};

struct XlaColumn {
  XlaPart part;
  std::size_t leaf;  // of observations and infos
  DType type;
  std::vector<std::int64_t> shape;  // of a row

  std::int64_t elements() const;
};

// All of them, in the order of the results.
std::vector<XlaColumn> xla_columns(const EnvSpec& spec, const PoolOptions& options);
// What Python calls a part.
const char* name_of(XlaPart part);

// Our type of XLA's; throws std::invalid_argument for one that we do not take.
DType type_of(xla::Type type);

// Whether a column can become an array of this type: its own, or the narrower one that JAX has for it.
bool becomes(DType column, DType type);

// For as long as envs write a batch: columns that have the same type as the results of a program are the results.
class ColumnLoan {
 public:
  // `own`: one per column, null where the column is not lent.
  ColumnLoan(Buffer& buffer, std::span<const XlaColumn> columns, const xla::Arrays& results, std::vector<void*>& own);
  ~ColumnLoan() { end(); }
  ColumnLoan(const ColumnLoan&) = delete;
  ColumnLoan& operator=(const ColumnLoan&) = delete;

  bool has(std::size_t column) const { return own_[column] != nullptr; }
  // The buffer gets what was written, as if nothing had been lent.
  void copy_back(std::int32_t rows);
  void end();

 private:
  Buffer& buffer_;
  const std::span<const XlaColumn> columns_;
  const xla::Arrays& results_;
  std::vector<void*>& own_;
};

// Copies a column of a batch. `to` has its shape, and its type or the narrower one that JAX has for it. Not for kAbnormal.
void copy_column(const Batch& batch, std::size_t info_leaves, const XlaColumn& column, const xla::Array& to);

}  // namespace stepmill
