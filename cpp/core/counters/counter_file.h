// The file in which a process shows its pools: one memfd, which `stepmill top` finds and opens through /proc.
//
// It is made with the first pool of a process and closed with the last. It has no name in any folder, so nothing is
// left of it however the process ends, and the kernel lets only processes of the same user open it. An exec closes it.
// A forked child closes it too, and goes on with memory of its own in the same place: it neither writes into the parent's
// words nor shows them as its own.
//
// Publishing: the record is written, then its `serial` (release), then its place in the header (release). Withdrawing
// is the other way round, and the memory is written again only after `serial` is 0. A reader that finds the same serial
// before and after it has copied a record has copied that record and no other (`counter_reader.h`).
//
// A system may refuse the file (no memfd, no descriptors, no memory). Then pools work as ever and are not shown.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/counters/pool_record.h"

namespace stepmill {

class CounterFile {
 public:
  static constexpr const char* kName = "stepmill-pools";  // /proc shows it as "/memfd:stepmill-pools (deleted)"

  // A zeroed record, with room for those of `workers`, in the file of this process. `file` is null if there is none.
  struct Loan {
    CounterFile* file = nullptr;
    PoolRecord* record = nullptr;
    std::size_t bytes = 0;
    std::size_t place = 0;
  };
  static Loan lend(std::size_t workers);
  // Makes a record visible whose words are written.
  static void publish(const Loan& loan);
  static void take_back(const Loan& loan);

  CounterFile(const CounterFile&) = delete;
  CounterFile& operator=(const CounterFile&) = delete;

 private:
  struct Present;
  static Present& present();
  // Made when the library is loaded: if a fork came while another thread made it, the child would wait for that forever.
  static Present* const made_;

  // All of these with the lock of `Present` held.
  static CounterFile* create();
  CounterFile(int descriptor, std::byte* base);
  ~CounterFile();
  Loan lend_here(std::size_t workers);
  std::size_t find_room(std::size_t bytes);
  bool grow(std::size_t bytes);
  bool descriptor_is_ours() const;
  void become_private();
  FileHeader& header() const { return *reinterpret_cast<FileHeader*>(base_); }

  std::byte* const base_;  // kMostBytes of addresses, of which `backed_` can be used
  int descriptor_;         // -1: in a forked child
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::size_t backed_ = 0, used_ = 0;
  std::size_t pools_ = 0;
  std::uint64_t last_serial_ = 0;
  std::array<std::vector<std::size_t>, 64> free_;  // offsets of returned records, by the logarithm of their size
};

}  // namespace stepmill
