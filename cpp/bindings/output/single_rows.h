// From batches to single envs and back, for the env managers: their callers have one object per env, and a line of
// Python for each of them would cost more than the step.
#pragma once

#include <nanobind/nanobind.h>

namespace stepmill {

// An array for each pair of a batch and a row, with its own memory: keeping one row does not keep the batch alive.
nanobind::object own_rows(nanobind::list places);

// Stacks a list of arrays as the rows of one. None if they are not arrays of the same type and shape.
nanobind::object stack_alike(nanobind::list arrays);

// One timestep per row: tuples (observation, reward, done, info) of the given type; and a list of the rows that are
// done. Rewards are separate arrays, with at least one axis; infos are empty dicts.
nanobind::object make_timesteps(nanobind::type_object type, nanobind::list observations, nanobind::handle rewards,
                                nanobind::handle terminated, nanobind::handle truncated);

}  // namespace stepmill
