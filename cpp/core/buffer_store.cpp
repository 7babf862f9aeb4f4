#include "core/buffer_store.h"

#include <algorithm>

namespace stepmill {

BufferStore::BufferStore(std::shared_ptr<Arena> arena, const BatchLayout& layout)
    : arena_(std::move(arena)),
      layout_(layout),
      alignment_(layout.bytes() > 2048 ? 4096 : kCacheLine),
      span_(align_up(layout.bytes(), alignment_)) {}

Buffer* BufferStore::acquire() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) {
    auto buffer = std::make_unique<Buffer>();
    buffer->offset = arena_->grow(span_, alignment_);
    buffer->header = BatchLayout::header(arena_->at(buffer->offset));
    layout_.fill(buffer->columns, arena_->at(buffer->offset));
    buffers_.push_back(std::move(buffer));
    idle_.reserve(buffers_.capacity());  // so that `release` never allocates
    idle_.push_back(buffers_.back().get());
  }
  Buffer* buffer = idle_.back();
  if (!buffer->resident) arena_->restore(buffer->offset, span_);
  buffer->resident = true;
  idle_.pop_back();
  buffer->header->done.store(0, std::memory_order_relaxed);
  buffer->header->want.store(0, std::memory_order_relaxed);
  buffer->header->any_ended.store(0, std::memory_order_relaxed);
  peak_ = std::max(peak_, ++held_);
  if (++acquired_ % kWindow == 0) turn_window();
  return buffer;
}

void BufferStore::release(Buffer* buffer) {
  std::lock_guard lock(mutex_);
  held_ -= 1;
  idle_.push_back(buffer);
  if (closed_) give_back(*buffer);
}

void BufferStore::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  trim(0);
}

void BufferStore::turn_window() {
  const std::size_t wanted = std::max(peak_, last_peak_) + kSpare;
  last_peak_ = peak_;
  peak_ = held_;
  trim(wanted > held_ ? wanted - held_ : 0);
}

// Gives back the pages of all idle buffers but the `keep` most recently used.
void BufferStore::trim(std::size_t keep) {
  const std::size_t count = idle_.size() > keep ? idle_.size() - keep : 0;
  for (std::size_t i = 0; i < count; ++i) give_back(*idle_[i]);
}

void BufferStore::give_back(Buffer& buffer) {
  if (!buffer.resident) return;
  arena_->punch(buffer.offset, span_);
  buffer.resident = false;
}

std::size_t BufferStore::held() const {
  std::lock_guard lock(mutex_);
  return held_;
}

std::size_t BufferStore::made() const {
  std::lock_guard lock(mutex_);
  return buffers_.size();
}

}  // namespace stepmill
