#include "core/memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "core/memory/mapping.h"

namespace stepmill {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr std::size_t kMostReserved = std::size_t{1} << 38;  // on x86-64 it leaves room for two of the others
#else
constexpr std::size_t kMostReserved = std::size_t{1} << 40;
#endif
constexpr std::size_t kLeastReserved = std::size_t{1} << 26;
constexpr std::size_t kGrowth = std::size_t{1} << 20;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// Backs a range of shared memory. A page that the system cannot back would cause a SIGBUS at the first touch, so we ask
// now. In pieces, because a signal undoes the call that it interrupts.
bool back(int descriptor, std::size_t from, std::size_t to) {
  while (from < to) {
    const std::size_t piece = std::min(to - from, kGrowth);
    const int error = posix_fallocate(descriptor, static_cast<off_t>(from), static_cast<off_t>(piece));
    if (error == EINTR) continue;
    if (error != 0) return false;
    from += piece;
  }
  return true;
}

}  // namespace

std::shared_ptr<Arena> Arena::create(Kind kind) {
  std::shared_ptr<Arena> arena(new Arena);
  if (kind == Kind::kShared) {
    arena->descriptor_ = memfd_create("stepmill", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->descriptor_ < 0) fail("memfd_create");
    arena->shared_ = true;
    if (fcntl(arena->descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) fail("sealing a pool's memory");
  }
  // Addresses are cheap, but a limit on the address space (RLIMIT_AS, a sanitizer) may forbid so many; then we leave
  // some for the caller's own memory, further pools and an attached copy.
  for (std::size_t size = kMostReserved; size >= kLeastReserved; size /= 2) {
    if (!arena->reserve(size)) continue;
    if (size < kMostReserved) arena->shrink_to(std::max(size / kPolitePart, kLeastReserved));
    return arena;
  }
  fail("reserving memory for a pool");
}

std::shared_ptr<Arena> Arena::attach(int descriptor, std::size_t reserved) {
  std::shared_ptr<Arena> arena(new Arena);
  arena->shared_ = true;
  arena->descriptor_ = descriptor;
  const bool mapped = arena->reserve(reserved);
  arena->descriptor_ = -1;  // it belongs to the caller
  if (!mapped) fail("mapping a pool's arena");
  arena->committed_ = arena->used_ = reserved;
  return arena;
}

bool Arena::reserve(std::size_t size) {
  // The file is shorter than the mapping, and grows underneath it.
  void* base = shared_ ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0)
                       : mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return false;
  base_ = static_cast<std::byte*>(base);
  reserved_ = size;
  return true;
}

void Arena::shrink_to(std::size_t size) {
  if (size >= reserved_) return;
  if (munmap(base_ + size, reserved_ - size) != 0) fail("munmap");
  reserved_ = size;
}

Arena::~Arena() {
  if (base_) munmap(base_, reserved_);
  close_descriptor();
}

void Arena::close_descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

std::size_t Arena::grow(std::size_t bytes, std::size_t alignment) {
  const std::size_t offset = round_up(used_, alignment);
  const std::size_t end = offset + bytes;
  if (end < offset || end > reserved_) throw std::bad_alloc();
  if (end > committed_) {
    const std::size_t to = std::min(round_up(end, std::max(kGrowth, page_size())), reserved_);
    const bool granted =
        shared() ? back(descriptor_, committed_, to)
                 : mprotect(base_ + committed_, to - committed_, PROT_READ | PROT_WRITE) == 0;
    if (!granted) throw std::bad_alloc();
    committed_ = to;
  }
  used_ = end;
  return offset;
}

void Arena::punch(std::size_t offset, std::size_t bytes) {
  const std::size_t from = round_up(offset, page_size());
  const std::size_t to = (offset + bytes) / page_size() * page_size();
  if (to <= from) return;
  // Both only return memory early; if the kernel refuses, nothing else is lost.
  if (shared() && descriptor_ < 0)
    (void)madvise(base_ + from, to - from, MADV_REMOVE);
  else if (shared())
    (void)fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(from), static_cast<off_t>(to - from));
  else
    (void)madvise(base_ + from, to - from, MADV_DONTNEED);
}

void Arena::restore(std::size_t offset, std::size_t bytes) {
  if (shared() && !back(descriptor_, offset, offset + bytes)) throw std::bad_alloc();
}

bool Arena::make_private(std::size_t offset, std::size_t bytes) {
  void* copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, base_ + offset, bytes);
  // In one step: another thread may be reading there.
  if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, base_ + offset) != MAP_FAILED) return true;
  munmap(copy, bytes);
  return false;
}

bool Arena::make_shared(std::size_t offset, std::size_t bytes) {
  return descriptor_ >= 0 &&
         mmap(base_ + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, descriptor_,
              static_cast<off_t>(offset)) != MAP_FAILED;
}

}  // namespace stepmill
