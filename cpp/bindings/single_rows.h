// From batches to single envs and back, for the env managers: their callers have an object per env, and a line of
// Python for each of them would cost more than the step.
#pragma once

#include <nanobind/nanobind.h>

namespace stepmill {

// An array for each pair of a batch and a row of it, with memory of its own: who keeps one row does not keep the batch.
nanobind::object own_rows(nanobind::list places);

// A list of arrays as the rows of one. None where they are not arrays of one type and shape.
nanobind::object stack_alike(nanobind::list arrays);

// A timestep per row: tuples (observation, reward, done, info) of the given type; and a list of the rows that are done.
// Rewards are arrays of their own, of at least one axis; infos are empty dicts.
nanobind::object make_timesteps(nanobind::type_object type, nanobind::list observations, nanobind::handle rewards,
                                nanobind::handle terminated, nanobind::handle truncated);

}  // namespace stepmill
