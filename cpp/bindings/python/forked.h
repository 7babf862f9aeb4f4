// Whether this process is still the one that made an object.
#pragma once

#include <cstdint>

namespace stepmill {

// The number of forks between the first process and this one. A different number than before means that we run in a
// forked child, which has the memory of the pool but none of its threads. Costs one load.
std::uint32_t process_generation();

}  // namespace stepmill
