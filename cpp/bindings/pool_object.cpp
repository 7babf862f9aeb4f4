#include "bindings/numpy_api.h"

#include "bindings/pool_object.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "bindings/bytes.h"
#include "bindings/errors.h"
#include "bindings/exit.h"
#include "bindings/forked.h"
#include "bindings/values.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

using std::chrono::nanoseconds;

constexpr auto kKillPatience = std::chrono::seconds(5);

// Seconds as the user gave them; nothing for None and for longer than anyone waits.
std::optional<double> read_timeout(nb::handle timeout) {
  if (timeout.is_none()) return std::nullopt;
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  const bool failed = PyErr_Occurred() != nullptr;
  forget_error();
  if (failed || !(seconds >= 0.0))
    raise("InputError", "recv(timeout=" + text_of(nb::repr(timeout)) +
                            "): expected seconds >= 0, or None to wait for as long as it takes");
  constexpr double kForever = 1e9;
  return seconds < kForever ? std::optional(seconds) : std::nullopt;
}

}  // namespace

// Refuses a second call.
void PoolObject::go_inside() {
  const auto self = static_cast<std::uintptr_t>(PyThread_get_thread_ident());
  std::uintptr_t other = 0;
  if (inside_.compare_exchange_strong(other, self, std::memory_order_acquire)) return;
  raise("ConcurrentUseError",
        other == self ? "this thread is inside this pool already: neither an env nor a signal handler can use the pool "
                        "that runs it. Wait until the call has returned"
                      : "another thread is inside this pool: a pool serves one thread at a time. Use a lock, or a pool "
                        "for each thread");
}

class PoolObject::Entry {
 public:
  explicit Entry(PoolObject& pool) : pool_(pool) { pool.go_inside(); }
  ~Entry() { pool_.inside_.store(0, std::memory_order_release); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  PoolObject& pool_;
};

// Guards a method: refuses a closed pool, a forked child and a second call.
class PoolObject::Use {
 public:
  explicit Use(PoolObject& pool) : entry_(may_be_used(pool)) {
    if (pool.processes_) pool.processes_->check_whole();
  }

  static PoolObject& may_be_used(PoolObject& pool) {
    end_thread_at_exit();
    if (pool.closed_) raise("ClosedError", "the pool is closed: make a new one");
    if (pool.forked())
      raise("ForkedError",
            "the pool was made before a fork and belongs to the parent process: its threads and worker processes do "
            "not serve this one. Make a pool in this process instead");
    return pool;
  }

 private:
  const Entry entry_;
};

PoolObject::PoolObject(Arguments a)
    : pool_(std::move(a.pool)),
      table_(a.table),
      native_(a.native),
      python_(std::move(a.python)),
      processes_(a.processes),
      on_rows_(std::move(a.on_rows)),
      on_attention_(std::move(a.on_attention)),
      generation_(process_generation()) {
  input_.emplace(*pool_, std::move(a.action_tree), a.bounds);
  output_.emplace(*pool_, std::move(a.observation_tree));
  for (std::int32_t env = 0; env < pool_->num_envs(); ++env) {
    all_envs_.push_back(env);
    sm_reset_request& request = pool_->table().reset_request(env);
    request.seed = a.seeds[static_cast<std::size_t>(env)];
    request.has_seed = 1;
  }
}

PoolObject::~PoolObject() {
  if (forked())
    (void)pool_.release();  // its threads are the parent's; what it holds goes with this process
  else if (!closed_)
    stop(false);
}

void PoolObject::check_usable() { const Use use(*this); }

void PoolObject::enter(nb::handle token) {
  Use::may_be_used(*this).go_inside();
  token_ = token.ptr();
}

bool PoolObject::leave(nb::handle token) {
  if (token_ != token.ptr()) return false;
  token_ = nullptr;
  inside_.store(0, std::memory_order_release);
  return true;
}

bool PoolObject::wait_until_left(double most) const {
  const nb::gil_scoped_release release;
  const auto end = Clock::now() + nanoseconds(static_cast<std::int64_t>(most * 1e9));
  // Looked at rather than waited for: nobody who leaves in ordinary life should have to wake anyone.
  while (inside_.load(std::memory_order_acquire) != 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return inside_.load(std::memory_order_acquire) == 0;
}

bool PoolObject::forked() const { return generation_ != process_generation(); }

// ---- send and recv -----------------------------------------------------------------------------

// Whom an action without ids is for: every env, or those of the last batch.
std::span<const std::int32_t> PoolObject::implied_envs() const {
  return pool_->is_async() ? last_ids_ : all_envs_;
}

nb::list PoolObject::in_flight_ids() const {
  nb::list out;
  for (std::int32_t env = 0; pool_ && env < pool_->num_envs(); ++env)
    if (pool_->in_flight(env) ||
        (pending_ && std::find(pending_->ids.begin(), pending_->ids.end(), env) != pending_->ids.end()))
      out.append(env);
  return out;
}

nb::list PoolObject::last_ids() const {
  nb::list out;
  for (const std::int32_t env : last_ids_) out.append(env);
  return out;
}

nb::list PoolObject::seeds(nb::handle env_ids) {
  const Use use(*this);
  nb::list out;
  for (nb::handle id : env_ids) {
    const auto env = nb::cast<std::int32_t>(id);
    const sm_reset_request& request = pool_->table().reset_request(env);
    // Whoever steps an env takes its seed: `has_seed` is read while nobody does.
    const bool waits = (python_ || !pool_->in_flight(env)) && request.has_seed != 0;
    out.append(nb::make_tuple(request.seed, waits));
  }
  return out;
}

nb::list PoolObject::random_states(nb::handle env_ids) {
  const Use use(*this);
  nb::list out;
  for (nb::handle id : env_ids) {
    const auto env = nb::cast<std::int32_t>(id);
    if (pool_->in_flight(env))
      raise("InFlightError", "env " + std::to_string(env) +
                                 " is in flight, and its generator is in use: recv() its result first");
    out.append(random_state(native_->random_state(env)));
  }
  return out;
}

void PoolObject::send(nb::handle action, nb::handle env_id, nb::handle objects) {
  const Use use(*this);
  const auto envs = input_->read(action, env_id, implied_envs());
  refuse_pending(envs);
  settle_calls(envs);
  give_objects(objects);
  start(envs, false, false);
}

nb::object PoolObject::recv(nb::handle timeout) {
  const Use use(*this);
  const std::optional<double> seconds = read_timeout(timeout);
  if (pending_) return complete(false);
  require_something_in_flight();
  wait(seconds);
  return finish(false);
}

nb::object PoolObject::recv_some(int enough, int at_least, nb::handle timeout, bool steps_only) {
  const Use use(*this);
  const std::optional<double> seconds = read_timeout(timeout);
  if (pending_) return complete(false);
  if (pool_->in_flight_count() == 0) return nb::none();
  if (!pool_->gathering()) {
    std::optional<Clock::time_point> end;
    if (seconds) end = Clock::now() + nanoseconds(static_cast<std::int64_t>(*seconds * 1e9));
    if (!wait_for_rows(enough, steps_only, end) &&
        !(at_least > 0 && wait_for_rows(at_least, steps_only, std::nullopt)) &&
        !wait_for_rows(1, false, Clock::time_point::min()))
      return nb::none();
    if (!pool_->ready()) pool_->seal_early();
  }
  wait(std::nullopt);
  return finish(false);
}

// Whether so many rows of the batch that is awaited were ready in time.
bool PoolObject::wait_for_rows(int rows, bool steps_only, std::optional<Clock::time_point> end) {
  struct Content {
    Pool& pool;
    ~Content() { pool.be_content_with(0); }
  } const content{*pool_};
  pool_->be_content_with(std::max(rows, 1), steps_only);
  return wait_until(end);
}

nb::object PoolObject::step(nb::handle action, nb::handle env_id, nb::handle objects) {
  const Use use(*this);
  const auto envs = input_->read(action, env_id, implied_envs());
  refuse_pending(envs);
  settle_calls(envs);
  give_objects(objects);
  start(envs, false, true);
  if (pending_) return complete(false);  // of other envs, in async mode: first come, first served
  wait(std::nullopt);
  return finish(false);
}

void PoolObject::give_objects(nb::handle objects) {
  if (objects.is_none()) return;
  for (auto [env, value] : nb::borrow<nb::dict>(objects)) {
    const auto id = nb::cast<std::int32_t>(env);
    if (python_) python_->env(id).set_objects(nb::borrow(value));
    else processes_->set_mail(id, bytes_of(value));
  }
}

void PoolObject::start(std::span<const std::int32_t> envs, bool gather, bool recv_follows) {
  pool_->send(envs, gather, recv_follows);
  if (processes_ && processes_->wants_attention()) attend();
}

// Has worker processes started in place of those that are gone.
void PoolObject::attend() { on_attention_(); }

void PoolObject::require_something_in_flight() const {
  if (pool_->in_flight_count() == 0)
    raise("NothingInFlightError",
          "recv() with nothing in flight would wait forever: send() actions or async_reset() first");
}

// Waits until the batch is ready. Ctrl-C raises and leaves everything in flight.
void PoolObject::wait(std::optional<double> timeout) {
  std::optional<Clock::time_point> end;
  if (timeout) end = Clock::now() + nanoseconds(static_cast<std::int64_t>(*timeout * 1e9));
  if (!wait_until(end))
    raise("RecvTimeoutError",
          "recv(timeout=" + std::to_string(*timeout) + "): expected " + std::to_string(pool_->expected()) +
              " envs within that time, but the batch is not complete. They stay in flight: call recv() again");
}

// The same, and says whether it is ready, or the time is over.
bool PoolObject::wait_until(std::optional<Clock::time_point> end) {
  while (!pool_->ready()) {
    if (processes_ && processes_->wants_attention()) attend();
    if (!python_ && pool_->is_brief()) {  // then the interpreter lock is kept
      pool_->work_or_wait(nanoseconds(0));
      continue;
    }
    nanoseconds most = kSignalInterval;
    if (end) {
      const auto now = Clock::now();
      if (*end <= now) return false;
      most = std::min<nanoseconds>(most, *end - now);
    }
    if (python_) {  // its envs need the interpreter lock; what is no failure of theirs is raised on
      pool_->work_or_wait(nanoseconds(0));
      if (nb::object interrupt = std::move(python_->kind().interrupt); interrupt.is_valid()) {
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(interrupt.ptr())), interrupt.ptr());
        throw nb::python_error();
      }
    } else {
      const nb::gil_scoped_release release;
      const auto slice = Clock::now() + most;
      do pool_->work_or_wait(most);
      while (!pool_->ready() && Clock::now() < slice && !(processes_ && processes_->wants_attention()));
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    end_thread_at_exit();
  }
  return true;
}

nb::object PoolObject::finish(bool is_reset) {
  faults_.clear();
  Batch batch = pool_->take_batch(faults_);
  if (pool_->is_async()) last_ids_.assign(batch.env_id, batch.env_id + batch.rows);
  counts_.batches += 1;
  counts_.steps += static_cast<std::uint64_t>(batch.rows);
  if (batch.any_ended)
    for (std::int32_t row = 0; row < batch.rows; ++row) counts_.episodes += batch.ended[row];
  nb::object extras = collect_extras(batch);
  if (!extras.is_valid() && (is_reset ? show_reset_ : show_step_).is_none())
    return is_reset ? output_->reset_result(std::move(batch), faults_) : output_->step_result(std::move(batch), faults_);
  std::vector<std::int32_t> ids(batch.env_id, batch.env_id + batch.rows);
  pending_.emplace(Pending{output_->step_result(std::move(batch), faults_), std::move(extras), std::move(ids)});
  return complete(is_reset);
}

// Has Python put what no array holds into the batch, and the view give it its form. Whatever is raised in there, by a
// signal handler or Ctrl-C, loses nothing: the batch is given away here, by what is returned or by an error with it.
// `as_reset`: in the form that `reset` returns; `recv` gives the rows of a reset, too, in that of steps.
nb::object PoolObject::complete(bool as_reset) {
  nb::object result = pending_->result, error = nb::none();
  if (pending_->extras.is_valid()) {
    nb::object finished = on_rows_(result, pending_->extras[0], pending_->extras[1]);
    result = finished[0];
    error = finished[1];
  }
  if (as_reset) result = nb::make_tuple(result[0], result[4]);
  const nb::object& show = as_reset ? show_reset_ : show_step_;
  if (!show.is_none()) result = owned(PyObject_CallOneArg(show.ptr(), result.ptr()));
  if (!error.is_none()) error.attr("batch") = result;
  const std::optional<Pending> done = std::exchange(pending_, std::nullopt);
  if (error.is_none()) return result;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void PoolObject::show_as(nb::object step, nb::object reset, bool players) {
  if (output_) output_->show_players(players);
  show_step_ = std::move(step);
  show_reset_ = std::move(reset);
}

void PoolObject::refuse_pending(std::span<const std::int32_t> envs) const {
  if (!pending_) return;
  for (const std::int32_t env : envs)
    if (std::find(pending_->ids.begin(), pending_->ids.end(), env) != pending_->ids.end())
      raise("InFlightError", "env " + std::to_string(env) +
                                 " is in flight: the call that should have returned its result was interrupted. Call "
                                 "recv() to get it");
}

// As Python's Fault takes it.
nb::object PoolObject::fault_tuple(const Fault& f) {
  return nb::make_tuple(f.env, f.phase, f.episode, f.step, f.failures, to_text(f.message), static_cast<int>(f.kind));
}

// What Python adds to a batch: its notes, and its faults. Nothing in most batches, and then there is no object for it.
nb::object PoolObject::collect_extras(const Batch& batch) {
  if (!python_ && !processes_ && faults_.empty()) return {};
  nb::list notes = collect_notes(batch);
  if (faults_.empty() && nb::len(notes) == 0) return {};
  nb::list faults;
  for (const Fault& f : faults_) faults.append(fault_tuple(f));
  return nb::make_tuple(notes, faults);
}

// What the rows of a batch have beside their arrays: (row, env, info, final info, objects, final objects,
// exception, phase of it) for envs of this process, (row, env, bytes) for those of workers.
nb::list PoolObject::collect_notes(const Batch& batch) {
  nb::list notes;
  if (processes_)
    for (const auto& [row, env] : processes_->noted()) {
      nb::object note;
      const bool good = processes_->read_note(env, [&](std::span<const std::byte> bytes) {
        note = to_bytes(bytes);
        return bytes_of(note);
      });
      if (!good) lose_row(batch, row);
      else if (note.is_valid() && PyBytes_GET_SIZE(note.ptr()) != 0) notes.append(nb::make_tuple(row, env, note));
    }
  if (!python_) return notes;
  const std::int32_t* ids = batch.env_id;
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    const Note note = python_->env(ids[row]).take_note();
    if (!note.empty())
      notes.append(nb::make_tuple(row, ids[row], or_none(note.info), or_none(note.final_info), or_none(note.objects),
                                  or_none(note.final_objects), or_none(note.error), note.phase));
  }
  return notes;
}

// What came with a row is not what its worker wrote: the row is a failure, in place of what it had.
void PoolObject::lose_row(const Batch& batch, std::int32_t row) {
  std::erase_if(faults_, [&](const Fault& fault) { return fault.env == batch.env_id[row]; });
  faults_.push_back(processes_->spoil(batch, row));
}

// ---- reset -------------------------------------------------------------------------------------

// Options are numbers by name, as the env declares them.
sm_reset_request PoolObject::read_options(nb::handle options) const {
  sm_reset_request request{};
  if (options.is_none()) return request;
  // A copy: reading a value may run code that changes the dict.
  for (auto [key, value] : nb::borrow<nb::dict>(owned(PyDict_Copy(options.ptr())))) {
    const std::string name = text_of(nb::str(key));
    int index = 0;
    while (table_->reset_options[index] && name != table_->reset_options[index]) ++index;
    if (!table_->reset_options[index]) {
      std::string known;
      for (int i = 0; table_->reset_options[i]; ++i)
        known += std::string(i ? ", " : "") + table_->reset_options[i];
      raise("ResetOptionError", "unknown reset option '" + name + "', expected one of: " +
                                    (known.empty() ? "none (this env takes no options)" : known));
    }
    const double number = PyFloat_AsDouble(value.ptr());
    const bool failed = PyErr_Occurred() != nullptr;
    forget_error();
    if (failed || std::isnan(number))
      raise("ResetOptionError", "reset option '" + name + "': expected a number, got " +
                                    (failed ? describe_object(value) : "nan"));
    request.option[index] = number;
    request.option_mask |= 1u << index;
  }
  char error[SM_ERROR_CAPACITY] = "";
  if (table_->check_options(&request, error) != 0) raise("ResetOptionError", error);
  return request;
}

PoolObject::ResetOrder PoolObject::read_reset(nb::handle env_id, nb::handle seeds, nb::handle options) {
  ResetOrder order{env_id.is_none() ? std::span<const std::int32_t>(all_envs_) : input_->read_ids(env_id), {}, {}, {}};
  const auto add_options = [&](nb::handle one) {
    order.options.push_back(table_ ? read_options(one) : sm_reset_request{});
    order.python_options.push_back(nb::borrow(one));
  };
  if (PyList_Check(options.ptr())) {  // one an env
    for (nb::handle one : nb::borrow<nb::list>(options)) add_options(one);
    if (order.options.size() != order.envs.size())
      raise("ResetOptionError", "options: expected " + std::to_string(order.envs.size()) + " dicts, one an env, got " +
                                    std::to_string(order.options.size()));
  } else {
    add_options(options);
  }
  if (seeds.is_none()) return order;
  nb::object items = owned(PySequence_Tuple(seeds.ptr()));
  const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
  if (count != static_cast<Py_ssize_t>(order.envs.size()))
    raise("ConfigError", "seed: expected a list of " + std::to_string(order.envs.size()) + " seeds, one an env, got " +
                             std::to_string(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* seed = PyTuple_GET_ITEM(items.ptr(), i);
    auto& to = order.seeds.emplace_back();
    if (seed != Py_None) to = PyLong_AsUnsignedLongLong(seed);
    if (PyErr_Occurred()) throw nb::python_error();
  }
  return order;
}

void PoolObject::queue_reset(const ResetOrder& order, bool gather, const std::uint8_t* mask, nb::handle prepare) {
  const auto envs = order.envs;
  refuse_pending(gather ? std::span<const std::int32_t>(all_envs_) : envs);
  for (const std::int32_t env : envs)
    if (pool_->in_flight(env))
      raise("InFlightError", "env " + std::to_string(env) +
                                 " is in flight: recv() its result before it is reset, or reset() all");
  if (pool_->is_async() ? gather && pool_->gathering() : pool_->in_flight_count() != 0)
    raise("InFlightError", "reset of chosen envs while others are in flight: recv() them first");
  settle_calls(envs);
  pool_->make_room(static_cast<std::int32_t>(envs.size()), gather);
  if (!prepare.is_none()) {
    nb::list ids;
    for (const std::int32_t env : envs) ids.append(env);
    prepare(ids);
  }
  if (!table_ && processes_) {
    try {
      for (std::size_t i = 0; i < envs.size(); ++i)
        if (const nb::object& mail = order.python_options_of(i); !mail.is_none() && (!mask || mask[i]))
          processes_->set_mail(envs[i], bytes_of(mail));
    } catch (...) {  // no memory: nothing of it may go with another action
      for (const std::int32_t env : envs) processes_->set_mail(env, {});
      throw;
    }
  }
  // Nothing can fail from here on.
  for (std::size_t i = 0; i < envs.size(); ++i) {
    if (mask && !mask[i]) {
      pool_->table().state(envs[i]).command = SM_OBSERVE;
      continue;
    }
    sm_reset_request& to = pool_->table().reset_request(envs[i]);
    const sm_reset_request& options = order.options_of(i);
    to.option_mask = options.option_mask;
    std::memcpy(to.option, options.option, sizeof(options.option));
    if (!order.seeds.empty() && order.seeds[i]) {
      to.seed = *order.seeds[i];
      to.has_seed = 1;
    }
    if (python_) python_->env(envs[i]).set_options(order.python_options_of(i));
    pool_->table().state(envs[i]).command = SM_RESET;
  }
  start(envs, gather, gather);
}

void PoolObject::send_reset(nb::handle env_id, nb::handle seeds, nb::handle options, nb::handle prepare) {
  const Use use(*this);
  queue_reset(read_reset(env_id, seeds, options), false, nullptr, prepare);
}

nb::object PoolObject::reset(nb::handle env_id, nb::handle seeds, nb::handle options, nb::handle mask) {
  const Use use(*this);
  // A mask comes checked from the views: a bool for every env.
  const auto* chosen =
      mask.is_none() ? nullptr
                     : static_cast<const std::uint8_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(mask.ptr())));
  const ResetOrder order = read_reset(env_id, seeds, options);  // first: a bad reset drops nothing
  if (env_id.is_none() && !chosen) drain();
  queue_reset(order, true, chosen, nb::none());
  wait(std::nullopt);
  return finish(true);
}

void PoolObject::replace(int env, nb::object by) {
  python_->env(env).replace(std::move(by));
}

void PoolObject::fail_next(int env, nb::object error) { python_->env(env).set_failure(std::move(error)); }

// Waits for everything in flight and drops it: what a reset of all envs makes void.
void PoolObject::drain() {
  pending_.reset();
  while (pool_->in_flight_count() != 0) {
    wait(std::nullopt);
    Batch batch = pool_->take_batch(faults_);
    collect_notes(batch);
    batch.store->release(batch.buffer);
  }
  faults_.clear();
}

// ---- ending ------------------------------------------------------------------------------------

void PoolObject::close() {
  if (forked()) {
    (void)pool_.release();
    closed_ = true;
  }
  if (closed_ && !pool_) return;
  const Entry entry(*this);  // a second close() at once would free what the first one waits for
  closed_ = true;  // an interrupted close leaves a closed pool; the next close() goes on with it
  stop(true);
}

// Ends the threads, each after the step it is in, and frees everything but what batches hold.
void PoolObject::stop(bool interruptible) {
  if (processes_) processes_->kill();  // whoever could wait for them has done so
  pool_->ask_to_stop();
  // A killed process ends at once, unless a driver or a debugger holds it: then it is left to them.
  const auto patience = Clock::now() + kKillPatience;
  while (!pool_->stopped() && !(processes_ && Clock::now() > patience)) {
    {
      const nb::gil_scoped_release release;
      pool_->wait_stopped(kSignalInterval);
    }
    if (interruptible && PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  output_.reset();
  input_.reset();
  processes_ = nullptr;
  pool_.reset();  // with the envs in it
  python_.reset();
  pending_.reset();
}

// ---- the garbage collector ---------------------------------------------------------------------

int PoolObject::traverse(visitproc visit, void* arg) const {
  Py_VISIT(on_rows_.ptr());
  Py_VISIT(on_attention_.ptr());
  Py_VISIT(show_step_.ptr());
  Py_VISIT(show_reset_.ptr());
  if (pending_) {
    Py_VISIT(pending_->result.ptr());
    Py_VISIT(pending_->extras.ptr());
  }
  return python_ && pool_ ? python_->traverse(visit, arg) : 0;
}

void PoolObject::clear_references() {
  on_rows_ = nb::object();
  on_attention_ = nb::object();
  pending_.reset();
  if (python_ && pool_) python_->clear_references();
}

}  // namespace stepmill
