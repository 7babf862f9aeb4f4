// Converts env classes, their configuration and their specs between C++ and Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "core/env_set.h"

namespace stepmill {

const sm_env_table* find_table(nanobind::handle name);
nanobind::dict default_config_of(nanobind::handle name);
nanobind::dict describe_class(nanobind::handle name, nanobind::handle config, nanobind::handle simulator);

// A complete configuration: the defaults, overridden by `given`. Raises on unknown keys and wrong types.
Config read_config(const sm_env_table& table, nanobind::handle given);

// What Python says about a simulator: a dict of flags, numbers, texts and lists of numbers, or None.
Config read_simulator(nanobind::handle values);

// The configurations of envs, those that follow each other and are the same together; with what Python says about the
// simulator of each, or None.
std::vector<ConfigRun> read_runs(const sm_env_table& table, nanobind::handle configs, nanobind::handle simulators);
// Raises EnvError if a constructor throws.
std::unique_ptr<EnvSet> build_envs(const sm_env_table& table, const std::vector<ConfigRun>& runs, std::int32_t first_id = 0);

// The spec of an env with that configuration. Raises if the configuration is invalid, or numpy cannot hold its arrays.
EnvSpec read_native_spec(const sm_env_table& table, const Config& config, const Config& simulator);

// Options of a reset: numbers with names that the env declares. Raises ResetOptionError.
sm_reset_request read_options(const sm_env_table& table, nanobind::handle options);

// A spec made in Python: {"observation": [leaf, ...], "action": [leaf, ...]}, each leaf a dict.
EnvSpec read_spec(nanobind::handle spec);

}  // namespace stepmill
