// An engine that serves another one, which has its own copy of the action table elsewhere: parcels instead of arrays.
#include "bindings/python/numpy_api.h"

#include "bindings/python/bytes.h"
#include "bindings/engine_use.h"
#include "bindings/output/faults.h"
#include "core/remote/parcel.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

std::vector<std::int32_t> envs_of(const EnvParcel& kind, nb::handle parcel, std::int32_t num_envs) {
  try {
    return kind.envs(bytes_of(parcel), num_envs);
  } catch (const BrokenParcel& error) {
    throw nb::value_error(error.what());
  }
}

}  // namespace

void Engine::refuse_in_flight(std::span<const std::int32_t> envs) const {
  for (const std::int32_t env : envs)
    if (pool().in_flight(env)) raise("InFlightError", "env " + std::to_string(env) + " is in flight");
}

// Starts envs as the other engine has packed them; that one has checked every value. `objects` and `options`: by env, what
// the host passes on.
void Engine::send_parcel(nb::handle parcel, nb::dict objects, nb::dict options) {
  const Use use(*this);
  const OrderParcel orders(pool().spec(), pool().table());
  const std::vector<std::int32_t> envs = envs_of(orders, parcel, pool().num_envs());
  refuse_in_flight(envs);
  host_.settle(envs);
  pool().make_room(static_cast<std::int32_t>(envs.size()), false);
  for (auto [env, value] : objects) host_.give_objects(nb::cast<std::int32_t>(env), value);
  for (auto [env, value] : options) {
    const auto id = nb::cast<std::int32_t>(env);
    ResetOrder order;
    order.envs = {&id, 1};
    order.numbers.emplace_back();
    order.objects.push_back(nb::borrow(value));
    host_.give_options(order);
  }
  orders.unpack(bytes_of(parcel), pool().num_envs());
  start(envs, false, false);
}

// (parcel, notes, faults)
nb::object Engine::recv_parcel(int enough, int at_least, nb::handle timeout, std::optional<double> patience) {
  const Use use(*this);
  if (!ready_some(enough, at_least, timeout, false, patience)) return nb::none();
  faults_.clear();
  Batch batch = pool().take_batch(faults_);
  count(batch);
  const nb::object extras = collect_extras(batch);
  const AnswerParcel answers(pool().spec(), pool().options().table);
  const std::size_t bytes = answers.bytes(batch.rows);
  nb::object parcel = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (parcel.is_valid())
    answers.pack(batch, pool().table(),
                 {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(parcel.ptr())), bytes});
  batch.store->release(batch.buffer);
  if (!parcel.is_valid()) throw nb::python_error();
  if (!extras.is_valid()) return nb::make_tuple(parcel, nb::list(), nb::list());
  return nb::make_tuple(parcel, extras[0], extras[1]);
}

// Envs that the other engine has lent: from now on their states are those of the parcel.
void Engine::take_states(nb::handle parcel) {
  const Use use(*this);
  const StateParcel states(pool().table());
  const std::vector<std::int32_t> envs = envs_of(states, parcel, pool().num_envs());
  refuse_in_flight(envs);
  host_.settle(envs);
  states.unpack(bytes_of(parcel), pool().num_envs());
}

// The states of envs that go back.
nb::object Engine::give_states(const std::vector<std::int32_t>& envs) {
  const Use use(*this);
  for (const std::int32_t env : envs)
    if (env < 0 || env >= pool().num_envs()) throw nb::index_error("there is no such env");
  refuse_in_flight(envs);
  host_.settle(envs);
  const StateParcel states(pool().table());
  std::vector<std::byte> parcel(states.bytes(envs.size()));
  states.pack(envs, 0, parcel);
  return to_bytes(parcel);
}

void Engine::count_elsewhere(std::uint64_t steps, std::uint64_t episodes, std::uint64_t failures) {
  const Use use(*this);
  PoolRecord& counts = counters_->pool();
  add_to(counts.steps, steps);
  add_to(counts.episodes, episodes);
  add_to(counts.failures, failures);
  if (pool().is_async()) last_ids_ = all_envs_;
}

}  // namespace stepmill
