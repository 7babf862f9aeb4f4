#include "bindings/python/numpy_api.h"

#include "bindings/engine_parcels.h"

#include <algorithm>
#include <utility>

#include "bindings/engine_use.h"
#include "bindings/python/bytes.h"

namespace nb = nanobind;

namespace stepmill {

AnswerMail::AnswerMail(nb::handle notes, std::span<const Fault> faults, const nb::object& write_note) {
  if (notes.is_valid())
    for (nb::handle note : notes) {
      written_.push_back(write_note.is_none() ? nb::borrow(note[2]) : write_note(*note));
      enclosures_.push_back({nb::cast<std::int32_t>(note[1]), Enclosure::kNote, bytes_of(written_.back())});
    }
  for (const Fault& fault : faults) {
    faults_.push_back(packed(fault));
    enclosures_.push_back({fault.env, Enclosure::kFault, faults_.back()});
  }
}

ParcelServer::ParcelServer(nb::object engine, nb::object read_mail, nb::object write_note)
    : engine_object_(std::move(engine)),
      engine_(nb::cast<Engine&>(engine_object_)),
      read_mail_(std::move(read_mail)),
      write_note_(std::move(write_note)) {}

// How long the envs of an order that spares all of them are waited for: other orders may wait behind it.
constexpr double kPatience = 1e-2;

nb::object ParcelServer::exchange(nb::handle order, double quick, std::optional<double> patience) {
  const Engine::Use use(engine_);
  const std::int32_t spare = start(order);
  const std::int32_t at_work = engine_.in_flight_count();
  if (at_work == 0)  // an order or an answer was lost on its way
    throw std::runtime_error("its caller waits for envs that have nothing to do");
  if (spare >= at_work && !patience) patience = kPatience;
  if (engine_.ready_some(at_work, std::max(1, at_work - std::max(0, spare)), nb::float_(quick), false, patience)) return answer();
  return bytes_with(Parcel::bytes(0, {}), [](std::span<std::byte> to) { Parcel::pack(to, 0, {}); });
}

void ParcelServer::refuse_in_flight(std::span<const std::int32_t> envs) const {
  for (const std::int32_t env : envs)
    if (pool().in_flight(env)) raise("InFlightError", "env " + std::to_string(env) + " is in flight");
}

// The other engine has checked every value. Returns how many envs may still be at work when the answer goes.
std::int32_t ParcelServer::start(nb::handle order) {
  const Contents contents(order);
  const Parcel parcel(contents.bytes(), pool().num_envs());
  const EnvRows rows(pool().table(), pool().spec());
  const std::vector<std::int32_t> envs = rows.envs(parcel.rows(), pool().num_envs());
  if (envs.empty()) return parcel.spare();
  refuse_in_flight(envs);
  engine_.host_.settle(envs);
  pool().make_room(static_cast<std::int32_t>(envs.size()), false);
  for (const Enclosure& mail : parcel.enclosures()) pass_on(mail);
  rows.unpack(parcel.rows(), envs);
  engine_.start(envs, false, false);
  return parcel.spare();
}

void ParcelServer::pass_on(const Enclosure& mail) {
  nb::object value = to_bytes(mail.content);
  if (!read_mail_.is_none()) value = read_mail_(mail.env, value);
  if (mail.kind == Enclosure::kObjects) {
    engine_.host_.give_objects(mail.env, value);
    return;
  }
  ResetOrder order;
  order.envs = {&mail.env, 1};
  order.numbers.emplace_back();
  order.objects.push_back(std::move(value));
  engine_.host_.give_options(order);
}

nb::object ParcelServer::answer() {
  engine_.faults_.clear();
  const Batch batch = pool().take_batch(engine_.faults_);
  struct Release {
    const Batch& batch;
    ~Release() { batch.store->release(batch.buffer); }
  } const release{batch};
  engine_.count(batch);
  const nb::object notes = engine_.take_notes(batch);
  const AnswerMail mail(notes, engine_.faults_, write_note_);
  const AnswerRows rows(pool().spec(), pool().options().table, pool().table());
  const std::size_t row_bytes = rows.bytes(batch.rows);
  return bytes_with(Parcel::bytes(row_bytes, mail.enclosures()), [&](std::span<std::byte> to) {
    rows.pack(batch, Parcel::pack(to, row_bytes, mail.enclosures()));
  });
}

// ---- lending -----------------------------------------------------------------------------------

void ParcelServer::take_states(nb::handle states) {
  const Engine::Use use(engine_);
  const EnvRows rows(pool().table());
  const std::vector<std::int32_t> envs = rows.envs(bytes_of(states), pool().num_envs());
  refuse_in_flight(envs);
  engine_.host_.settle(envs);
  rows.unpack(bytes_of(states), envs);
}

nb::object ParcelServer::give_states(const std::vector<std::int32_t>& envs) {
  const Engine::Use use(engine_);
  for (const std::int32_t env : envs)
    if (env < 0 || env >= pool().num_envs()) throw nb::index_error("there is no such env");
  refuse_in_flight(envs);
  engine_.host_.settle(envs);
  const EnvRows rows(pool().table());
  return bytes_with(rows.bytes(envs.size()), [&](std::span<std::byte> to) { rows.pack(envs, 0, to); });
}

}  // namespace stepmill
