// The MuJoCo tasks compiled into this build. Apart from the other envs, because together they take long to compile.
#pragma once

#include <span>

#include "core/env/env_table.h"

namespace stepmill {

std::span<const sm_env_table* const> mujoco_catalogue();

}  // namespace stepmill
