#include "bindings/python/numpy_api.h"

#include "bindings/engine_states.h"

#include <cstring>
#include <vector>

#include "bindings/engine_use.h"
#include "bindings/python/bytes.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

struct SavedRow {
  sm_env_state state;
  sm_reset_request reset;
};

}  // namespace

// The envs, none of which is at work, or has a result that the caller has not got yet.
std::span<const std::int32_t> EngineStates::read_idle(nb::handle env_id) {
  const auto envs = env_id.is_none() ? std::span<const std::int32_t>(engine_.all_envs_) : engine_.input_->read_envs(env_id);
  engine_.refuse_pending(envs);
  for (const std::int32_t env : envs)
    if (engine_.pool().in_flight(env))
      raise("InFlightError", "env " + std::to_string(env) + " is in flight, and its state is in use: recv() its result first");
  engine_.host_.settle(envs);
  return envs;
}

nb::object EngineStates::save(nb::handle env_id, nb::handle by) {
  const Engine::Use use(engine_, "save");
  const auto envs = read_idle(env_id);
  const ActionTable& table = engine_.pool().table();
  for (const std::int32_t env : envs)
    if (table.state(env).phase == SM_FRESH)
      raise("NeedsResetError", "env " + std::to_string(env) +
                                   " was never reset, so that there is nothing to save: its seed is its state. reset() it first");
  return save_idle(envs, by);
}

nb::object EngineStates::save_idle(std::span<const std::int32_t> envs, nb::handle by) {
  const ActionTable& table = engine_.pool().table();
  std::vector<std::byte> saved;
  std::vector<std::size_t> ends;
  const nb::object kept = engine_.host_.save(envs, by, saved, ends);
  npy_intp shape[] = {static_cast<npy_intp>(envs.size()), 2};
  nb::object bounds = owned(PyArray_SimpleNew(2, shape, NPY_INT64));
  auto* bound = data_of<std::int64_t>(bounds);
  nb::object buffer = bytes_with(saved.size() + envs.size() * sizeof(SavedRow), [&](std::span<std::byte> to) {
    std::size_t at = 0, from = 0;
    for (std::size_t i = 0; i < envs.size(); ++i) {
      *bound++ = static_cast<std::int64_t>(at);
      const SavedRow row{table.state(envs[i]), table.reset_request(envs[i])};
      std::memcpy(&to[at], &row, sizeof(row));
      at += sizeof(row);
      if (ends[i] != from) std::memcpy(&to[at], &saved[from], ends[i] - from);
      at += ends[i] - from;
      from = ends[i];
      *bound++ = static_cast<std::int64_t>(at);
    }
  });
  return nb::make_tuple(buffer, bounds, or_none(kept));
}

nb::object EngineStates::restore(nb::handle buffer, nb::handle bounds, nb::handle env_id, nb::handle) {
  const Engine::Use use(engine_, "restore");
  queue_restore(buffer, bounds, env_id, true);
  engine_.wait(std::nullopt);
  return engine_.finish(true);
}

void EngineStates::send_restore(nb::handle buffer, nb::handle bounds, nb::handle env_id, nb::handle) {
  const Engine::Use use(engine_, "restore");
  queue_restore(buffer, bounds, env_id, false);
}

void EngineStates::queue_restore(nb::handle buffer, nb::handle bounds, nb::handle env_id, bool gather) {
  const auto envs = read_idle(env_id);
  if (gather || !engine_.pool().is_async()) engine_.check_gathering();
  const std::span<const std::byte> bytes = bytes_of(buffer);
  nb::object places = owned(PyArray_FROM_OTF(bounds.ptr(), NPY_INT64, NPY_ARRAY_CARRAY_RO));
  if (PyArray_SIZE(reinterpret_cast<PyArrayObject*>(places.ptr())) != 2 * std::ssize(envs))
    raise("StateError", "restore: expected a state for each of " + std::to_string(envs.size()) + " envs");
  const auto* place = data_of<const std::int64_t>(places);
  std::vector<std::span<const std::byte>> states;
  states.reserve(envs.size());
  for (std::size_t i = 0; i < envs.size(); ++i) {
    const std::int64_t first = place[2 * i], last = place[2 * i + 1];
    if (first < 0 || last > std::ssize(bytes) || last - first < static_cast<std::int64_t>(sizeof(SavedRow)))
      raise("StateError", "restore: a state that ends too soon");
    states.push_back(bytes.subspan(static_cast<std::size_t>(first) + sizeof(SavedRow),
                                   static_cast<std::size_t>(last - first) - sizeof(SavedRow)));
  }
  engine_.pool().make_room(static_cast<std::int32_t>(envs.size()), gather);
  const nb::object late = engine_.host_.load(envs, states);
  // Nothing can fail from here on.
  for (std::size_t i = 0; i < envs.size(); ++i) {
    SavedRow row;
    std::memcpy(&row, states[i].data() - sizeof(row), sizeof(row));
    row.state.command = SM_RECALL;
    engine_.pool().table().state(envs[i]) = row.state;
    engine_.pool().table().reset_request(envs[i]) = row.reset;
    engine_.pool().adopt(envs[i], std::nullopt);
  }
  engine_.start(envs, gather, gather);
  if (!late.is_none()) raise_again(late);  // not before: what they show is in flight, as after Ctrl-C in a wait
}

}  // namespace stepmill
