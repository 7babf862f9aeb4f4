#include "core/counters/counter_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

namespace stepmill {
namespace {

constexpr std::size_t kFileGrowth = std::size_t{1} << 16;  // whole pages, however large they are

// A place in the header whose record is not published yet. No record is there.
constexpr std::uint64_t kReserved = 1;

}  // namespace

// The file of this process. Never destroyed: a fork may come at any time.
struct CounterFile::Present {
  std::mutex mutex;
  CounterFile* file = nullptr;

  Present() {
    // The lock is held across the fork: the child must find it free, and nothing half done.
    pthread_atfork([] { present().mutex.lock(); }, [] { present().mutex.unlock(); },
                   [] {
                     if (CounterFile* const parents = std::exchange(present().file, nullptr)) parents->become_private();
                     present().mutex.unlock();
                   });
  }
};

CounterFile::Present& CounterFile::present() {
  static Present& one = *new Present;
  return one;
}

CounterFile::Present* const CounterFile::made_ = &present();

// ---- the file ----------------------------------------------------------------------------------

CounterFile* CounterFile::create() {
  const int descriptor = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return nullptr;
  // Sealed: nobody can make it shorter, which would be a SIGBUS in this process and in a reader.
  void* base = MAP_FAILED;
  if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
    base = mmap(nullptr, kMostBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base == MAP_FAILED) {
    ::close(descriptor);
    return nullptr;
  }
  auto* const file = new CounterFile(descriptor, static_cast<std::byte*>(base));
  if (file->grow(sizeof(FileHeader))) {
    FileHeader& header = file->header();
    file->used_ = sizeof(FileHeader);
    set(header.layout, kLayout);
    set(header.pid, static_cast<std::uint64_t>(getpid()));
    set(header.bytes, file->used_);
    header.magic.store(kMagic, std::memory_order_release);
    return file;
  }
  delete file;
  return nullptr;
}

CounterFile::CounterFile(int descriptor, std::byte* base) : base_(base), descriptor_(descriptor) {
  struct stat status{};
  fstat(descriptor, &status);
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

CounterFile::~CounterFile() {
  munmap(base_, kMostBytes);
  if (descriptor_is_ours()) ::close(descriptor_);
}

// Programs close descriptors that they do not know, and then another file has the number.
bool CounterFile::descriptor_is_ours() const {
  struct stat status{};
  return descriptor_ >= 0 && fstat(descriptor_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

// Backs memory now: a page that the system cannot give would be a SIGBUS when it is first touched.
bool CounterFile::grow(std::size_t bytes) {
  const std::size_t wanted = (bytes + kFileGrowth - 1) / kFileGrowth * kFileGrowth;
  if (wanted <= backed_) return true;
  if (wanted > kMostBytes) return false;
  if (descriptor_ >= 0) {
    if (!descriptor_is_ours()) return false;
    int error = EINTR;
    while (error == EINTR)
      error = posix_fallocate(descriptor_, static_cast<off_t>(backed_), static_cast<off_t>(wanted - backed_));
    if (error != 0) return false;
  }
  backed_ = wanted;
  return true;
}

// In a forked child, with only async-signal-safe calls.
void CounterFile::become_private() {
  mmap(base_, backed_, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (descriptor_is_ours()) ::close(descriptor_);
  descriptor_ = -1;
}

// ---- records -----------------------------------------------------------------------------------

CounterFile::Loan CounterFile::lend(std::size_t workers) {
  Present& now = present();
  const std::lock_guard lock(now.mutex);
  Loan loan;
  try {
    if (!now.file) now.file = create();
    if (now.file) loan = now.file->lend_here(workers);
  } catch (const std::bad_alloc&) {
  }
  if (now.file && now.file->pools_ == 0) delete std::exchange(now.file, nullptr);
  return loan;
}

CounterFile::Loan CounterFile::lend_here(std::size_t workers) {
  Word* const place = std::find_if(header().places, std::end(header().places),
                                   [](const Word& one) { return get(one) == 0; });
  if (workers > kMostBytes / sizeof(WorkerRecord)) workers = kMostBytes / sizeof(WorkerRecord);  // which is too many
  // Sizes are powers of two, so that what one pool returns fits another.
  const std::size_t bytes = std::bit_ceil(sizeof(PoolRecord) + workers * sizeof(WorkerRecord));
  const std::size_t offset = place == std::end(header().places) ? 0 : find_room(bytes);
  if (offset == 0) {
    add_to(header().hidden, 1);
    return {};
  }
  auto* const words = reinterpret_cast<Word*>(base_ + offset);
  for (std::size_t i = 0; i < bytes / sizeof(Word); ++i) set(words[i], 0);
  set(*place, kReserved);
  pools_ += 1;
  return {this, reinterpret_cast<PoolRecord*>(words), bytes, static_cast<std::size_t>(place - header().places)};
}

// 0: there is none.
std::size_t CounterFile::find_room(std::size_t bytes) {
  auto& returned = free_[static_cast<std::size_t>(std::countr_zero(bytes))];
  if (!returned.empty()) {
    const std::size_t offset = returned.back();
    returned.pop_back();
    return offset;
  }
  returned.reserve(pools_ + 1);  // so that `take_back` cannot fail
  if (!grow(used_ + bytes)) return 0;
  const std::size_t offset = std::exchange(used_, used_ + bytes);
  set(header().bytes, used_);
  return offset;
}

void CounterFile::publish(const Loan& loan) {
  const std::lock_guard lock(present().mutex);
  loan.record->serial.store(++loan.file->last_serial_, std::memory_order_release);
  const auto offset = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(loan.record) - loan.file->base_);
  loan.file->header().places[loan.place].store(offset, std::memory_order_release);
}

void CounterFile::take_back(const Loan& loan) {
  Present& now = present();
  const std::lock_guard lock(now.mutex);
  CounterFile& file = *loan.file;
  set(file.header().places[loan.place], 0);
  loan.record->serial.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // before anything else is written there
  const auto offset = static_cast<std::size_t>(reinterpret_cast<std::byte*>(loan.record) - file.base_);
  file.free_[static_cast<std::size_t>(std::countr_zero(loan.bytes))].push_back(offset);
  if (--file.pools_ != 0) return;
  if (now.file == &file) now.file = nullptr;
  delete &file;
}

}  // namespace stepmill
