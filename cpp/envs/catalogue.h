// The env classes compiled into this build.
#pragma once

#include <span>

#include "core/env/env_table.h"

namespace stepmill {

std::span<const sm_env_table* const> catalogue();

}  // namespace stepmill
