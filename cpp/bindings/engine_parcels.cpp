#include "bindings/python/numpy_api.h"

#include "bindings/engine_parcels.h"

#include "bindings/engine_use.h"
#include "bindings/output/faults.h"
#include "bindings/python/bytes.h"
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

ParcelServer::ParcelServer(nb::object engine)
    : engine_object_(std::move(engine)), engine_(nb::cast<Engine&>(engine_object_)) {}

// Refuses envs that are in flight, and waits until the host is done with the others.
void ParcelServer::settle(std::span<const std::int32_t> envs) {
  for (const std::int32_t env : envs)
    if (pool().in_flight(env)) raise("InFlightError", "env " + std::to_string(env) + " is in flight");
  engine_.host_.settle(envs);
}

void ParcelServer::send(nb::handle parcel, nb::dict objects, nb::dict options) {
  const Engine::Use use(engine_);
  const OrderParcel orders(pool().spec(), pool().table());
  const std::vector<std::int32_t> envs = envs_of(orders, parcel, pool().num_envs());
  settle(envs);
  pool().make_room(static_cast<std::int32_t>(envs.size()), false);
  for (auto [env, value] : objects) engine_.host_.give_objects(nb::cast<std::int32_t>(env), value);
  for (auto [env, value] : options) {
    const auto id = nb::cast<std::int32_t>(env);
    ResetOrder order;
    order.envs = {&id, 1};
    order.numbers.emplace_back();
    order.objects.push_back(nb::borrow(value));
    engine_.host_.give_options(order);
  }
  orders.unpack(bytes_of(parcel), pool().num_envs());
  engine_.start(envs, false, false);
}

nb::object ParcelServer::recv(int enough, int at_least, nb::handle timeout, std::optional<double> patience) {
  const Engine::Use use(engine_);
  if (!engine_.ready_some(enough, at_least, timeout, false, patience)) return nb::none();
  engine_.faults_.clear();
  Batch batch = pool().take_batch(engine_.faults_);
  engine_.count(batch);
  const nb::object extras = engine_.collect_extras(batch);
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

void ParcelServer::take_states(nb::handle parcel) {
  const Engine::Use use(engine_);
  const StateParcel states(pool().table());
  const std::vector<std::int32_t> envs = envs_of(states, parcel, pool().num_envs());
  settle(envs);
  states.unpack(bytes_of(parcel), pool().num_envs());
}

nb::object ParcelServer::give_states(const std::vector<std::int32_t>& envs) {
  const Engine::Use use(engine_);
  for (const std::int32_t env : envs)
    if (env < 0 || env >= pool().num_envs()) throw nb::index_error("there is no such env");
  settle(envs);
  const StateParcel states(pool().table());
  std::vector<std::byte> parcel(states.bytes(envs.size()));
  states.pack(envs, 0, parcel);
  return to_bytes(parcel);
}

}  // namespace stepmill
