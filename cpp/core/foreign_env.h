// Envs that were written in another language, behind C functions (`stepmill/c_env.h`): one more env class.
#pragma once

#include "core/env/env_table.h"
#include "core/env/c_env.h"

namespace stepmill {

// The table of such envs, which is kept for good, as the functions must be. Throws std::runtime_error if they are of
// another version, or if one that must be there is missing.
const sm_env_table* foreign_table(const stepmill_env& given);

}  // namespace stepmill
