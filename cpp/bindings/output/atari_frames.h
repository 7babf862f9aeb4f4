// Frames of Atari games (envs/atari/frames.h) over numpy arrays.
#pragma once

#include <nanobind/nanobind.h>

namespace stepmill {

void register_atari_frames(nanobind::module_& m);

}  // namespace stepmill
