#include "core/remote/parcel.h"

#include <algorithm>
#include <cstring>

namespace stepmill {
namespace {

template <class T>
T read_at(std::span<const std::byte> parcel, std::size_t offset) {
  T out;
  std::memcpy(&out, parcel.data() + offset, sizeof(T));
  return out;
}

std::int64_t read_count(std::span<const std::byte> parcel) {
  if (parcel.size() < sizeof(std::int64_t)) throw BrokenParcel("a parcel without a head");
  return read_at<std::int64_t>(parcel, 0);
}

}  // namespace

// ---- orders and states -------------------------------------------------------------------------

EnvParcel::EnvParcel(const ActionTable& table) {
  add(&table.state(0), sizeof(sm_env_state));
  add(&table.reset_request(0), sizeof(sm_reset_request));
}

void EnvParcel::add(void* column, std::size_t bytes) {
  columns_.push_back({static_cast<std::byte*>(column), bytes});
  env_bytes_ += bytes;
}

OrderParcel::OrderParcel(const EnvSpec& spec, const ActionTable& table) : EnvParcel(table) {
  const auto players = static_cast<std::size_t>(spec.max_num_players);
  int index = 0;
  for (const Leaf& leaf : spec.action)
    add(table.action(index++), players * static_cast<std::size_t>(leaf.row_bytes()));
  if (players > 1) add(table.action_players(), players);
}

void EnvParcel::pack(std::span<const std::int32_t> envs, std::int32_t first, std::span<std::byte> to) const {
  std::byte* at = to.data();
  const auto put = [&](const void* from, std::size_t bytes) {
    std::memcpy(at, from, bytes);
    at += bytes;
  };
  const auto count = static_cast<std::int64_t>(envs.size());
  put(&count, sizeof(count));
  for (const std::int32_t env : envs) {
    const std::int32_t there = env - first;
    put(&there, sizeof(there));
    for (const Column& column : columns_) put(column.data + static_cast<std::size_t>(env) * column.bytes, column.bytes);
  }
}

std::vector<std::int32_t> EnvParcel::envs(std::span<const std::byte> parcel, std::int32_t num_envs) const {
  const std::int64_t count = read_count(parcel);
  if (count < 0 || count > num_envs || parcel.size() != bytes(static_cast<std::size_t>(count)))
    throw BrokenParcel("a parcel of " + std::to_string(parcel.size()) + " bytes for " + std::to_string(count) + " envs");
  std::vector<std::int32_t> out;
  std::vector<bool> seen(static_cast<std::size_t>(num_envs));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto env = read_at<std::int32_t>(parcel, bytes(static_cast<std::size_t>(i)));
    if (env < 0 || env >= num_envs || seen[static_cast<std::size_t>(env)])
      throw BrokenParcel("a parcel for env " + std::to_string(env) + " of " + std::to_string(num_envs));
    seen[static_cast<std::size_t>(env)] = true;
    out.push_back(env);
  }
  return out;
}

// The first column.
sm_env_state EnvParcel::state(std::span<const std::byte> parcel, std::size_t i) const {
  return read_at<sm_env_state>(parcel, bytes(i) + sizeof(std::int32_t));
}

std::vector<std::int32_t> EnvParcel::unpack(std::span<const std::byte> parcel, std::int32_t num_envs,
                                            std::int32_t first) const {
  std::vector<std::int32_t> out = envs(parcel, num_envs);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] += first;
    const std::byte* at = parcel.data() + bytes(i) + sizeof(std::int32_t);
    for (const Column& column : columns_) {
      std::memcpy(column.data + static_cast<std::size_t>(out[i]) * column.bytes, at, column.bytes);
      at += column.bytes;
    }
  }
  return out;
}

// ---- answers -----------------------------------------------------------------------------------

std::size_t AnswerParcel::head_bytes(std::int32_t rows) {
  const std::size_t head =
      sizeof(std::int64_t) + static_cast<std::size_t>(rows) * (sizeof(sm_env_state) + sizeof(sm_reset_request));
  return align_up(head, 16);
}

void AnswerParcel::pack(const Batch& batch, const ActionTable& table, std::span<std::byte> to) const {
  const std::int64_t rows = batch.rows;
  std::memcpy(to.data(), &rows, sizeof(rows));
  std::byte* at = to.data() + sizeof(rows);
  for (std::int64_t row = 0; row < rows; ++row, at += sizeof(sm_env_state))
    std::memcpy(at, &table.state(batch.env_id[row]), sizeof(sm_env_state));
  for (std::int64_t row = 0; row < rows; ++row, at += sizeof(sm_reset_request))
    std::memcpy(at, &table.reset_request(batch.env_id[row]), sizeof(sm_reset_request));
  const BatchLayout small = layout(batch.rows);
  std::byte* const rows_at = to.data() + head_bytes(batch.rows);
  std::memset(rows_at, 0, kCacheLine);  // the header of a buffer, which means nothing here
  const auto* from = reinterpret_cast<const std::byte*>(batch.buffer->header);
  for (std::int64_t row = 0; row < rows; ++row) batch.store->layout().copy_row(from, row, small, rows_at, row);
  // What the batch has checked, and its buffer may not have any more.
  Columns columns;
  small.fill(columns, rows_at);
  const auto n = static_cast<std::size_t>(rows);
  std::memcpy(columns.c.env_id, batch.env_id, n * sizeof(std::int32_t));
  std::memcpy(columns.c.terminated, batch.terminated, n);
  std::memcpy(columns.c.truncated, batch.truncated, n);
  std::memcpy(columns.c.ended, batch.ended, n);
  if (columns.c.players)
    std::memcpy(columns.c.players, batch.players, n * static_cast<std::size_t>(spec_.max_num_players));
}

AnswerParcel::Reader::Reader(const AnswerParcel& kind, std::span<const std::byte> parcel)
    : parcel_(parcel), rows_(0), layout_(kind.layout(0)), batch_at_(0) {
  const std::int64_t rows = read_count(parcel);
  if (rows < 0 || rows > kind.options_.num_envs || parcel.size() != kind.bytes(static_cast<std::int32_t>(rows)))
    throw BrokenParcel("an answer of " + std::to_string(parcel.size()) + " bytes with " + std::to_string(rows) + " rows");
  rows_ = static_cast<std::int32_t>(rows);
  layout_ = kind.layout(rows_);
  batch_at_ = head_bytes(rows_);
}

std::int32_t AnswerParcel::Reader::env(std::int32_t row) const {
  return read_at<std::int32_t>(parcel_, batch_at_ + layout_.env_id_at(row));
}

sm_env_state AnswerParcel::Reader::state(std::int32_t row) const {
  return read_at<sm_env_state>(parcel_, sizeof(std::int64_t) + static_cast<std::size_t>(row) * sizeof(sm_env_state));
}

sm_reset_request AnswerParcel::Reader::reset_request(std::int32_t row) const {
  const std::size_t first = sizeof(std::int64_t) + static_cast<std::size_t>(rows_) * sizeof(sm_env_state);
  return read_at<sm_reset_request>(parcel_, first + static_cast<std::size_t>(row) * sizeof(sm_reset_request));
}

void AnswerParcel::Reader::copy_row(std::int32_t row, const BatchLayout& layout, std::byte* to,
                                    std::int64_t to_row) const {
  layout_.copy_row(parcel_.data() + batch_at_, row, layout, to, to_row);
}

}  // namespace stepmill
