// Reads the pools of another process from its file of counters (`counter_file.h`), and words of its shared memory.
//
// Nothing there is trusted: a process of the same user may show anything. Sizes and offsets are checked before they are
// used, each word is read once, and only files that cannot become shorter are mapped, so that no read is a SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/counters/pool_record.h"

namespace stepmill {

// Why a file cannot be read. The text fits after "process 123: ".
struct UnreadableCounters : std::invalid_argument {
  using invalid_argument::invalid_argument;
};

struct SeenPools {
  Words header;  // without the places
  std::vector<PoolWords> pools;
};

SeenPools read_pools(int descriptor);

// A part of a file, whose offset is a multiple of 8.
Words read_words(int descriptor, std::uint64_t offset, std::uint64_t count);

}  // namespace stepmill
