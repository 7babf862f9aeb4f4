#include "core/counters/counter_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace stepmill {
namespace {

constexpr std::uint64_t kMostRead = std::uint64_t{1} << 26;  // bytes, of one part of a file

// A part of a file, read-only.
class Mapping {
 public:
  Mapping(int descriptor, std::uint64_t offset, std::uint64_t bytes) {
    struct stat status{};
    if (fstat(descriptor, &status) != 0) throw UnreadableCounters(std::string("its memory: ") + std::strerror(errno));
    const auto size = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
    const int seals = fcntl(descriptor, F_GET_SEALS);
    if (!S_ISREG(status.st_mode) || seals < 0 || !(seals & F_SEAL_SHRINK))
      throw UnreadableCounters("what it shows is not memory of stepmill");
    if (offset % sizeof(Word) != 0 || bytes > kMostRead || offset > size || bytes > size - offset)
      throw UnreadableCounters("what it shows is cut off or broken");
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t from = offset / page * page;
    bytes_ = static_cast<std::size_t>(offset - from + bytes);
    if (bytes_ == 0) return;
    base_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(from));
    if (base_ == MAP_FAILED) throw UnreadableCounters(std::string("mapping its memory: ") + std::strerror(errno));
    words_ = reinterpret_cast<const Word*>(static_cast<const std::byte*>(base_) + (offset - from));
  }
  ~Mapping() {
    if (words_) munmap(base_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const Word* words() const { return words_; }

 private:
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  const Word* words_ = nullptr;
};

template <class T>
constexpr std::uint64_t words_in = sizeof(T) / sizeof(Word);

constexpr std::uint64_t kSerial = offsetof(PoolRecord, serial) / sizeof(Word);
constexpr std::uint64_t kWorkers = offsetof(PoolRecord, num_workers) / sizeof(Word);

// The record at a word of the file, if it is still that of the same pool when it has been copied.
std::optional<PoolWords> read_pool(const Mapping& file, std::uint64_t first, std::uint64_t end) {
  if (end < words_in<PoolRecord> || first > end - words_in<PoolRecord>) return std::nullopt;
  const std::uint64_t serial = file.words()[first + kSerial].load(std::memory_order_acquire);
  const std::uint64_t workers = get(file.words()[first + kWorkers]);
  const std::uint64_t after = first + words_in<PoolRecord>;
  if (serial == 0 || workers > (end - after) / words_in<WorkerRecord>) return std::nullopt;
  PoolWords out(file.words() + first, workers);
  out.pool[kWorkers] = workers;  // the number that was checked
  std::atomic_thread_fence(std::memory_order_acquire);
  return get(file.words()[first + kSerial]) == serial ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace

SeenPools read_pools(int descriptor) {
  const auto word = [](std::size_t offset) { return offset / sizeof(Word); };
  SeenPools out;
  {
    const Mapping file(descriptor, 0, sizeof(FileHeader));
    if (file.words()[word(offsetof(FileHeader, magic))].load(std::memory_order_acquire) != kMagic)
      throw UnreadableCounters("what it shows is not memory of stepmill");
    out.header = copy_of(file.words(), word(offsetof(FileHeader, places)));
  }
  if (out.header[word(offsetof(FileHeader, layout))] != kLayout)
    throw UnreadableCounters("it runs another version of stepmill than this command, and shows other counters");
  const std::uint64_t bytes = out.header[word(offsetof(FileHeader, bytes))];
  if (bytes < sizeof(FileHeader) || bytes > kMostBytes) throw UnreadableCounters("what it shows is cut off or broken");
  const Mapping file(descriptor, 0, bytes);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < kMostPools; ++i) {
    const std::uint64_t place = file.words()[word(offsetof(FileHeader, places)) + i].load(std::memory_order_acquire);
    if (place < sizeof(FileHeader) || place % alignof(PoolRecord) != 0) continue;  // none, or none yet
    auto pool = read_pool(file, place / sizeof(Word), bytes / sizeof(Word));
    if (!pool) continue;
    // Records do not overlap, so all of them together are not larger than the file.
    total += sizeof(PoolRecord) + pool->workers.size() * sizeof(WorkerRecord);
    if (total > bytes) throw UnreadableCounters("what it shows is cut off or broken");
    out.pools.push_back(std::move(*pool));
  }
  return out;
}

Words read_words(int descriptor, std::uint64_t offset, std::uint64_t count) {
  if (count > kMostRead / sizeof(Word)) throw UnreadableCounters("what it shows is cut off or broken");
  const Mapping part(descriptor, offset, count * sizeof(Word));
  return copy_of(part.words(), count);
}

}  // namespace stepmill
