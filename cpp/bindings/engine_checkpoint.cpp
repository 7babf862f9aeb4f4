#include "bindings/python/numpy_api.h"

#include "bindings/engine_checkpoint.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "bindings/engine_parcels.h"
#include "bindings/engine_states.h"
#include "bindings/engine_use.h"
#include "bindings/python/bytes.h"
#include "bindings/python/values.h"
#include "core/counters/ticks.h"

namespace nb = nanobind;

namespace stepmill {

// ---- taking ------------------------------------------------------------------------------------

nb::object EngineCheckpoint::take(nb::handle by) {
  const Engine::Use use(engine_, "checkpoint");
  if (engine_.replay_)
    raise("UsageError", "checkpoint: this pool repeats the order of another run (replay_order), and some of its results are "
                        "kept aside: make checkpoints in the run that records");
  nb::object on_its_way = nb::none();
  if (engine_.pending_) {
    engine_.show_pending();
    on_its_way = nb::make_tuple(engine_.pending_->result, engine_.pending_->error);
  }
  wait_for_all();
  std::vector<Taken> batches;
  const auto put_all_back = [&] {
    for (Taken& one : batches) put_back(std::move(one));
    set(engine_.counters_->pool().in_flight, static_cast<std::uint64_t>(pool().in_flight_count()));
  };
  nb::object out;
  try {
    while (pool().in_flight_count() != 0) batches.push_back(take_batch());
    engine_.host_.settle(engine_.all_envs_);
    std::vector<std::int32_t> played;
    std::copy_if(engine_.all_envs_.begin(), engine_.all_envs_.end(), std::back_inserter(played),
                 [&](std::int32_t env) { return !pool().is_new(env); });
    const nb::object states = played.empty() ? nb::none() : EngineStates(engine_object_).save_idle(played, by);
    const EnvRows rows(pool().table());
    nb::list parcels;
    for (const Taken& one : batches) parcels.append(nb::make_tuple(one.gather, parcel_of(one)));
    std::vector<std::uint32_t> lives;
    for (const std::int32_t env : engine_.all_envs_) lives.push_back(pool().lives(env));
    const nb::object table_rows = bytes_with(
        rows.bytes(engine_.all_envs_.size()), [&](std::span<std::byte> to) { rows.pack(engine_.all_envs_, 0, to); });
    out = nb::make_tuple(list_of(played), states,
                         nb::make_tuple(table_rows, parcels, list_of(engine_.last_ids_), nb::cast(lives), counts()),
                         on_its_way);
  } catch (...) {
    put_all_back();
    throw;
  }
  put_all_back();
  return out;
}

// Ctrl-C leaves everything in flight. After it, nothing has to be waited for.
void EngineCheckpoint::wait_for_all() {
  if (pool().in_flight_count() == 0) return;
  Pool::LookAhead ahead(pool());
  do engine_.wait_until(std::nullopt);
  while (ahead.go_on());
}

EngineCheckpoint::Taken EngineCheckpoint::take_batch() {
  const bool gather = pool().gathering();
  const AnswerRows form(pool().spec(), pool().options().table, pool().table());
  Taken out{.gather = gather, .rows = std::vector<std::byte>(form.bytes(pool().expected())), .notes = {}, .faults = {}};
  engine_.wait_until(std::nullopt);  // a look: it is ready
  const Batch batch = pool().take_batch(out.faults);
  out.notes = engine_.host_.take_notes(batch, out.faults);
  if (!engine_.kept_notes_.empty()) out.notes = engine_.take_kept_notes(batch, std::move(out.notes));
  form.pack(batch, out.rows);
  batch.store->release(batch.buffer);
  return out;
}

nb::object EngineCheckpoint::parcel_of(const Taken& taken) const {
  const AnswerMail mail(taken.notes, taken.faults, write_note_);
  return bytes_with(Parcel::bytes(taken.rows.size(), mail.enclosures()), [&](std::span<std::byte> to) {
    std::ranges::copy(taken.rows, Parcel::pack(to, taken.rows.size(), mail.enclosures()).begin());
  });
}

// ---- giving ------------------------------------------------------------------------------------

void EngineCheckpoint::put_back(Taken taken) {
  const AnswerRows form(pool().spec(), pool().options().table, pool().table());
  const AnswerRows::Parts parts = form.split(taken.rows);
  const std::vector<std::int32_t> envs = EnvRows(pool().table()).envs(parts.states, pool().num_envs());
  for (const std::int32_t env : envs)
    if (pool().in_flight(env)) throw BrokenParcel("two results of env " + std::to_string(env));
  pool().put_back(envs, taken.gather, parts.layout, parts.batch);
  for (Fault& fault : taken.faults) pool().add_fault(std::move(fault));
  if (taken.notes.is_valid())
    for (nb::handle note : taken.notes) engine_.kept_notes_[nb::cast<std::int32_t>(note[1])] = nb::borrow(note);
}

EngineCheckpoint::Taken EngineCheckpoint::taken_of(bool gather, nb::handle bytes) const {
  const Parcel parcel(bytes_of(bytes), pool().num_envs());
  Taken out{.gather = gather, .rows = {parcel.rows().begin(), parcel.rows().end()}, .notes = {}, .faults = {}};
  std::vector<std::pair<std::int32_t, std::string>> messages;
  for (const Enclosure& one : parcel.enclosures()) {
    if (one.kind == Enclosure::kFault) {
      out.faults.push_back(read_fault(one));
    } else if (read_note_.is_none()) {
      add_to_list(out.notes, nb::make_tuple(0, one.env, to_bytes(one.content)));
    } else if (const nb::object read = read_note_(one.env, to_bytes(one.content)); nb::isinstance<nb::str>(read)) {
      messages.emplace_back(one.env, text_of(read));
    } else if (!read.is_none()) {
      const nb::object whose = nb::make_tuple(0, one.env);
      add_to_list(out.notes, owned(PySequence_Concat(whose.ptr(), nb::tuple(read).ptr())));
    }
  }
  for (Fault& fault : out.faults)
    for (const auto& [env, message] : messages)
      if (env == fault.env) fault.message = message;
  return out;
}

void EngineCheckpoint::give(nb::handle rest, nb::handle on_its_way) {
  const Engine::Use use(engine_);
  if (engine_.in_flight_count() != 0) raise("InFlightError", "a pool that is resumed has nothing in flight");
  try {
    const EnvRows rows(pool().table());
    const std::span<const std::byte> table_rows = bytes_of(rest[0]);
    const std::vector<std::int32_t> envs = rows.envs(table_rows, pool().num_envs());
    const auto lives = nb::cast<std::vector<std::uint32_t>>(rest[3]);
    if (envs != engine_.all_envs_ || lives.size() != envs.size()) throw BrokenParcel("states of other envs");
    rows.unpack(table_rows, envs);
    for (const std::int32_t env : envs) {
      pool().table().state(env).command = SM_STEP;
      pool().adopt(env, lives[static_cast<std::size_t>(env)]);
    }
    for (nb::handle one : rest[1]) put_back(taken_of(nb::cast<bool>(one[0]), one[1]));
  } catch (const BrokenParcel& error) {
    raise("StateError", std::string("resume: what the checkpoint holds does not fit this pool: ") + error.what());
  }
  engine_.last_ids_ = nb::cast<std::vector<std::int32_t>>(rest[2]);
  if (!on_its_way.is_none())
    engine_.pending_.emplace(Engine::Pending{.result = on_its_way[0],
                                             .error = on_its_way[1],
                                             .extras = {},
                                             .is_looked_at = false,
                                             .is_shown = true});
  set_counts(rest[4]);
}

// ---- counts ------------------------------------------------------------------------------------

// (seconds since the pool was made, calls, batches, steps, episodes, failures, restarts)
nb::object EngineCheckpoint::counts() const {
  PoolRecord& record = engine_.counters_->pool();
  std::uint64_t restarts = get(record.restarts);
  for (std::uint64_t w = 0; w < get(record.num_workers); ++w) restarts += get(record.workers()[w].restarts);
  const double age = static_cast<double>(read_ticks() - get(record.made)) / ticks_per_second();
  return nb::make_tuple(age, get(record.calls), get(record.batches), get(record.steps), get(record.episodes),
                        get(record.failures), restarts);
}

void EngineCheckpoint::set_counts(nb::handle counts) {
  PoolRecord& record = engine_.counters_->pool();
  const auto age = static_cast<std::uint64_t>(nb::cast<double>(counts[0]) * ticks_per_second());
  const std::uint64_t now = read_ticks();
  set(record.made, age < now ? now - age : 1);
  Word* const words[] = {&record.calls,    &record.batches,  &record.steps,
                         &record.episodes, &record.failures, &record.restarts};
  for (std::size_t i = 0; i < std::size(words); ++i) set(*words[i], nb::cast<std::uint64_t>(counts[i + 1]));
  set(record.in_flight, static_cast<std::uint64_t>(pool().in_flight_count()));
}

}  // namespace stepmill
