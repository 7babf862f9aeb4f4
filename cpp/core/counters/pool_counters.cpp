#include "core/counters/pool_counters.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace stepmill {
namespace {

constexpr std::uint64_t kLeastSlowNs = 50'000, kMostSlowNs = (std::uint64_t{1} << 40) - 1;

void copy_words(const Word* from, Word* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) set(to[i], get(from[i]));
}

// The text, cut between two characters of UTF-8 if it is too long, and zeros after it.
void set_text(std::span<Word> words, std::string_view text) {
  std::size_t size = std::min(text.size(), words.size_bytes());
  while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) size -= 1;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint64_t word = 0;
    if (8 * i < size) std::memcpy(&word, text.data() + 8 * i, std::min<std::size_t>(8, size - 8 * i));
    set(words[i], word);
  }
}

}  // namespace

PoolCounters::PoolCounters(const PoolLabel& label, std::int32_t num_envs, std::int32_t batch_size,
                           std::int32_t workers)
    : loan_(CounterFile::lend(static_cast<std::size_t>(workers))), pool_(loan_.record) {
  if (!loan_.file) {
    constexpr std::size_t kRecord = sizeof(PoolRecord) / sizeof(WorkerRecord);
    refused_ = std::make_unique<WorkerRecord[]>(kRecord + static_cast<std::size_t>(workers));
    pool_ = reinterpret_cast<PoolRecord*>(refused_.get());
  }
  PoolRecord& r = *pool_;
  const std::uint64_t now = read_ticks();
  set(r.made, now);
  set(r.state, now << 2 | static_cast<std::uint64_t>(CallerState::kOutside));
  set(r.num_envs, static_cast<std::uint64_t>(num_envs));
  set(r.batch_size, static_cast<std::uint64_t>(batch_size));
  set(r.num_workers, static_cast<std::uint64_t>(workers));
  set_text(r.name, label.name);
  set_text(r.backend, label.backend);
  set_text(r.user, label.user);
}

void PoolCounters::publish() {
  if (loan_.file) CounterFile::publish(loan_);
}

void PoolCounters::withdraw() {
  if (!loan_.file) return;
  {
    const std::lock_guard lock(mutex_);
    copy_words(reinterpret_cast<const Word*>(pool_), reinterpret_cast<Word*>(&last_), sizeof last_ / sizeof(Word));
    set(last_.num_workers, 0);
    pool_ = &last_;
  }
  CounterFile::take_back(std::exchange(loan_, {}));
}

PoolWords PoolCounters::copy() const {
  const std::lock_guard lock(mutex_);
  return PoolWords(reinterpret_cast<const Word*>(pool_), get(pool_->num_workers));
}

void add_slow_step(WorkerRecord& worker, std::int32_t env, std::uint64_t ns, std::uint64_t at_ns) {
  if (ns < kLeastSlowNs) return;
  Word* const present = worker.slow;
  Word* const end = present + kSlowSteps;
  const std::uint64_t window = at_ns / 1'000'000'000 / kSlowWindow, last = get(worker.window);
  if (window != last) {
    for (int i = 0; i < kSlowSteps; ++i) {
      set(end[i], window == last + 1 ? get(present[i]) : 0);
      set(present[i], 0);
    }
    set(worker.window, window);
  }
  const std::uint64_t step = std::min(ns, kMostSlowNs) << 24 | static_cast<std::uint64_t>(env);
  Word* const same = std::find_if(present, end, [&](const Word& one) {  // an env is there once
    return get(one) != 0 && (get(one) & 0xffffff) == static_cast<std::uint64_t>(env);
  });
  Word* const to = same != end ? same : std::min_element(present, end, [](const Word& a, const Word& b) {
    return get(a) < get(b);
  });
  if (step > get(*to)) set(*to, step);
}

}  // namespace stepmill
