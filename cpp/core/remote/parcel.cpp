#include "core/remote/parcel.h"

#include <algorithm>
#include <cstring>

namespace stepmill {
namespace {

template <class T>
T read_at(std::span<const std::byte> bytes, std::size_t offset) {
  T out;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return out;
}

// Takes the first bytes off the span.
std::span<const std::byte> take(std::span<const std::byte>& rest, std::int64_t bytes) {
  if (bytes < 0 || static_cast<std::uint64_t>(bytes) > rest.size()) throw BrokenParcel("a parcel that ends too soon");
  const auto out = rest.first(static_cast<std::size_t>(bytes));
  rest = rest.subspan(out.size());
  return out;
}

template <class T>
T take(std::span<const std::byte>& rest) {
  return read_at<T>(take(rest, sizeof(T)), 0);
}

std::int64_t read_count(std::span<const std::byte> rows) {
  if (rows.size() < sizeof(std::int64_t)) throw BrokenParcel("a parcel without rows");
  return read_at<std::int64_t>(rows, 0);
}

struct alignas(16) Head {  // so that rows are as well aligned as the parcel
  std::int64_t row_bytes;
  std::int32_t enclosures;
  std::int32_t spare;
};

struct EnclosureHead {
  std::int64_t bytes;
  std::int32_t env;
  std::int32_t kind;
};

struct FaultHead {
  std::int64_t episode;
  std::int32_t phase, step, failures, kind;
};

}  // namespace

// ---- the whole ---------------------------------------------------------------------------------

std::size_t Parcel::bytes(std::size_t row_bytes, std::span<const Enclosure> enclosures) {
  std::size_t out = sizeof(Head) + row_bytes;
  for (const Enclosure& one : enclosures) out += sizeof(EnclosureHead) + one.content.size();
  return out;
}

std::span<std::byte> Parcel::pack(std::span<std::byte> to, std::size_t row_bytes, std::span<const Enclosure> enclosures,
                                  std::int32_t spare) {
  std::byte* at = to.data();
  const auto put = [&at](const void* from, std::size_t bytes) {
    if (bytes) std::memcpy(at, from, bytes);
    at += bytes;
  };
  const Head head{static_cast<std::int64_t>(row_bytes), static_cast<std::int32_t>(enclosures.size()), spare};
  put(&head, sizeof(head));
  at += row_bytes;
  for (const Enclosure& one : enclosures) {
    const EnclosureHead its{static_cast<std::int64_t>(one.content.size()), one.env, one.kind};
    put(&its, sizeof(its));
    put(one.content.data(), one.content.size());
  }
  return to.subspan(sizeof(head), row_bytes);
}

Parcel::Parcel(std::span<const std::byte> parcel, std::int32_t num_envs) {
  const auto head = take<Head>(parcel);
  spare_ = head.spare;
  rows_ = take(parcel, head.row_bytes);
  for (std::int32_t i = 0; i < head.enclosures; ++i) {
    const auto its = take<EnclosureHead>(parcel);
    if (its.env < 0 || its.env >= num_envs || its.kind < Enclosure::kObjects || its.kind > Enclosure::kFault)
      throw BrokenParcel("a parcel with something for env " + std::to_string(its.env) + " of " + std::to_string(num_envs));
    enclosures_.push_back({its.env, static_cast<Enclosure::Kind>(its.kind), take(parcel, its.bytes)});
  }
  if (!parcel.empty()) throw BrokenParcel("a parcel that goes on after its end");
}

std::vector<std::byte> packed(const Fault& fault) {
  const FaultHead head{fault.episode, fault.phase, fault.step, fault.failures, fault.kind};
  std::vector<std::byte> out(sizeof(head) + fault.message.size());
  std::memcpy(out.data(), &head, sizeof(head));
  std::memcpy(out.data() + sizeof(head), fault.message.data(), fault.message.size());
  return out;
}

Fault read_fault(const Enclosure& enclosure) {
  std::span<const std::byte> rest = enclosure.content;
  const auto head = take<FaultHead>(rest);
  if (head.kind < Fault::kRaised || head.kind > Fault::kLate || head.phase < 0 || head.phase > SM_IN_CALL)
    throw BrokenParcel("a failure of an unknown kind");
  return {enclosure.env, head.phase, head.episode, head.step, head.failures,
          std::string(reinterpret_cast<const char*>(rest.data()), rest.size()), static_cast<Fault::Kind>(head.kind)};
}

// ---- orders and states -------------------------------------------------------------------------

EnvRows::EnvRows(const ActionTable& table) {
  add(&table.state(0), sizeof(sm_env_state));
  add(&table.reset_request(0), sizeof(sm_reset_request));
}

void EnvRows::add(void* column, std::size_t bytes) {
  columns_.push_back({static_cast<std::byte*>(column), bytes});
  env_bytes_ += bytes;
}

EnvRows::EnvRows(const ActionTable& table, const EnvSpec& spec) : EnvRows(table) {
  const auto players = static_cast<std::size_t>(spec.max_num_players);
  int index = 0;
  for (const Leaf& leaf : spec.action)
    add(table.action(index++), players * static_cast<std::size_t>(leaf.row_bytes()));
  if (players > 1) add(table.action_players(), players);
}

void EnvRows::pack(std::span<const std::int32_t> envs, std::int32_t first, std::span<std::byte> to) const {
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

std::vector<std::int32_t> EnvRows::envs(std::span<const std::byte> rows, std::int32_t num_envs) const {
  const std::int64_t count = read_count(rows);
  if (count < 0 || count > num_envs || rows.size() != bytes(static_cast<std::size_t>(count)))
    throw BrokenParcel("a parcel of " + std::to_string(rows.size()) + " bytes for " + std::to_string(count) + " envs");
  std::vector<std::int32_t> out;
  std::vector<bool> seen(static_cast<std::size_t>(num_envs));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto env = read_at<std::int32_t>(rows, bytes(static_cast<std::size_t>(i)));
    if (env < 0 || env >= num_envs || seen[static_cast<std::size_t>(env)])
      throw BrokenParcel("a parcel for env " + std::to_string(env) + " of " + std::to_string(num_envs));
    seen[static_cast<std::size_t>(env)] = true;
    out.push_back(env);
  }
  return out;
}

// The first column.
sm_env_state EnvRows::state(std::span<const std::byte> rows, std::size_t i) const {
  return read_at<sm_env_state>(rows, bytes(i) + sizeof(std::int32_t));
}

void EnvRows::unpack(std::span<const std::byte> rows, std::span<const std::int32_t> envs, std::int32_t first) const {
  for (std::size_t i = 0; i < envs.size(); ++i) {
    const std::byte* at = rows.data() + bytes(i) + sizeof(std::int32_t);
    for (const Column& column : columns_) {
      std::memcpy(column.data + static_cast<std::size_t>(first + envs[i]) * column.bytes, at, column.bytes);
      at += column.bytes;
    }
  }
}

// ---- answers -----------------------------------------------------------------------------------

void AnswerRows::pack(const Batch& batch, std::span<std::byte> to) const {
  const auto n = static_cast<std::size_t>(batch.rows);
  states_.pack({batch.env_id, n}, 0, to);
  const BatchLayout small = layout(batch.rows);
  std::byte* const rows_at = to.data() + states_bytes(batch.rows);
  std::memset(rows_at, 0, kCacheLine);  // the header of a buffer, which means nothing here
  const auto* from = reinterpret_cast<const std::byte*>(batch.buffer->header);
  for (std::int64_t row = 0; row < batch.rows; ++row) batch.store->layout().copy_row(from, row, small, rows_at, row);
  // What the batch has checked, and its buffer may not have any more.
  Columns columns;
  small.fill(columns, rows_at);
  std::memcpy(columns.c.terminated, batch.terminated, n);
  std::memcpy(columns.c.truncated, batch.truncated, n);
  std::memcpy(columns.c.ended, batch.ended, n);
  if (columns.c.players)
    std::memcpy(columns.c.players, batch.players, n * static_cast<std::size_t>(spec_.max_num_players));
}

AnswerRows::Parts AnswerRows::split(std::span<const std::byte> rows) const {
  const std::int64_t count = read_count(rows);
  if (count < 0 || count > options_.num_envs || rows.size() != bytes(static_cast<std::int32_t>(count)))
    throw BrokenParcel("an answer of " + std::to_string(rows.size()) + " bytes with " + std::to_string(count) + " rows");
  const auto n = static_cast<std::int32_t>(count);
  return {rows.first(states_.bytes(static_cast<std::size_t>(n))), rows.data() + states_bytes(n), layout(n)};
}

}  // namespace stepmill
