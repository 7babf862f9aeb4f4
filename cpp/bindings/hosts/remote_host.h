// Envs that live in other processes, on any machine: `stepmill._native.RemoteHost`.
//
// The Python half (stepmill/hosts/ray) has the connections: `exchange` takes what waits with `pack`, and brings what has
// come with `unpack`. At the other end, parcels come to an ParcelServer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bindings/host.h"
#include "core/remote/remote_pool.h"

namespace stepmill {

class RemoteHost final : public Host {
 public:
  // `table`: that of native envs, otherwise null.
  RemoteHost(std::unique_ptr<RemotePool> pool, const sm_env_table* table) : Host(std::move(pool), table) {}
  ~RemoteHost() override { close_at_last(); }

  // ---- parcels ----

  int waiting(int group) const { return static_cast<int>(remote().waiting(checked(group)).size()); }
  int away(int group) const { return remote().away(checked(group)); }
  // An order for `most` of the envs of a group that wait, or for as many as there are; it may be none. `spare`: how many
  // envs may still be at work when the order is answered.
  nanobind::object pack(int group, int most, int spare);
  // An answer that has come, in any object that has bytes. Returns how many rows it has. Raises ValueError or TypeError if
  // it is none, and then has changed nothing: the group is to be lost.
  int unpack(int group, nanobind::handle answer);
  // The envs of a group are gone, and why.
  void lose(int group, const std::string& why, const std::string& kind);

  // ---- lending ----

  // The states of idle envs of a group, as `take_states` takes them. Raises ValueError if one is not idle.
  nanobind::object lend(int group, const std::vector<std::int32_t>& envs);
  // They have come back, from `give_states`. Raises ValueError if these are no such states: the group is to be lost.
  void take_back(int group, nanobind::handle states);
  // What these envs showed last: for each leaf, the bytes of their rows. Raises ValueError if there are too many
  // or too few.
  void keep_last(const std::vector<std::int32_t>& envs, nanobind::list leaves);
  // The failures of those of the envs that were lost in an episode, or while they were lent.
  nanobind::list take_losses(const std::vector<std::int32_t>& envs);

  // ---- the host ----

  // Whether native envs say how they can be saved.
  bool can_save() const { return table() && table()->save; }
  // Calls the derived class: `dispatch()` sends what waits, so that envs step while the caller does something else.
  bool wants_attention() const override { return remote().has_more_waiting(); }
  void attend() override;
  bool has_to_fetch() const override { return true; }
  void give_objects(std::int32_t env, nanobind::handle objects) override;
  void give_options(const ResetOrder& order) override;
  // Calls the derived class: `exchange(seconds)` carries parcels until rows have come, or about so long.
  void work(std::chrono::nanoseconds most) override;
  void fetch() override { work(std::chrono::nanoseconds(0)); }
  nanobind::object take_notes(const Batch& batch, std::vector<Fault>& faults) override;
  // Calls the derived class: `describe()` returns what it knows about its connections.
  void add_stats(nanobind::dict& out) const override;

 private:
  RemotePool& remote() const { return static_cast<RemotePool&>(pool()); }
  int checked(int group) const;
  void forget_mail(std::span<const std::int32_t> envs);
  void check_envs(const std::vector<std::int32_t>& envs) const;

  // By env, with its next action.
  std::map<std::int32_t, nanobind::object> objects_, options_;
  std::map<std::int32_t, nanobind::object> notes_;  // by env, until its row is received
};

}  // namespace stepmill
