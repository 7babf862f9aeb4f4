#include "core/process/outbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <system_error>

#include "core/memory/mapping.h"

namespace stepmill {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 36, kLeast = std::size_t{1} << 26;
// Blocks of at least this size return their memory when they are outgrown.
constexpr std::uint64_t kLarge = 1 << 20;

std::uint64_t to_pages(std::uint64_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// Notes up to this size are read without a check for holes: at worst, little memory is wasted.
constexpr std::uint64_t kModest = 1 << 16;

// How large an outbox may be here: it takes its pages when they are written, its addresses at once.
std::size_t most_that_fits() {
  for (std::size_t size = kMost; size >= kLeast; size /= 2) {
    void* base = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    munmap(base, size);
    return size == kMost ? size : std::max(size / kPolitePart, kLeast);
  }
  return kLeast;
}

}  // namespace

int Outbox::create() {
  const int descriptor = memfd_create("stepmill-outbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) fail("memfd_create");
  for (std::size_t size = most_that_fits(); size >= kLeast; size /= 2)
    if (ftruncate(descriptor, static_cast<off_t>(size)) == 0) {
      // A worker must not be able to take away pages that the pool reads.
      (void)fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
      return descriptor;
    }
  const int error = errno;
  ::close(descriptor);
  errno = error;
  fail("reserving memory for a worker");
}

Outbox::Outbox(int descriptor, bool writable)
    : descriptor_(writable ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
  if (!writable && descriptor_ < 0) fail("duplicating the outbox's descriptor");
  struct stat status{};
  const bool known = fstat(descriptor, &status) == 0;
  size_ = known ? static_cast<std::size_t>(status.st_size) : 0;
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  // If the worker has fewer addresses than the pool, it maps less.
  for (; size_ >= kLeast; size_ /= 2) {
    void* base = mmap(nullptr, size_, access, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
    if (base == MAP_FAILED) continue;
    base_ = static_cast<std::byte*>(base);
    return;
  }
  const int error = errno;
  if (descriptor_ >= 0) ::close(descriptor_);
  errno = error;
  fail("mapping a worker's outbox");
}

Outbox::~Outbox() {
  munmap(base_, size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::span<const std::byte> Outbox::read(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset == 0 || offset > size_ || bytes > size_ - offset) return {};
  // What was written has no hole in it.
  if (bytes > kModest && lseek(descriptor_, static_cast<off_t>(offset), SEEK_HOLE) < static_cast<off_t>(offset + bytes))
    return {};
  return {base_ + offset, static_cast<std::size_t>(bytes)};
}

std::size_t Outbox::memory() const {
  struct stat status{};
  return fstat(descriptor_, &status) == 0 ? static_cast<std::size_t>(status.st_blocks) * 512 : 0;
}

std::byte* Outbox::reserve(Block& block, std::uint64_t bytes) {
  if (bytes > block.capacity || block.capacity == 0) {
    // Grows by half: what grows a little each time must not move each time.
    const Block larger = allocate(std::max({bytes, block.capacity + block.capacity / 2, std::uint64_t{1}}));
    if (block.capacity >= kLarge)
      give_back(block);
    else if (block.capacity != 0)
      free_[block.capacity].push_back(block);
    block = larger;
  }
  return base_ + block.offset;
}

Outbox::Block Outbox::allocate(std::uint64_t bytes) {
  if (bytes > size_) throw std::bad_alloc();
  const std::uint64_t capacity = bytes < kLarge ? std::bit_ceil(std::max<std::uint64_t>(bytes, 256)) : to_pages(bytes);
  if (auto found = free_.find(capacity); found != free_.end() && !found->second.empty()) {
    const Block block = found->second.back();
    found->second.pop_back();
    return block;
  }
  const std::uint64_t align = capacity >= page_size() ? page_size() : 64;
  const std::uint64_t offset = (used_ + align - 1) / align * align;
  if (capacity > size_ || offset > size_ - capacity || !back({offset, capacity})) throw std::bad_alloc();
  used_ = offset + capacity;
  return {offset, capacity};
}

// Asks the system for the memory now, while a lack of it can be reported: at the first touch it would be a SIGBUS. A
// kernel before 5.14 cannot do this: there a machine without memory costs the worker, which is replaced, and not the
// pool.
bool Outbox::back(const Block& block) {
  const std::uint64_t from = block.offset / page_size() * page_size();
  const std::uint64_t to = to_pages(block.offset + block.capacity);
  int failed;
  do failed = madvise(base_ + from, to - from, MADV_POPULATE_WRITE);
  while (failed != 0 && (errno == EINTR || errno == EAGAIN));
  return failed == 0 || errno == EINVAL;
}

// Only returns memory early; if the kernel refuses, nothing else is lost.
void Outbox::give_back(const Block& block) { (void)madvise(base_ + block.offset, block.capacity, MADV_REMOVE); }

}  // namespace stepmill
