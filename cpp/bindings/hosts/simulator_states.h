// Saved states of native envs whose simulators Python makes.
//
// Behind the state of the env is what was changed in its model, which only Python can make again: a line for the model
// that the env uses, and another one if its next reset takes up another model. Nearly always there is nothing.
#pragma once

#include <nanobind/nanobind.h>

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "bindings/input/config_input.h"
#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "core/env_set.h"

namespace stepmill {

// Gives an env what its simulator says now, from its next reset on.
inline void connect_simulator(EnvSet& envs, std::int32_t env, nanobind::handle simulator) {
  envs.connect(env, read_simulator(simulator.attr("values")()));
}

// Adds the state of an env, whose simulator is None if it has none.
inline void save_env(const EnvSet& envs, std::int32_t env, nanobind::handle simulator, std::vector<std::byte>& to) {
  envs.save(env, to);
  if (simulator.is_none()) return;
  const nanobind::object changes = simulator.attr("model_changes")();
  const auto text = bytes_of(changes);
  Writer writer(&to, add_bytes);
  writer.put_array(text.data(), text.size());
  writer.put(text.size());
}

// If it throws, the env and the model of its next reset may be anything: load what was saved before.
inline void load_env(EnvSet& envs, std::int32_t env, nanobind::handle simulator, std::span<const std::byte> state) {
  if (simulator.is_none()) {
    envs.load(env, state);
    return;
  }
  std::size_t size = 0;
  if (state.size() >= sizeof(size)) std::memcpy(&size, &state[state.size() - sizeof(size)], sizeof(size));
  if (state.size() < sizeof(size) || size > state.size() - sizeof(size))
    throw std::invalid_argument("a state that ends too soon");
  const auto own = state.first(state.size() - sizeof(size) - size), text = state.subspan(own.size(), size);
  if (const nanobind::object changes = simulator.attr("model_changes")(); text.empty() && bytes_of(changes).empty()) {
    envs.load(env, own);
    return;
  }
  const std::string_view lines(reinterpret_cast<const char*>(text.data()), text.size());
  const std::size_t end = lines.find('\n');
  const auto put = [&](std::span<const std::byte> line) {
    simulator.attr("put_model")(to_bytes(line));
    connect_simulator(envs, env, simulator);
  };
  put(text.first(std::min(end, text.size())));
  envs.load(env, own);  // it takes up the model that was just connected
  if (end != std::string_view::npos) put(text.subspan(end + 1));
}

}  // namespace stepmill
