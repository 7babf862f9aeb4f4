// What the author of a native env includes: `#include <stepmill/env.h>`.
//
// `core/env/env.h` lists the parts of an env; `envs/debug/template.h` is one to copy. Everything else in these folders is
// the engine's and may move; this name stays.
#pragma once

#include "core/env/env.h"
