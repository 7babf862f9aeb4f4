// Env classes that were compiled elsewhere, each in a library of its own, loaded while the program runs.
#pragma once

#include <string>

#include "core/env/env_table.h"
#include "core/env/c_env.h"

namespace stepmill {

// Loads a library that exports `stepmill_env_table` (`core/own_library.h`) or `stepmill_c_env` (`stepmill/c_env.h`) from an open file, and keeps its class
// under `name`. Loads nothing if the name is known already. Throws std::runtime_error if it cannot be loaded or fits another version.
//
// A library is never unloaded: a pool, a batch or an exception may still refer to its code.
void load_env_library(const std::string& name, int descriptor);

// The same for functions that this process has already; they are kept for good.
void add_foreign_env(const std::string& name, const stepmill_env& functions);

// The table of a loaded class; null if there is none of that name.
const sm_env_table* find_loaded_env(const std::string& name);

}  // namespace stepmill
