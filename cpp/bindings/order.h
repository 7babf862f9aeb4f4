// The order in which the results of an async pool are received: written to a file, or repeated from one.
//
// The file has a word per row, of two bytes, or four for very many envs: the env, whether its row is the last one of its
// batch, and whether it failed. A word of ones is a `recv` whose time was over. Before the words, Python writes what the
// file is of (stepmill/views/order.py).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/kept_rows.h"
#include "core/process/descriptor.h"

namespace stepmill {

struct OrderFile {
  Descriptor descriptor;
  std::string name;     // for messages
  std::int64_t offset;  // of the next word
  bool wide;            // words have four bytes

  std::size_t word_bytes() const { return wide ? sizeof(std::uint32_t) : sizeof(std::uint16_t); }
  std::uint32_t last() const { return wide ? 1u << 31 : 1u << 15; }
  std::uint32_t failed() const { return last() >> 1; }
  std::uint32_t timeout() const { return wide ? 0xffffffff : 0xffff; }
};

// Each batch is in the file before its caller gets it, so that the death of the process loses nothing.
class OrderRecorder {
 public:
  explicit OrderRecorder(OrderFile file) : file_(std::move(file)) {}

  // What `write` writes next: the rows of a batch, or nothing; or that the time is over.
  void set_batch(std::span<const std::int32_t> envs, const std::vector<Fault>& faults);
  void set_timeout();
  // Raises if the file cannot be written, and writes the same again the next time.
  void write();
  void write_timeout();

 private:
  void add(std::uint32_t word);

  OrderFile file_;
  std::vector<std::byte> words_;
};

class OrderReplay {
 public:
  OrderReplay(OrderFile file, Pool& pool) : file_(std::move(file)), pool_(pool), rows_(pool) {}

  // The envs of the next batch; none: its time was over. The same until it is `take`n, or `pass_timeout`. Raises if the
  // file has no other, or if it has fewer or more rows than are expected, or if one of the envs is not in flight.
  std::span<const std::int32_t> next(std::int32_t at_least, std::int32_t at_most, bool has_timeout);
  void pass_timeout() { is_read_ = false; }

  bool has(std::int32_t env) const { return rows_.has(env); }
  // Keeps a batch, and what goes with its rows: notes, see `Host::take_notes`, and faults.
  void keep(const Batch& batch, nanobind::object notes, std::vector<Fault>&& faults);
  // Raises if an env of the next batch, which are all kept, has failed that had not, or has not failed that had.
  void check_failures() const;
  Batch take(std::vector<Fault>& faults, nanobind::object& notes);
  // Forgets all rows: they are not in flight any more.
  void drop();

  int traverse(visitproc visit, void* arg) const;

 private:
  bool read_word(std::uint32_t& word);
  void read_batch();
  bool has_failed(std::int32_t env) const;
  [[noreturn]] void depart(const std::string& how) const;

  OrderFile file_;
  Pool& pool_;
  KeptRows rows_;
  std::vector<std::pair<std::int32_t, nanobind::object>> notes_;  // of kept rows, by env
  std::vector<Fault> faults_;                                     // the same
  std::vector<std::int32_t> envs_;                                // of the next batch
  std::vector<std::uint8_t> failures_;                            // which of them had failed
  bool is_read_ = false;                                          // whether the next batch is known
  std::uint64_t batches_ = 0, received_ = 0;                      // taken so far: batches, and rows in them
  std::vector<std::byte> ahead_;                                  // read from the file
  std::size_t used_ = 0;                                          // bytes of these
};

}  // namespace stepmill
