// Which pools programs of XLA can reach, by the words of their handles.
//
// A handle is an array in such a program: a number of this registry and a nonce, and never an address. One that outlives
// its pool, or comes from another process, is refused by name. A program that is inside a pool keeps it: whoever frees the
// engine waits until it has left.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/xla/columns.h"

namespace stepmill {

class Engine;

// (number, nonce, nonce)
using XlaHandle = std::array<std::uint32_t, 3>;

// The place of an engine in the registry. It outlives the engine if a program is just looking at it.
struct XlaSeat {
  std::mutex mutex;
  std::condition_variable left;
  Engine* engine = nullptr;     // null: it was freed
  PyObject* object = nullptr;   // the same in Python, borrowed
  int inside = 0;               // calls of programs
  XlaHandle handle{};
};

// What an engine has as long as programs can reach it. Gives up its seat when the engine goes.
class XlaHold {
 public:
  // `info_names`: what the infos of its batches may have.
  XlaHold(Engine& engine, PyObject* object, std::vector<XlaColumn> columns, std::vector<std::string> info_names);
  ~XlaHold();
  XlaHold(const XlaHold&) = delete;
  XlaHold& operator=(const XlaHold&) = delete;

  // Lets no program in any more, and waits until those inside have left: until then they use what is here.
  void give_up();

  const XlaHandle& handle() const { return seat_->handle; }
  const std::vector<XlaColumn>& columns() const { return columns_; }
  const std::vector<std::string>& info_names() const { return info_names_; }
  // By column, what `ColumnLoan` has to put back: here, so that no call allocates it.
  std::vector<void*>& lent() { return lent_; }

 private:
  const std::vector<XlaColumn> columns_;
  const std::vector<std::string> info_names_;
  std::vector<void*> lent_;
  std::shared_ptr<XlaSeat> seat_;
};

// A program's call, as long as it lasts. Needs no interpreter lock.
class XlaVisit {
 public:
  // Throws StaleHandle if there is no such pool.
  explicit XlaVisit(const XlaHandle& handle);
  ~XlaVisit();
  XlaVisit(const XlaVisit&) = delete;
  XlaVisit& operator=(const XlaVisit&) = delete;

  Engine& engine() const { return *seat_->engine; }
  // With the interpreter lock, before any Python object is made or dropped: the garbage collector must not free the engine
  // in this thread. False if it is just being freed.
  bool hold();

 private:
  std::shared_ptr<XlaSeat> seat_;
  PyObject* held_ = nullptr;
};

struct StaleHandle {
  const char* message;
};

}  // namespace stepmill
