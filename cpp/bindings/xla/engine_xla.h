// A pool inside of programs that XLA has compiled: `send`, `recv` and `step` of the engine, for the functions that XLA
// calls (handlers.h).
//
// They run in a thread of XLA, and have the pool meanwhile, as any other call: a second one is refused. Envs in this
// process that are not Python objects are stepped without the interpreter lock; what goes wrong takes it.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/engine.h"
#include "bindings/xla/columns.h"
#include "bindings/xla/registry.h"

namespace stepmill {

class EngineXla {
 public:
  // ---- for Python ----

  // Makes an engine known to programs, if it is not yet: the words of its handle.
  static nanobind::object open(nanobind::object engine, std::vector<std::string> info_names);
  // What the results of its `recv` are, in their order: (part, name of the info, dtype, shape of a row).
  static nanobind::list columns(const Engine& engine);
  // The last exception of a program, or None. Whoever asks for it is not told again.
  static nanobind::object error(Engine& engine);

  // ---- for handlers ----

  explicit EngineXla(XlaVisit& visit) : visit_(visit), engine_(visit.engine()) {}

  void send(const xla::Arrays& arguments);
  void recv(const xla::Arrays& results);
  void step(const xla::Arrays& arguments, const xla::Arrays& results);

  // The text of an exception, which the engine keeps for its next call.
  std::string keep(nanobind::python_error& error);
  std::string keep(const std::exception& error);  // of the core, or of the system

 private:
  class Inside;

  void make_way(const char* call);
  bool needs_python() const;
  void take_action(const xla::Arrays& arguments, bool recv_follows);
  void check_rows(std::int32_t more);
  [[noreturn]] void refuse_batch(std::int32_t rows) const;
  bool can_lend() const;
  void check_results(const xla::Arrays& results) const;
  void wait(bool to_the_end = false);
  void hand_out(const xla::Arrays& results, ColumnLoan* loan = nullptr);
  void finish(const xla::Array& abnormal, nanobind::object notes, Batch batch);
  void check_infos(nanobind::handle info) const;
  std::string keep_value(nanobind::object value);
  void take_lock(std::optional<nanobind::gil_scoped_acquire>& lock);

  XlaVisit& visit_;
  Engine& engine_;
  bool has_lock_ = false;
};

}  // namespace stepmill
