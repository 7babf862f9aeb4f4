#include "core/memory/buffer_store.h"

#include <pthread.h>

#include <algorithm>

#include "core/memory/mapping.h"

namespace stepmill {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlab = 16 * kPage;

// The stores that are told of forks. Never destroyed: a fork may come at any time.
struct ToldStores {
  std::mutex mutex;
  std::vector<BufferStore*> all;
  std::vector<std::shared_ptr<Arena>> kept;  // a device has not let go of them, so they stay mapped

  static ToldStores& instance() {
    static ToldStores& stores = *new ToldStores;
    return stores;
  }
  ToldStores() {
    pthread_atfork([] {
      ToldStores& stores = instance();
      // Held across the fork: the child must find the lock free, and nothing half done.
      stores.mutex.lock();
      for (BufferStore* store : stores.all) store->prepare_fork();
    }, [] { instance().mutex.unlock(); }, [] { instance().mutex.unlock(); });
  }
};

}  // namespace

BufferStore::BufferStore(std::shared_ptr<Arena> arena, const BatchLayout& layout)
    : arena_(std::move(arena)),
      layout_(layout),
      // Shared buffers have their own pages, so that a fork can set them apart.
      span_(align_up(layout.bytes(), arena_->shared()              ? page_size()
                                     : layout.bytes() > kPage / 2 ? kPage
                                                                   : kCacheLine)) {
  if (arena_->shared()) tell_of_forks();
}

BufferStore::~BufferStore() {
  if (!told_of_forks_) return;
  ToldStores& stores = ToldStores::instance();
  std::lock_guard guard(stores.mutex);
  std::erase(stores.all, this);
  if (!unlock_all()) stores.kept.push_back(arena_);
}

void BufferStore::tell_of_forks() {
  ToldStores& stores = ToldStores::instance();
  std::lock_guard guard(stores.mutex);
  if (!told_of_forks_) stores.all.push_back(this);
  told_of_forks_ = true;
}

void BufferStore::lock_pages(std::shared_ptr<PageLock> page_lock) {
  tell_of_forks();
  std::lock_guard guard(mutex_);
  page_lock_ = std::move(page_lock);
}

void BufferStore::hand_out(Buffer* buffer) {
  std::lock_guard lock(mutex_);
  buffer->handed_out = true;
}

void BufferStore::prepare_fork() {
  std::lock_guard lock(mutex_);
  if (page_lock_ && std::ranges::any_of(slabs_, [](const auto& slab) { return slab->locked; })) {
    page_lock_->settle();  // a copy may be reading what the caller holds
    unlock_all();
  }
  if (!arena_->shared()) return;
  for (const auto& buffer : buffers_)
    if (buffer->handed_out && !buffer->apart && !buffer->slab->locked)
      buffer->apart = arena_->make_private(buffer->offset, span_);
}

Buffer* BufferStore::acquire() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) grow();
  Buffer* buffer = idle_.back();
  warm(*buffer);
  if (page_lock_) lock_slab(*buffer->slab);
  idle_.pop_back();
  buffer->header->done.store(0, std::memory_order_relaxed);
  buffer->header->want.store(0, std::memory_order_relaxed);
  buffer->header->resets.store(0, std::memory_order_relaxed);
  buffer->header->any_ended.store(0, std::memory_order_relaxed);
  held_.store(held() + 1, std::memory_order_relaxed);
  peak_ = std::max(peak_, held());
  if (++acquired_ % kWindow == 0) turn_window();
  return buffer;
}

// Adds a slab: one large buffer, or pages full of small ones.
void BufferStore::grow() {
  auto slab = std::make_unique<Slab>();
  slab->size = span_ < kPage ? kSlab / span_ : 1;
  slab->bytes = align_up(slab->size * span_, kPage);
  if (const std::size_t needed = buffers_.size() + slab->size; needed > buffers_.capacity())
    buffers_.reserve(std::max(needed, 2 * buffers_.capacity()));
  idle_.reserve(buffers_.capacity());  // so that `release` never allocates
  std::vector<std::unique_ptr<Buffer>> added;
  for (std::size_t i = 0; i < slab->size; ++i) added.push_back(std::make_unique<Buffer>());
  slab->offset = arena_->grow(slab->bytes, arena_->shared() ? page_size() : kPage);
  slabs_.push_back(std::move(slab));
  for (std::size_t i = 0; i < added.size(); ++i) {
    Buffer& buffer = *added[i];
    buffer.slab = slabs_.back().get();
    buffer.offset = buffer.slab->offset + i * span_;
    buffer.header = BatchLayout::header(arena_->at(buffer.offset));
    layout_.fill(buffer.columns, arena_->at(buffer.offset));
    idle_.push_back(&buffer);
    buffers_.push_back(std::move(added[i]));
  }
}

void BufferStore::release(Buffer* buffer) {
  std::lock_guard lock(mutex_);
  held_.store(held() - 1, std::memory_order_relaxed);
  buffer->handed_out = false;
  if (buffer->apart) {
    // If the system refuses, workers cannot use the buffer: it stays lent out for good.
    if (!arena_->make_shared(buffer->offset, span_)) return;
    buffer->apart = false;
  }
  idle_.push_back(buffer);
  if (closed_) cool(*buffer);
}

void BufferStore::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  trim(0);
}

void BufferStore::turn_window() {
  const std::size_t wanted = std::max(peak_, last_peak_) + kSpare;
  last_peak_ = peak_;
  peak_ = held();
  trim(wanted > held() ? wanted - held() : 0);
}

// Cools all idle buffers except the `keep` most recently used.
void BufferStore::trim(std::size_t keep) {
  const std::size_t count = idle_.size() > keep ? idle_.size() - keep : 0;
  for (std::size_t i = 0; i < count; ++i) cool(*idle_[i]);
}

// A slab returns its memory when the last of its buffers goes cold.
void BufferStore::cool(Buffer& buffer) {
  if (buffer.cold) return;
  buffer.cold = true;
  if (++buffer.slab->cold == buffer.slab->size && unlock_slab(*buffer.slab))
    arena_->punch(buffer.slab->offset, buffer.slab->bytes);
}

void BufferStore::warm(Buffer& buffer) {
  if (!buffer.cold) return;
  // Throws if the machine has no memory for it: then the buffer stays as it is.
  if (buffer.slab->cold == buffer.slab->size) arena_->restore(buffer.slab->offset, buffer.slab->bytes);
  buffer.cold = false;
  buffer.slab->cold -= 1;
  buffer.slab->lock_refused = false;
}

void BufferStore::lock_slab(Slab& slab) {
  if (slab.locked || slab.lock_refused) return;
  slab.locked = page_lock_->lock(arena_->at(slab.offset), slab.bytes);
  slab.lock_refused = !slab.locked;
}

// Returns whether it is not locked any more.
bool BufferStore::unlock_slab(Slab& slab) {
  if (slab.locked) slab.locked = !page_lock_->unlock(arena_->at(slab.offset));
  return !slab.locked;
}

bool BufferStore::unlock_all() {
  bool all = true;
  for (const auto& slab : slabs_) all = unlock_slab(*slab) && all;
  return all;
}

std::size_t BufferStore::locked() const {
  std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& slab : slabs_) bytes += slab->locked ? slab->bytes : 0;
  return bytes;
}

std::size_t BufferStore::made() const {
  std::lock_guard lock(mutex_);
  return buffers_.size();
}

}  // namespace stepmill
