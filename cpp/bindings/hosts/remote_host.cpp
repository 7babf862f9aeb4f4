#include "bindings/python/numpy_api.h"

#include "bindings/hosts/remote_host.h"

#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "bindings/output/faults.h"

namespace nb = nanobind;

namespace stepmill {

namespace {

Fault::Kind kind_of_loss(const std::string& name) {
  if (name == "died") return Fault::kDied;
  if (name == "late") return Fault::kLate;
  if (name == "unplaced") return Fault::kUnplaced;
  throw nb::value_error("kind: expected 'died', 'late' or 'unplaced'");
}

Fault::Kind checked_kind(int number) {
  if (number < Fault::kRaised || number > Fault::kLate) throw nb::value_error("a failure of an unknown kind");
  return static_cast<Fault::Kind>(number);
}

}  // namespace

int RemoteHost::checked(int group) const {
  if (group < 0 || group >= remote().groups()) throw nb::index_error("there is no such group of envs");
  return group;
}

// ---- parcels -----------------------------------------------------------------------------------

nb::tuple RemoteHost::pack(int group, int most) {
  RemotePool& pool = remote();
  const std::int32_t first = pool.first_env(checked(group));
  nb::dict objects, options;
  const auto count = std::min(static_cast<std::size_t>(std::max(most, 0)), pool.waiting(group).size());
  const std::vector<std::int32_t> envs(pool.waiting(group).begin(),
                                       pool.waiting(group).begin() + static_cast<std::ptrdiff_t>(count));
  const auto move = [first](auto& from, nb::dict& to, std::int32_t env) {
    if (const auto found = from.find(env); found != from.end()) {
      to[nb::int_(env - first)] = found->second;
      from.erase(found);
    }
  };
  nb::object parcel = to_bytes(pool.pack(group, count));
  for (const std::int32_t env : envs) {
    if (!objects_.empty()) move(objects_, objects, env);
    if (!options_.empty()) move(options_, options, env);
  }
  return nb::make_tuple(parcel, objects, options);
}

void RemoteHost::unpack(int group, nb::handle parcel, nb::handle notes, nb::handle faults) {
  RemotePool& pool = remote();
  const std::int32_t first = pool.first_env(checked(group)), end = pool.first_env(group + 1);
  const auto to_id = [&](nb::handle env) {
    const auto id = first + nb::cast<std::int32_t>(env);
    if (id < first || id >= end || !pool.is_away(id)) throw nb::value_error("a note about an env that was not asked");
    return id;
  };
  std::vector<std::pair<std::int32_t, nb::object>> read_notes;
  for (nb::handle note : notes) read_notes.emplace_back(to_id(note[1]), nb::borrow(note[2]));
  std::vector<Fault> read_faults;
  for (nb::handle one : faults)
    read_faults.push_back({to_id(one[0]), nb::cast<std::int32_t>(one[1]), nb::cast<std::int64_t>(one[2]),
                           nb::cast<std::int32_t>(one[3]), nb::cast<std::int32_t>(one[4]),
                           text_of(one[5]), checked_kind(nb::cast<int>(one[6]))});
  const Contents contents(parcel);
  try {
    pool.unpack(group, contents.bytes());
  } catch (const BrokenParcel& error) {
    throw nb::value_error(error.what());
  }
  // Nobody looks at a batch before this call returns.
  for (auto& [env, note] : read_notes) notes_[env] = std::move(note);
  for (Fault& fault : read_faults) pool.add_fault(std::move(fault));
}

void RemoteHost::lose(int group, const std::string& why, const std::string& kind) {
  const Fault::Kind kind_of_fault = kind_of_loss(kind);
  RemotePool& pool = remote();
  for (std::int32_t env = pool.first_env(checked(group)); env < pool.first_env(group + 1); ++env) {
    objects_.erase(env);
    options_.erase(env);
  }
  Fault reason;
  reason.phase = SM_IN_STEP;
  reason.message = why;
  reason.kind = kind_of_fault;
  pool.lose(group, reason);
}

// ---- lending -----------------------------------------------------------------------------------

nb::object RemoteHost::lend(int group, const std::vector<std::int32_t>& envs) {
  return to_bytes(remote().lend(checked(group), envs));
}

void RemoteHost::take_back(int group, nb::handle parcel) {
  try {
    remote().take_back(checked(group), bytes_of(parcel));
  } catch (const BrokenParcel& error) {
    throw nb::value_error(error.what());
  }
}

void RemoteHost::check_envs(const std::vector<std::int32_t>& envs) const {
  for (const std::int32_t env : envs)
    if (env < 0 || env >= pool().num_envs()) throw nb::index_error("there is no such env");
}

void RemoteHost::keep_last(const std::vector<std::int32_t>& envs, nb::list leaves) {
  check_envs(envs);
  try {
    int number = 0;
    for (nb::handle leaf : leaves) remote().keep_last(envs, number++, bytes_of(leaf));
  } catch (const BrokenParcel& error) {
    throw nb::value_error(error.what());
  }
}

nb::list RemoteHost::take_losses(const std::vector<std::int32_t>& envs) {
  check_envs(envs);
  nb::list out;
  for (const Fault& fault : remote().take_losses(envs)) out.append(fault_tuple(fault));
  return out;
}

// ---- the host ----------------------------------------------------------------------------------

void RemoteHost::give_objects(std::int32_t env, nb::handle objects) { objects_[env] = nb::borrow(objects); }

void RemoteHost::give_options(const ResetOrder& order) {
  if (table()) return;  // the options of native envs are numbers
  for (std::size_t i = 0; i < order.envs.size(); ++i)
    if (const nb::object& given = order.object_of(i); order.resets(i)) {
      if (given.is_none())
        options_.erase(order.envs[i]);
      else
        options_[order.envs[i]] = given;
    }
}

void RemoteHost::attend() {
  nb::find(*this).attr("dispatch")();
  remote().looked_at_waiting();  // not before: if that was interrupted, it is called again
}

void RemoteHost::work(std::chrono::nanoseconds most) {
  nb::find(*this).attr("exchange")(std::chrono::duration<double>(most).count());
}

// (row, env, note)
nb::object RemoteHost::take_notes(const Batch& batch, std::vector<Fault>&) {
  nb::object out;
  for (std::int32_t row = 0; row < batch.rows && !notes_.empty(); ++row)
    if (const auto found = notes_.find(batch.env_id[row]); found != notes_.end()) {
      if (!out.is_valid()) out = nb::list();
      nb::borrow<nb::list>(out).append(nb::make_tuple(row, batch.env_id[row], found->second));
      notes_.erase(found);
    }
  return out;
}

void RemoteHost::add_stats(nb::dict& out, double) const {
  for (auto [key, value] : nb::cast<nb::dict>(nb::find(*this).attr("describe")())) out[key] = value;
}

}  // namespace stepmill
