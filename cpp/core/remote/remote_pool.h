// Envs that live where this process has no memory in common with them: on other machines, for one.
//
// Envs are in groups: those of one group live together. What they are told is packed into parcels (parcel.h), and what
// they answer is unpacked. Who carries the parcels is not known here; the caller does it, so nothing here needs a lock.
//
//          send                  pack                   unpack
//   idle ---------> waiting ------------> away ------------------> idle, its row is in a batch
//                      |                    |
//                      +------ lose --------+--------------------> idle, its row says that it failed
//
//          lend                  take_back
//   idle ---------> lent ----------------------------------------> idle, after steps of which nothing is known here
//                      |
//                      +------ lose ------------------------------> idle and lost: `take_losses` tells of it
#pragma once

#include <vector>

#include "core/batch_ring.h"
#include "core/remote/parcel.h"
#include "core/pool.h"

namespace stepmill {

class RemotePool final : public Pool {
 public:
  // `first_envs`: the first env of each group, in order.
  RemotePool(EnvSpec spec, const PoolOptions& options, std::vector<std::int32_t> first_envs,
             std::vector<std::uint64_t> seeds);

  int groups() const { return static_cast<int>(first_.size()) - 1; }
  int group_of(std::int32_t env) const;
  // Of the group after the last one: the number of envs.
  std::int32_t first_env(int group) const { return first_[static_cast<std::size_t>(group)]; }
  // Envs that were sent an action and wait to be packed.
  std::span<const std::int32_t> waiting(int group) const { return waiting_[static_cast<std::size_t>(group)]; }
  // Whether an env has begun to wait since `looked_at_waiting`.
  bool has_more_waiting() const { return has_more_waiting_; }
  void looked_at_waiting() { has_more_waiting_ = false; }
  // How many envs are away: packed, and not answered.
  std::int32_t away(int group) const { return away_count_[static_cast<std::size_t>(group)]; }

  // The rows of an order take this many bytes.
  std::size_t order_bytes(std::size_t envs) const { return orders_.bytes(envs); }
  // Packs the first `count` of those that wait: from now on they are away.
  void pack(int group, std::size_t count, std::span<std::byte> to);

  // Reads the rows of an answer, and returns how many there are. Throws BrokenParcel if one is not of an env of this group
  // that is away, and then has changed nothing: the group is to be lost. `add_fault` is called after it, with failures of
  // these rows.
  std::int32_t unpack(int group, std::span<const std::byte> rows);
  bool is_away(std::int32_t env) const { return place_[static_cast<std::size_t>(env)] == Place::kAway; }

  // The envs of a group are gone. Every action that waits or is away gets a row that says so; an env that was idle in an
  // episode gets one for its next action, unless that is a reset. They are built again elsewhere, with other seeds.
  void lose(int group, const Fault& reason);

  // Packs idle envs of a group, which the other end then steps by itself. Throws std::invalid_argument if one is not idle.
  std::vector<std::byte> lend(int group, std::span<const std::int32_t> envs);
  // They are idle again. Throws BrokenParcel if one was not lent, and then has changed nothing: the group is to be lost.
  void take_back(int group, std::span<const std::byte> states);
  // What these envs showed last, one leaf of it, row by row: for failures, if the pool keeps that. Throws BrokenParcel if
  // it has another size.
  void keep_last(std::span<const std::int32_t> envs, int leaf, std::span<const std::byte> rows) const;
  // Those of the envs that were lost in an episode, or while they were lent. From now on they have failed, as if their
  // next action had told so.
  std::vector<Fault> take_losses(std::span<const std::int32_t> envs);

  void adopt(std::int32_t env, std::optional<std::uint32_t> lives) override;

  // The caller carries the parcels; nothing happens by itself.
  void work_or_wait(std::chrono::nanoseconds) override {}
  double step_cost_ns() const override { return 0.0; }

 private:
  enum class Place : std::uint8_t { kIdle, kWaiting, kAway, kLent };

  void open_batch(std::uint32_t number, Buffer& buffer) override { ring_.open(number, buffer.offset); }
  std::int32_t seal_batch(std::uint32_t number) override { return static_cast<std::int32_t>(ring_.seal(number)); }
  void start(std::span<const std::int32_t> envs, bool assigned, bool recv_follows) override;

  std::uint32_t lives_here(std::int32_t env) const override { return lives_[static_cast<std::size_t>(group_of(env))]; }
  Row take_row(std::int32_t env) override { return Pool::take_row(env, ring_); }
  std::vector<std::int32_t> take_states(int group, std::span<const std::byte> states, Place from);
  void keep_last(std::int32_t env, const Row& row) const;
  void fail(std::int32_t env, const Fault& reason);
  Fault mark_failed(std::int32_t env, Fault reason);
  void keep_seed(std::int32_t env);
  void reseed(std::int32_t env);

  const EnvRows orders_;
  const AnswerRows answers_;
  const EnvRows states_;
  std::vector<std::int32_t> first_;  // of each group, and after the last one the number of envs
  BatchRing ring_;

  // By env.
  std::vector<Place> place_;
  std::vector<std::uint8_t> lost_;  // it was idle in an episode, or lent, when its group was lost
  std::vector<std::uint64_t> seeds_;  // the last one that it was given
  bool has_more_waiting_ = false;
  // By group.
  std::vector<std::vector<std::int32_t>> waiting_;
  std::vector<std::int32_t> away_count_;
  std::vector<std::uint32_t> lives_;  // how often it was lost
  std::vector<Fault> losses_;         // the last one
};

}  // namespace stepmill
