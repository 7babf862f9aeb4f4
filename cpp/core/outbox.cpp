#include "core/outbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <system_error>

namespace stepmill {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 36, kLeast = std::size_t{1} << 26;
// Blocks of at least this give their memory back when they are outgrown.
constexpr std::uint64_t kLarge = 1 << 20;

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

bool back(int descriptor, std::uint64_t from, std::uint64_t to) {
  int error;
  do error = posix_fallocate(descriptor, static_cast<off_t>(from), static_cast<off_t>(to - from));
  while (error == EINTR);
  return error == 0;
}

}  // namespace

int Outbox::create() {
  const int descriptor = memfd_create("stepmill-outbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) fail("memfd_create");
  for (std::size_t size = kMost; size >= kLeast; size /= 2)
    if (ftruncate(descriptor, static_cast<off_t>(size)) == 0) {
      // Nothing a worker does may take pages away that the pool reads.
      (void)fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK);
      return descriptor;
    }
  const int error = errno;
  ::close(descriptor);
  errno = error;
  fail("reserving memory for a worker");
}

Outbox::Outbox(int descriptor, bool writable) : descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
  if (descriptor_ < 0) fail("duplicating the outbox's descriptor");
  struct stat status{};
  const bool known = fstat(descriptor_, &status) == 0;
  size_ = known ? static_cast<std::size_t>(status.st_size) : 0;
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  // Where addresses are limited, less of it.
  for (; size_ >= kLeast; size_ /= 2) {
    void* base = mmap(nullptr, size_, access, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
    if (base == MAP_FAILED) continue;
    base_ = static_cast<std::byte*>(base);
    return;
  }
  ::close(descriptor_);
  fail("mapping a worker's outbox");
}

Outbox::~Outbox() {
  munmap(base_, size_);
  ::close(descriptor_);
}

std::span<const std::byte> Outbox::read(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset == 0 || offset > size_ || bytes > size_ - offset) return {};
  return {base_ + offset, static_cast<std::size_t>(bytes)};
}

std::size_t Outbox::memory() const {
  struct stat status{};
  return fstat(descriptor_, &status) == 0 ? static_cast<std::size_t>(status.st_blocks) * 512 : 0;
}

std::byte* Outbox::reserve(Block& block, std::uint64_t bytes) {
  if (bytes > block.capacity || block.capacity == 0) {
    // Half as much again as before: what grows a little each time must not move each time.
    const Block larger = allocate(std::max({bytes, block.capacity + block.capacity / 2, std::uint64_t{1}}));
    if (block.capacity >= kLarge)
      (void)fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(block.offset),
                      static_cast<off_t>(block.capacity));
    else if (block.capacity != 0)
      free_[block.capacity].push_back(block);
    block = larger;
  }
  return base_ + block.offset;
}

Outbox::Block Outbox::allocate(std::uint64_t bytes) {
  const std::uint64_t page = 4096;
  const std::uint64_t capacity =
      bytes < kLarge ? std::bit_ceil(std::max<std::uint64_t>(bytes, 256)) : (bytes + page - 1) / page * page;
  if (auto found = free_.find(capacity); found != free_.end() && !found->second.empty()) {
    const Block block = found->second.back();
    found->second.pop_back();
    return block;
  }
  const std::uint64_t align = capacity >= page ? page : 64;
  const std::uint64_t offset = (used_ + align - 1) / align * align;
  if (capacity > size_ || offset > size_ - capacity || !back(descriptor_, offset, offset + capacity))
    throw std::bad_alloc();
  used_ = offset + capacity;
  return {offset, capacity};
}

}  // namespace stepmill
