#include "bindings/xla/columns.h"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace stepmill {
namespace {

struct Source {
  const void* data;
  const std::uint8_t* mask = nullptr;  // rows without it are zeros; null: all rows are there
  std::size_t stride = 1;              // from the flag of a row to that of the next one
  const std::uint8_t* among = nullptr;  // a second one
};

Source source_of(const Batch& batch, std::size_t info_leaves, const XlaColumn& column) {
  const sm_columns& c = batch.buffer->columns.c;
  const std::size_t leaf = column.leaf;
  switch (column.part) {
    case XlaPart::kObservation: return {c.observation[leaf]};
    case XlaPart::kReward: return {c.reward};
    case XlaPart::kTerminated: return {batch.terminated};
    case XlaPart::kTruncated: return {batch.truncated};
    case XlaPart::kEnvId: return {batch.env_id};
    case XlaPart::kElapsedStep: return {c.elapsed_step};
    case XlaPart::kInfo: return {c.info[leaf], c.info_present + leaf, info_leaves};
    case XlaPart::kHasInfo: return {nullptr, c.info_present + leaf, info_leaves};
    case XlaPart::kEpisodeReturn: return {c.episode_return, batch.ended};
    case XlaPart::kEpisodeLength: return {c.episode_length, batch.ended};
    case XlaPart::kEnded: return {batch.ended};
    case XlaPart::kFinalObservation: return {c.final_observation[leaf], batch.ended};
    case XlaPart::kFinalInfo: return {c.final_info[leaf], c.final_info_present + leaf, info_leaves, batch.ended};
    case XlaPart::kHasFinalInfo: return {nullptr, c.final_info_present + leaf, info_leaves, batch.ended};
    case XlaPart::kAbnormal: break;
  }
  throw std::logic_error("kAbnormal is no column of a batch");
}

template <class To, class From>
void convert(const void* from, void* to, std::int64_t count) {
  const auto* source = static_cast<const From*>(from);
  auto* target = static_cast<To*>(to);
  for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<To>(source[i]);
}

void copy_flags(const void* from, void* to, std::int64_t count) {
  const auto* source = static_cast<const std::uint8_t*>(from);
  auto* target = static_cast<std::uint8_t*>(to);
  for (std::int64_t i = 0; i < count; ++i) target[i] = source[i] != 0;
}

void copy_numbers(DType from_type, DType to_type, const void* from, void* to, std::int64_t count) {
  if (to_type == DType::kBool && from_type == DType::kBool) return copy_flags(from, to, count);
  if (to_type == from_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count * item_size(to_type)));
    return;
  }
  if (from_type == DType::kFloat64 && to_type == DType::kFloat32) return convert<float, double>(from, to, count);
  if (from_type == DType::kInt64 && to_type == DType::kInt32) return convert<std::int32_t, std::int64_t>(from, to, count);
  if (from_type == DType::kUInt64 && to_type == DType::kUInt32)
    return convert<std::uint32_t, std::uint64_t>(from, to, count);
  throw std::logic_error("a column does not become an array of this type: becomes() says so beforehand");
}

// Only the rows that are there; zeros for the others.
void copy_rows_that_are(const Source& source, const XlaColumn& column, DType to_type, void* to, std::int32_t rows) {
  const std::int64_t elements = column.elements();
  const std::int64_t from_bytes = elements * item_size(column.type), to_bytes = elements * item_size(to_type);
  for (std::int64_t row = 0; row < rows; ++row) {
    auto* target = static_cast<char*>(to) + row * to_bytes;
    const bool is_there = source.mask[static_cast<std::size_t>(row) * source.stride] != 0 &&
                          (!source.among || source.among[row] != 0);
    if (!source.data)
      *target = is_there;
    else if (is_there)
      copy_numbers(column.type, to_type, static_cast<const char*>(source.data) + row * from_bytes, target, elements);
    else
      std::memset(target, 0, static_cast<std::size_t>(to_bytes));
  }
}

// Places a column of a buffer, and returns where it was; null: rows of this column do not all say what they mean.
void* place_column(Buffer& buffer, const XlaColumn& column, void* at) {
  sm_columns& c = buffer.columns.c;
  switch (column.part) {
    case XlaPart::kObservation: return std::exchange(buffer.columns.observation[column.leaf], at);
    case XlaPart::kReward: return std::exchange(c.reward, at);
    case XlaPart::kTerminated: return std::exchange(c.terminated, static_cast<std::uint8_t*>(at));
    case XlaPart::kTruncated: return std::exchange(c.truncated, static_cast<std::uint8_t*>(at));
    case XlaPart::kEnded: return std::exchange(c.ended, static_cast<std::uint8_t*>(at));
    case XlaPart::kEnvId: return std::exchange(c.env_id, static_cast<std::int32_t*>(at));
    case XlaPart::kElapsedStep: return std::exchange(c.elapsed_step, static_cast<std::int32_t*>(at));
    case XlaPart::kEpisodeLength: return std::exchange(c.episode_length, static_cast<std::int32_t*>(at));
    case XlaPart::kEpisodeReturn: return std::exchange(c.episode_return, static_cast<double*>(at));
    default: return nullptr;
  }
}

}  // namespace

bool becomes(DType column, DType type) {
  return type == column || (column == DType::kFloat64 && type == DType::kFloat32) ||
         (column == DType::kInt64 && type == DType::kInt32) || (column == DType::kUInt64 && type == DType::kUInt32);
}

ColumnLoan::ColumnLoan(Buffer& buffer, std::span<const XlaColumn> columns, const xla::Arrays& results,
                       std::vector<void*>& own)
    : buffer_(buffer), columns_(columns), results_(results), own_(own) {
  own_.resize(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const xla::Array& to = results[static_cast<std::int64_t>(i) + 1];
    own_[i] = type_of(to.type) == columns[i].type ? place_column(buffer, columns[i], to.data) : nullptr;
  }
}

void ColumnLoan::end() {
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (void* own = std::exchange(own_[i], nullptr)) place_column(buffer_, columns_[i], own);
}

void ColumnLoan::copy_back(std::int32_t rows) {
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (own_[i])
      std::memcpy(own_[i], results_[static_cast<std::int64_t>(i) + 1].data,
                  static_cast<std::size_t>(rows * columns_[i].elements() * item_size(columns_[i].type)));
}

std::int64_t XlaColumn::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::vector<XlaColumn> xla_columns(const EnvSpec& spec, const PoolOptions& options) {
  std::vector<XlaColumn> out;
  const auto add = [&](XlaPart part, DType type) { out.push_back({part, 0, type, {}}); };
  const auto add_leaves = [&](XlaPart part, const std::vector<Leaf>& leaves) {
    for (std::size_t i = 0; i < leaves.size(); ++i) out.push_back({part, i, leaves[i].dtype, leaves[i].shape});
  };
  const auto add_infos = [&](XlaPart part, XlaPart has) {
    add_leaves(part, spec.info);
    for (std::size_t i = 0; i < spec.info.size(); ++i) out.push_back({has, i, DType::kBool, {}});
  };
  add_leaves(XlaPart::kObservation, spec.observation);
  add(XlaPart::kReward, options.table.reward_is_float32 ? DType::kFloat32 : DType::kFloat64);
  add(XlaPart::kTerminated, DType::kBool);
  add(XlaPart::kTruncated, DType::kBool);
  add(XlaPart::kEnvId, DType::kInt32);
  add(XlaPart::kElapsedStep, DType::kInt32);
  add_infos(XlaPart::kInfo, XlaPart::kHasInfo);
  add(XlaPart::kEpisodeReturn, DType::kFloat64);
  add(XlaPart::kEpisodeLength, DType::kInt32);
  add(XlaPart::kEnded, DType::kBool);
  if (options.table.autoreset == SM_SAME_STEP) {
    add_leaves(XlaPart::kFinalObservation, spec.observation);
    add_infos(XlaPart::kFinalInfo, XlaPart::kHasFinalInfo);
  }
  add(XlaPart::kAbnormal, DType::kBool);
  return out;
}

const char* name_of(XlaPart part) {
  constexpr const char* names[] = {"observation",    "reward",          "terminated",     "truncated",
                                   "env_id",         "elapsed_step",    "info",           "has_info",
                                   "episode_return", "episode_length",  "ended",          "final_observation",
                                   "final_info",     "has_final_info",  "abnormal"};
  return names[static_cast<int>(part)];
}

DType type_of(xla::Type type) {
  switch (type) {
    case xla::Type::kPred: return DType::kBool;
    case xla::Type::kS8: return DType::kInt8;
    case xla::Type::kU8: return DType::kUInt8;
    case xla::Type::kS16: return DType::kInt16;
    case xla::Type::kU16: return DType::kUInt16;
    case xla::Type::kS32: return DType::kInt32;
    case xla::Type::kU32: return DType::kUInt32;
    case xla::Type::kS64: return DType::kInt64;
    case xla::Type::kU64: return DType::kUInt64;
    case xla::Type::kF16: return DType::kFloat16;
    case xla::Type::kF32: return DType::kFloat32;
    case xla::Type::kF64: return DType::kFloat64;
  }
  throw std::invalid_argument("expected arrays of bools, integers or floats, got XLA's type " +
                              std::to_string(static_cast<int>(type)));
}

void copy_column(const Batch& batch, std::size_t info_leaves, const XlaColumn& column, const xla::Array& to) {
  const Source source = source_of(batch, info_leaves, column);
  const DType type = type_of(to.type);
  if (!source.mask) return copy_numbers(column.type, type, source.data, to.data, batch.rows * column.elements());
  const bool none_ended = !batch.any_ended && (source.mask == batch.ended || source.among);
  if (none_ended) {
    std::memset(to.data, 0, static_cast<std::size_t>(batch.rows * column.elements() * item_size(type)));
    return;
  }
  const auto flags = static_cast<std::size_t>(batch.rows) * info_leaves;
  if (column.part == XlaPart::kInfo && !std::memchr(batch.buffer->columns.c.info_present, 0, flags))  // nearly always
    return copy_numbers(column.type, type, source.data, to.data, batch.rows * column.elements());
  copy_rows_that_are(source, column, type, to.data, batch.rows);
}

}  // namespace stepmill
