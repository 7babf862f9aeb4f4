// The barrier for loops in Python, each in a process of its own: loaded with ctypes.
#include "barrier.h"

extern "C" {

// How much zeroed memory, mapped by all, a barrier needs.
std::size_t barrier_bytes() { return sizeof(stepmill::Barrier); }

void barrier_meet(void* at, std::uint32_t parties) { static_cast<stepmill::Barrier*>(at)->meet(parties); }
}
