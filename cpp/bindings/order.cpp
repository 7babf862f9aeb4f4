#include "bindings/order.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bindings/python/errors.h"
#include "bindings/python/values.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

constexpr std::size_t kReadAhead = 1 << 16;

bool has_fault(const std::vector<Fault>& faults, std::int32_t env) {
  return std::any_of(faults.begin(), faults.end(), [=](const Fault& fault) { return fault.env == env; });
}

}  // namespace

// ---- recording ---------------------------------------------------------------------------------

void OrderRecorder::add(std::uint32_t word) {
  const auto narrow = static_cast<std::uint16_t>(word);
  const auto* bytes = file_.wide ? reinterpret_cast<const std::byte*>(&word) : reinterpret_cast<const std::byte*>(&narrow);
  words_.insert(words_.end(), bytes, bytes + file_.word_bytes());
}

void OrderRecorder::set_batch(std::span<const std::int32_t> envs, const std::vector<Fault>& faults) {
  words_.clear();
  for (const std::int32_t& env : envs)
    add(static_cast<std::uint32_t>(env) | (has_fault(faults, env) ? file_.failed() : 0) |
        (&env == &envs.back() ? file_.last() : 0));
}

void OrderRecorder::write() {
  for (std::size_t done = 0; done < words_.size();) {
    const ssize_t count = pwrite(file_.descriptor.get(), &words_[done], words_.size() - done,
                                 file_.offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      raise("ResourceError", "record_order: " + file_.name + " cannot be written: " + std::strerror(count < 0 ? errno : ENOSPC) +
                                 ". No result is lost: recv() again when it can");
    done += static_cast<std::size_t>(count);
  }
  file_.offset += static_cast<std::int64_t>(words_.size());
  words_.clear();
}

void OrderRecorder::set_timeout() {
  words_.clear();
  add(file_.timeout());
}

void OrderRecorder::write_timeout() {
  set_timeout();
  write();
}

// ---- replaying ---------------------------------------------------------------------------------

bool OrderReplay::read_word(std::uint32_t& word) {
  if (ahead_.size() - used_ < file_.word_bytes()) {
    ahead_.resize(kReadAhead);
    ssize_t count;
    do count = pread(file_.descriptor.get(), ahead_.data(), ahead_.size(), file_.offset);
    while (count < 0 && errno == EINTR);
    if (count < 0) raise("ResourceError", "replay_order: " + file_.name + " cannot be read: " + std::strerror(errno));
    // A word of which a part is missing was not written to its end.
    ahead_.resize(static_cast<std::size_t>(count) / file_.word_bytes() * file_.word_bytes());
    file_.offset += static_cast<std::int64_t>(ahead_.size());
    used_ = 0;
    if (ahead_.empty()) return false;
  }
  word = 0;
  std::memcpy(&word, &ahead_[used_], file_.word_bytes());
  used_ += file_.word_bytes();
  return true;
}

void OrderReplay::read_batch() {
  envs_.clear();
  failures_.clear();
  for (std::uint32_t word = 0; !(word & file_.last());) {
    if (!read_word(word))
      raise("StateError", "replay_order: " + file_.name + " ends here, after " + std::to_string(received_) + " rows in " +
                              std::to_string(batches_) + " batches: the recorded run got no further");
    if (word == file_.timeout()) break;
    envs_.push_back(static_cast<std::int32_t>(word & (file_.failed() - 1)));
    failures_.push_back((word & file_.failed()) != 0);
  }
  is_read_ = true;
}

std::span<const std::int32_t> OrderReplay::next(std::int32_t at_least, std::int32_t at_most, bool has_timeout) {
  if (!is_read_) read_batch();
  if (envs_.empty()) {
    if (!has_timeout) depart("the time of recv(timeout=...) was over there, and recv() waits for as long as it takes here");
    return {};
  }
  const auto rows = static_cast<std::int32_t>(envs_.size());
  if (rows < at_least || rows > at_most)
    depart(std::to_string(rows) + " envs were received there, and here it would be " +
           (at_least == at_most ? "" : std::to_string(at_least) + " to ") + std::to_string(at_most));
  for (const std::int32_t env : envs_)
    if (env >= pool_.num_envs() || !pool_.in_flight(env))
      depart("env " + std::to_string(env) + " was received there, and was not sent anything here");
  return envs_;
}

void OrderReplay::keep(const Batch& batch, nb::object notes, std::vector<Fault>&& faults) {
  if (notes.is_valid())
    for (nb::handle note : notes) notes_.emplace_back(nb::cast<std::int32_t>(note[1]), nb::borrow(note));
  std::move(faults.begin(), faults.end(), std::back_inserter(faults_));
  rows_.keep(batch);
}

bool OrderReplay::has_failed(std::int32_t env) const { return has_fault(faults_, env); }

void OrderReplay::check_failures() const {
  for (std::size_t i = 0; i < envs_.size(); ++i)
    if (has_failed(envs_[i]) != (failures_[i] != 0))
      depart("env " + std::to_string(envs_[i]) + (failures_[i] ? " failed there, and not here" : " failed here, and not there"));
}

Batch OrderReplay::take(std::vector<Fault>& faults, nb::object& notes) {
  Batch batch = rows_.take(envs_);
  // In the order of the rows, and of the envs, as from any batch.
  for (std::size_t row = 0; row < envs_.size(); ++row)
    for (const auto& [env, note] : notes_)
      if (env == envs_[row])
        add_to_list(notes, owned(PySequence_Concat(
                               nb::make_tuple(row).ptr(),
                               owned(PyTuple_GetSlice(note.ptr(), 1, PyTuple_GET_SIZE(note.ptr()))).ptr())));
  std::erase_if(notes_, [&](const auto& one) { return !rows_.has(one.first); });
  const auto gone = std::stable_partition(faults_.begin(), faults_.end(), [&](const Fault& f) { return rows_.has(f.env); });
  faults.assign(std::make_move_iterator(gone), std::make_move_iterator(faults_.end()));
  faults_.erase(gone, faults_.end());
  std::stable_sort(faults.begin(), faults.end(), [](const Fault& a, const Fault& b) { return a.env < b.env; });
  batches_ += 1;
  received_ += envs_.size();
  is_read_ = false;
  return batch;
}

void OrderReplay::drop() {
  rows_.drop();
  notes_.clear();
  faults_.clear();
}

void OrderReplay::depart(const std::string& how) const {
  raise("StateError", "replay_order: this run departs from that of " + file_.name + " after " + std::to_string(received_) +
                          " rows in " + std::to_string(batches_) + " batches: " + how);
}

int OrderReplay::traverse(visitproc visit, void* arg) const {
  for (const auto& one : notes_) Py_VISIT(one.second.ptr());
  return 0;
}

}  // namespace stepmill
