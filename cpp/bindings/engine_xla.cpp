#include "bindings/python/numpy_api.h"

#include "bindings/engine_xla.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "bindings/engine_use.h"

namespace nb = nanobind;

namespace stepmill {

// ---- for Python --------------------------------------------------------------------------------

nb::object EngineXla::open(nb::object engine, std::vector<std::string> info_names) {
  Engine& e = nb::cast<Engine&>(engine);
  const Engine::Use use(e, "xla");
  if (!e.xla_)
    e.xla_ = std::make_shared<XlaHold>(e, engine.ptr(), xla_columns(e.pool().spec(), e.pool().options()),
                                       std::move(info_names));
  const XlaHandle& handle = e.xla_->handle();
  return nb::make_tuple(handle[0], handle[1], handle[2]);
}

nb::list EngineXla::columns(const Engine& engine) {
  nb::list out;
  for (const XlaColumn& column : xla_columns(engine.pool().spec(), engine.pool().options())) {
    nb::list shape;
    for (const std::int64_t extent : column.shape) shape.append(extent);
    const bool is_info = column.part == XlaPart::kInfo || column.part == XlaPart::kHasInfo ||
                         column.part == XlaPart::kFinalInfo || column.part == XlaPart::kHasFinalInfo;
    nb::object name = to_text(is_info ? engine.pool().spec().info[column.leaf].name : "");
    out.append(nb::make_tuple(name_of(column.part), std::move(name), name_of(column.type), nb::tuple(shape)));
  }
  return out;
}

nb::object EngineXla::error(Engine& engine) {
  engine.xla_error_waits_ = false;
  return engine.xla_error_;
}

// ---- who may call ------------------------------------------------------------------------------

// The time that a call has the pool, with the interpreter lock if its host needs it.
class EngineXla::Inside {
 public:
  explicit Inside(EngineXla& call) : use_((call.make_way("xla"), call.engine_)), call_(call) {
    if (call.needs_python()) call.take_lock(lock_);
  }
  ~Inside() { call_.has_lock_ = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const Engine::Use use_;
  EngineXla& call_;
  std::optional<nb::gil_scoped_acquire> lock_;
};

void EngineXla::take_lock(std::optional<nb::gil_scoped_acquire>& lock) {
  if (has_lock_) return;
  if (exit_has_begun()) throw std::runtime_error("the program ends");
  lock.emplace();
  if (!visit_.hold()) throw std::runtime_error("the pool is being freed");
  has_lock_ = true;
}

void EngineXla::make_way(const char* call) {
  if (!engine_.sessions_.is_valid()) return;
  std::optional<nb::gil_scoped_acquire> lock;
  take_lock(lock);
  has_lock_ = false;
  if (engine_.sessions_.is_valid()) Engine::Use::may_be_used(engine_).sessions_.attr("make_way")(call);
}

bool EngineXla::needs_python() const {
  return engine_.host_.needs_python() || engine_.watching_ || engine_.replay_ || engine_.recorder_ ||
         engine_.pending_ || !engine_.kept_notes_.empty();
}

std::string EngineXla::keep(nb::python_error& error) {
  if (exit_has_begun()) return "the program ends";
  const nb::gil_scoped_acquire acquire;
  if (!visit_.hold()) return "the pool is being freed";
  return keep_value(nb::borrow(error.value()));
}

std::string EngineXla::keep(const std::exception& error) {
  if (exit_has_begun()) return error.what();
  const nb::gil_scoped_acquire acquire;
  if (!visit_.hold()) return error.what();
  return keep_value(exception_of(error));
}

std::string EngineXla::keep_value(nb::object value) {
  const std::string type = reinterpret_cast<PyTypeObject*>(Py_TYPE(value.ptr()))->tp_name;
  std::string text;
  try {
    text = type + ": " + text_of(owned(PyObject_Str(value.ptr())));
  } catch (nb::python_error&) {
    text = type;
  }
  engine_.xla_error_ = std::move(value);
  engine_.xla_error_waits_ = true;
  return text;
}

// ---- send and recv -----------------------------------------------------------------------------

void EngineXla::send(const xla::Arrays& arguments) {
  const Inside inside(*this);
  take_action(arguments, false);
}

void EngineXla::recv(const xla::Arrays& results) {
  const Inside inside(*this);
  if (engine_.pending_)
    raise("InFlightError", "xla: the call that should have returned the last batch was interrupted: recv() it first");
  check_rows(0);
  check_results(results);
  wait();
  hand_out(results);
}

void EngineXla::step(const xla::Arrays& arguments, const xla::Arrays& results) {
  const Inside inside(*this);
  if (engine_.pending_)
    raise("InFlightError", "xla: the call that should have returned the last batch was interrupted: recv() it first");
  const std::int64_t rows = arguments.count > 1 && arguments[1].rank > 0 ? arguments[1].extents[0] : 0;
  check_rows(static_cast<std::int32_t>(rows));
  check_results(results);
  if (!can_lend()) {
    take_action(arguments, true);
    wait();
    return hand_out(results);
  }
  engine_.pool().make_room(static_cast<std::int32_t>(rows), false);
  ColumnLoan loan(engine_.pool().empty_buffer(), engine_.xla_->columns(), results, engine_.xla_->lent());
  take_action(arguments, true);
  wait(true);
  hand_out(results, &loan);
}

// Whether envs can write their rows where the program wants them.
bool EngineXla::can_lend() const {
  const Pool& pool = engine_.pool();
  return engine_.host_.writes_here() && !has_lock_ && !pool.is_async() && pool.in_flight_count() == 0;
}

void EngineXla::check_results(const xla::Arrays& results) const {
  const auto& columns = engine_.xla_->columns();
  const std::int64_t rows = engine_.pool().options().batch_size;
  bool fit = results.count == std::ssize(columns) + 1;
  for (std::size_t i = 0; fit && i < columns.size(); ++i) {
    const xla::Array& to = results[static_cast<std::int64_t>(i) + 1];
    const auto& shape = columns[i].shape;
    fit = becomes(columns[i].type, type_of(to.type)) && to.rank == std::ssize(shape) + 1 && to.extents[0] == rows &&
          std::equal(shape.begin(), shape.end(), to.extents + 1);
  }
  if (!fit)
    throw std::invalid_argument("xla: the program was traced for another pool than the one whose handle it was given: "
                                "use the handle with the functions that came with it");
}

// What `send` of the engine does, for arrays: the handle, the parts of the action, and perhaps the ids of the envs.
void EngineXla::take_action(const xla::Arrays& arguments, bool recv_follows) {
  Pool& pool = engine_.pool();
  const auto leaves = static_cast<std::int64_t>(pool.spec().action.size());
  if (arguments.count != leaves + 1 && arguments.count != leaves + 2)
    throw std::invalid_argument("xla: expected " + std::to_string(leaves + 1) + " arrays, or the env ids too, got " +
                                std::to_string(arguments.count));
  std::array<ActionInput::Numbers, 16> few;
  std::vector<ActionInput::Numbers> many(arguments.count > std::ssize(few) ? static_cast<std::size_t>(arguments.count) : 0);
  ActionInput::Numbers* numbers = many.empty() ? few.data() : many.data();
  for (std::int64_t i = 1; i < arguments.count; ++i) {
    const xla::Array& given = arguments[i];
    numbers[i - 1] = {given.data, type_of(given.type), {given.extents, static_cast<std::size_t>(given.rank)}};
  }
  const auto otherwise = std::span<const std::int32_t>(pool.is_async() ? engine_.last_ids_ : engine_.all_envs_);
  const auto envs = engine_.input_->read_numbers({numbers, static_cast<std::size_t>(leaves)},
                                                 arguments.count > leaves + 1 ? numbers + leaves : nullptr, otherwise);
  engine_.refuse_pending(envs);
  engine_.host_.settle(envs);
  engine_.was_sent_ = true;
  engine_.start(envs, false, recv_follows);
}

// A program gets whole batches only. `more`: what it is about to send.
void EngineXla::check_rows(std::int32_t more) {
  Pool& pool = engine_.pool();
  const std::int32_t whole = pool.options().batch_size, coming = pool.in_flight_count() + more;
  if (pool.gathering() && pool.expected() != whole) refuse_batch(pool.expected());
  if (coming == 0)
    raise("NothingInFlightError",
          "recv() with nothing in flight would wait forever: send() actions or async_reset() first");
  if (coming < whole)
    raise("UsageError", "xla: recv() of a program returns batches of " + std::to_string(whole) + " rows, and " +
                            std::to_string(coming) + (coming == 1 ? " env is" : " envs are") +
                            " in flight: send() to as many before");
}

// As `Engine::wait`, but nothing interrupts it: signal handlers run after the program's call.
// `to_the_end`: even if the program ends, as envs write into memory of XLA.
void EngineXla::wait(bool to_the_end) {
  Pool& pool = engine_.pool();
  Host& host = engine_.host_;
  if (engine_.replay_ && !pool.gathering()) {
    engine_.wait_in_order(pool.options().batch_size, false);
    return;
  }
  WaitTime waiting(*engine_.counters_);
  while (!pool.ready()) {
    if (!has_lock_) {
      waiting.begin(host.runs_beside_the_caller() ? CallerState::kWaiting : CallerState::kStepping);
      pool.work_or_wait(kSignalInterval);
      if (!to_the_end && exit_has_begun()) throw std::runtime_error("the program ends");
      continue;
    }
    if (host.wants_attention()) host.attend();
    if (host.is_brief()) {
      pool.work_or_wait(std::chrono::nanoseconds(0));
      continue;
    }
    waiting.begin(host.runs_beside_the_caller() ? CallerState::kWaiting : CallerState::kStepping);
    host.report_slow();
    host.work(kSignalInterval);
    end_thread_at_exit();
  }
}

void EngineXla::refuse_batch(std::int32_t rows) const {
  raise("InFlightError", "xla: the next batch has " + std::to_string(rows) + " rows, and recv() of a program returns " +
                             std::to_string(engine_.pool().options().batch_size) + ": recv() it outside first");
}

void EngineXla::hand_out(const xla::Arrays& results, ColumnLoan* loan) {
  const std::vector<XlaColumn>& columns = engine_.xla_->columns();
  Pool& pool = engine_.pool();
  const std::int32_t whole = pool.options().batch_size;
  const bool is_replayed = engine_.replay_ && !pool.gathering();  // its rows were taken before
  if (!is_replayed && pool.expected() != whole) refuse_batch(pool.expected());
  nb::object notes;
  Batch batch = engine_.take_rows(notes);
  if (const std::int32_t rows = batch.rows; rows != whole) {
    engine_.keep_pending(std::move(batch), notes);
    refuse_batch(rows);
  }
  const std::size_t info_leaves = pool.spec().info.size();
  const bool is_plain = !notes.is_valid() && engine_.faults_.empty() && !engine_.watching_;
  for (std::size_t i = 0; i + 1 < columns.size(); ++i)
    if (!loan || !loan->has(i)) copy_column(batch, info_leaves, columns[i], results[static_cast<std::int64_t>(i) + 1]);
  const xla::Array& abnormal = results[static_cast<std::int64_t>(columns.size())];
  if (is_plain) {
    std::memset(abnormal.data, 0, static_cast<std::size_t>(batch.rows));
    if (loan) loan->end();
    batch.store->release(batch.buffer);
    if (engine_.recorder_) engine_.recorder_->write();
    return;
  }
  if (loan) loan->copy_back(batch.rows);
  std::optional<nb::gil_scoped_acquire> lock;
  take_lock(lock);
  if (loan) loan->end();
  finish(abnormal, std::move(notes), std::move(batch));
}

// A batch with failures, or with infos that are not in its arrays: goes the way of every batch, so that an exception has it.
void EngineXla::finish(const xla::Array& abnormal, nb::object notes, Batch batch) {
  const std::int32_t rows = batch.rows;
  engine_.keep_pending(std::move(batch), notes);
  engine_.add_extras();
  const nb::object info = engine_.pending_->result[4];
  nb::object flags = nb::borrow(PyDict_GetItemString(info.ptr(), "abnormal"));
  if (flags.is_valid())
    std::memcpy(abnormal.data, data_of<char>(flags), static_cast<std::size_t>(rows));
  else
    std::memset(abnormal.data, 0, static_cast<std::size_t>(rows));
  nb::object error;
  engine_.give_away(false, error);
  if (!error.is_none()) raise_again(error);
  check_infos(info);
}

// A program knows what an env may tell before it runs.
void EngineXla::check_infos(nb::handle info) const {
  const auto& names = engine_.xla_->info_names();
  for (auto [key, value] : nb::borrow<nb::dict>(info)) {
    const std::string name = PyUnicode_Check(key.ptr()) ? text_of(key) : text_of(nb::repr(key));
    if (name == "final_info") check_infos(value);
    else if (std::find(names.begin(), names.end(), name) == names.end())
      raise("UnsupportedError",
            "xla: an env has told the info " + text_of(nb::repr(key)) + ", which it does not declare: a program has the infos "
            "of the env's info_space, a Dict of arrays, and no others");
  }
}

}  // namespace stepmill
