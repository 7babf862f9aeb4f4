#include "bindings/python/forked.h"

#include <pthread.h>

namespace stepmill {
namespace {

// Written only by the fork handler, in the child, where no other thread exists.
std::uint32_t generation = [] {
  pthread_atfork(nullptr, nullptr, [] { generation += 1; });
  return 0u;
}();

}  // namespace

std::uint32_t process_generation() { return generation; }

}  // namespace stepmill
