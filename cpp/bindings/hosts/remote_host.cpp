#include "bindings/python/numpy_api.h"

#include "bindings/hosts/remote_host.h"

#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "bindings/python/values.h"

namespace nb = nanobind;

namespace stepmill {

namespace {

Fault::Kind kind_of_loss(const std::string& name) {
  if (name == "died") return Fault::kDied;
  if (name == "late") return Fault::kLate;
  if (name == "unplaced") return Fault::kUnplaced;
  throw nb::value_error("kind: expected 'died', 'late' or 'unplaced'");
}

}  // namespace

int RemoteHost::checked(int group) const {
  if (group < 0 || group >= remote().groups()) throw nb::index_error("there is no such group of envs");
  return group;
}

// ---- parcels -----------------------------------------------------------------------------------

nb::object RemoteHost::pack(int group, int most, int spare) {
  RemotePool& pool = remote();
  const std::int32_t first = pool.first_env(checked(group));
  const std::span<const std::int32_t> waiting = pool.waiting(group);
  const auto count = std::min(static_cast<std::size_t>(std::max(most, 0)), waiting.size());
  const std::vector<std::int32_t> envs(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<Enclosure> mail;
  for (const auto& [kind, given] : {std::pair(Enclosure::kObjects, &objects_), std::pair(Enclosure::kOptions, &options_)})
    if (!given->empty())
      for (const std::int32_t env : envs)
        if (const auto found = given->find(env); found != given->end())
          mail.push_back({env - first, kind, bytes_of(found->second)});
  const std::size_t row_bytes = pool.order_bytes(count);
  nb::object order = bytes_with(Parcel::bytes(row_bytes, mail), [&](std::span<std::byte> to) {
    pool.pack(group, count, Parcel::pack(to, row_bytes, mail, spare));
  });
  if (!mail.empty()) forget_mail(envs);
  return order;
}

void RemoteHost::forget_mail(std::span<const std::int32_t> envs) {
  for (const std::int32_t env : envs) {
    objects_.erase(env);
    options_.erase(env);
  }
}

int RemoteHost::unpack(int group, nb::handle answer) {
  RemotePool& pool = remote();
  const std::int32_t first = pool.first_env(checked(group));
  const Contents contents(answer);
  const Parcel parcel(contents.bytes(), pool.first_env(group + 1) - first);
  std::vector<std::pair<std::int32_t, nb::object>> notes;
  std::vector<Fault> faults;
  for (const Enclosure& one : parcel.enclosures()) {
    const std::int32_t env = first + one.env;
    if (!pool.is_away(env)) throw BrokenParcel("a note about an env that was not asked");
    if (one.kind == Enclosure::kNote) {
      notes.emplace_back(env, to_bytes(one.content));
    } else {
      faults.push_back(read_fault(one));
      faults.back().env = env;
    }
  }
  const std::int32_t rows = parcel.rows().empty() ? 0 : pool.unpack(group, parcel.rows());
  // Nobody looks at a batch before this call returns.
  for (auto& [env, note] : notes) notes_[env] = std::move(note);
  for (Fault& fault : faults) pool.add_fault(std::move(fault));
  return rows;
}

void RemoteHost::lose(int group, const std::string& why, const std::string& kind) {
  const Fault::Kind kind_of_fault = kind_of_loss(kind);
  RemotePool& pool = remote();
  for (std::int32_t env = pool.first_env(checked(group)); env < pool.first_env(group + 1); ++env) forget_mail({&env, 1});
  Fault reason;
  reason.phase = SM_IN_STEP;
  reason.message = why;
  reason.kind = kind_of_fault;
  pool.lose(group, reason);
  add_to(pool.counters()->pool().restarts, 1);  // the derived class starts another
}

// ---- lending -----------------------------------------------------------------------------------

nb::object RemoteHost::lend(int group, const std::vector<std::int32_t>& envs) {
  return to_bytes(remote().lend(checked(group), envs));
}

void RemoteHost::take_back(int group, nb::handle states) { remote().take_back(checked(group), bytes_of(states)); }

void RemoteHost::check_envs(const std::vector<std::int32_t>& envs) const {
  for (const std::int32_t env : envs)
    if (env < 0 || env >= pool().num_envs()) throw nb::index_error("there is no such env");
}

void RemoteHost::keep_last(const std::vector<std::int32_t>& envs, nb::list leaves) {
  check_envs(envs);
  int number = 0;
  for (nb::handle leaf : leaves) remote().keep_last(envs, number++, bytes_of(leaf));
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
      add_to_list(out, nb::make_tuple(row, batch.env_id[row], found->second));
      notes_.erase(found);
    }
  return out;
}

void RemoteHost::add_stats(nb::dict& out) const {
  for (auto [key, value] : nb::cast<nb::dict>(nb::find(*this).attr("describe")())) out[key] = value;
}

}  // namespace stepmill
