// Resets. The whole order is read and checked before anything changes.
#include "bindings/python/numpy_api.h"

#include "bindings/engine_use.h"
#include "bindings/input/config_input.h"

#include <cmath>
#include <cstring>

namespace nb = nanobind;

namespace stepmill {

ResetOrder Engine::read_reset(nb::handle env_id, nb::handle seeds, nb::handle options, nb::handle preparation) {
  ResetOrder order;
  order.envs = env_id.is_none() ? std::span<const std::int32_t>(all_envs_) : input_->read_envs(env_id);
  const auto add_options = [&](nb::handle one) {
    order.numbers.push_back(host_.table() ? read_options(*host_.table(), one) : sm_reset_request{});
    order.objects.push_back(host_.table() ? nb::none() : host_object_.attr("pack_options")(one, preparation));
  };
  if (PyList_Check(options.ptr())) {  // one per env
    for (nb::handle one : nb::borrow<nb::list>(options)) add_options(one);
    if (order.objects.size() != order.envs.size())
      raise("ResetOptionError", "options: expected " + std::to_string(order.envs.size()) + " dicts, one per env, got " +
                                    std::to_string(order.objects.size()));
  } else {
    add_options(options);
  }
  if (!seeds.is_none()) read_seeds(seeds, order);
  return order;
}

void Engine::read_seeds(nb::handle seeds, ResetOrder& order) const {
  nb::object items = owned(PySequence_Tuple(seeds.ptr()));
  const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
  if (count != static_cast<Py_ssize_t>(order.envs.size()))
    raise("ConfigError", "seed: expected a list of " + std::to_string(order.envs.size()) + " seeds, one per env, got " +
                             std::to_string(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* seed = PyTuple_GET_ITEM(items.ptr(), i);
    auto& to = order.seeds.emplace_back();
    if (seed != Py_None) to = PyLong_AsUnsignedLongLong(seed);
    if (PyErr_Occurred()) throw nb::python_error();
  }
}

// Whether rows of some envs can be waited for alone.
void Engine::check_gathering() const {
  if (pool().is_async() ? pool().gathering() : pool().in_flight_count() != 0)
    raise("InFlightError", "cannot reset or restore some envs while others are in flight: recv() their results first");
}

void Engine::queue_reset(const ResetOrder& order, bool gather, nb::handle preparation) {
  prepare_reset(order, gather, preparation);
  start(order.envs, gather, gather);
}

// Checks, and then writes what the envs will read when they are started: all but the start.
void Engine::prepare_reset(const ResetOrder& order, bool gather, nb::handle preparation) {
  const auto envs = order.envs;
  refuse_pending(gather ? std::span<const std::int32_t>(all_envs_) : envs);
  for (const std::int32_t env : envs)
    if (pool().in_flight(env))
      raise("InFlightError", "env " + std::to_string(env) +
                                 " is in flight: recv() its result before you reset it, or reset() all envs");
  if (gather || !pool().is_async()) check_gathering();
  host_.settle(envs);
  pool().make_room(static_cast<std::int32_t>(envs.size()), gather);
  if (!preparation.is_none()) host_object_.attr("prepare")(preparation, list_of(envs));
  host_.give_options(order);
  // Nothing can fail from here on.
  was_sent_ = true;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    if (!order.resets(i)) {
      pool().table().state(envs[i]).command = SM_OBSERVE;
      continue;
    }
    sm_reset_request& to = pool().table().reset_request(envs[i]);
    const sm_reset_request& options = order.numbers_of(i);
    to.option_mask = options.option_mask;
    std::memcpy(to.option, options.option, sizeof(options.option));
    if (!order.seeds.empty() && order.seeds[i]) {
      to.seed = *order.seeds[i];
      to.has_seed = 1;
    }
    pool().table().state(envs[i]).command = SM_RESET;
  }
}

void Engine::send_reset(nb::handle env_id, nb::handle seeds, nb::handle options, nb::handle preparation) {
  const Use use(*this, "reset");
  queue_reset(read_reset(env_id, seeds, options, preparation), false, preparation);
}

nb::object Engine::reset(nb::handle env_id, nb::handle seeds, nb::handle options, nb::handle mask) {
  const Use use(*this, "reset");
  ResetOrder order = read_reset(env_id, seeds, options, nb::none());  // first: an invalid reset drops nothing
  // The views have checked the mask: one bool per env.
  if (!mask.is_none())
    order.mask = static_cast<const std::uint8_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(mask.ptr())));
  if (env_id.is_none() && !order.mask) drain();
  queue_reset(order, true, nb::none());
  wait(std::nullopt);
  return finish(true);
}

// Waits for everything in flight and drops it: a reset of all envs makes it void.
void Engine::drain() {
  pending_.reset();
  if (replay_) replay_->drop();
  kept_notes_.clear();
  while (pool().in_flight_count() != 0) {
    wait_until(std::nullopt);
    Batch batch = pool().take_batch(faults_);
    host_.take_notes(batch, faults_);
    batch.store->release(batch.buffer);
  }
  faults_.clear();
}

}  // namespace stepmill
