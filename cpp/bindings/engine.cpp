#include "bindings/python/numpy_api.h"

#include "bindings/engine_use.h"

#include <algorithm>
#include <thread>

#include "bindings/python/values.h"
#include "bindings/xla/registry.h"
#include "core/memory/cuda_page_lock.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

using std::chrono::nanoseconds;

// The user's timeout in seconds; nullopt for None and for longer than anyone waits.
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

[[noreturn]] void refuse_to_wait(double seconds, std::int32_t expected) {
  raise("RecvTimeoutError",
        "recv(timeout=" + text_of(nb::repr(nb::float_(seconds))) + "): expected " + std::to_string(expected) +
            " envs within that time, but the batch is not complete. They stay in flight: call recv() again");
}

std::optional<Clock::time_point> end_of(std::optional<double> timeout) {
  return timeout ? std::optional(Clock::now() + interval_of(*timeout)) : std::nullopt;
}

}  // namespace

// Refuses a second call.
void Engine::go_inside() {
  const auto self = static_cast<std::uintptr_t>(PyThread_get_thread_ident());
  std::uintptr_t other = 0;
  if (inside_.compare_exchange_strong(other, self, std::memory_order_acquire)) return;
  raise("ConcurrentUseError",
        other == self ? "this thread is already inside this pool: neither an env nor a signal handler can use the pool "
                        "that runs it. Wait until the call has returned"
                      : "another thread is inside this pool: a pool serves one thread at a time. Use a lock, or one "
                        "pool per thread");
}

Engine::Engine(nb::object host, nb::handle observation_tree, nb::handle action_tree, bool has_object_actions, int bounds,
               const std::vector<std::uint64_t>& seeds)
    : host_object_(std::move(host)),
      host_(nb::cast<Host&>(host_object_)),
      has_object_actions_(has_object_actions),
      players_(pool().spec(), pool().num_envs()),
      counters_(pool().counters()) {
  input_.emplace(pool(), players_, TreeNode(action_tree), static_cast<Bounds>(bounds));
  output_.emplace(pool(), players_, TreeNode(observation_tree));
  set(counters_->pool().made, read_ticks());
  for (std::int32_t env = 0; env < pool().num_envs(); ++env) {
    all_envs_.push_back(env);
    sm_reset_request& request = pool().table().reset_request(env);
    request.seed = seeds[static_cast<std::size_t>(env)];
    request.has_seed = 1;
  }
}

Engine::~Engine() = default;

void Engine::check_usable() { const Use use(*this); }

nb::object Engine::use(nb::handle function, nb::args args) {
  const Use use(*this);
  return owned(PyObject_CallObject(function.ptr(), args.ptr()));
}

bool Engine::wait_until_left(double most) const {
  const nb::gil_scoped_release release;
  const auto end = Clock::now() + interval_of(most);
  // Polled: otherwise every ordinary call would have to wake a waiting thread when it leaves.
  while (inside_.load(std::memory_order_acquire) != 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return inside_.load(std::memory_order_acquire) == 0;
}

// ---- send and recv -----------------------------------------------------------------------------

std::vector<std::int32_t> Engine::in_flight_ids() const {
  std::vector<std::int32_t> out;
  for (std::int32_t env = 0; !host_.has_ended() && env < pool().num_envs(); ++env)
    if (pool().in_flight(env) ||
        (pending_ && std::find(last_ids_.begin(), last_ids_.end(), env) != last_ids_.end()))
      out.push_back(env);
  return out;
}

std::vector<std::pair<std::uint64_t, bool>> Engine::seeds(const std::vector<std::int32_t>& envs) {
  const Use use(*this);
  std::vector<std::pair<std::uint64_t, bool>> out;
  for (const std::int32_t env : envs) {
    const sm_reset_request& request = pool().table().reset_request(env);
    // The thread that steps an env clears `has_seed`, so we read it only while no thread does.
    const bool waits = !(host_.runs_beside_the_caller() && pool().in_flight(env)) && request.has_seed != 0;
    out.emplace_back(request.seed, waits);
  }
  return out;
}

void Engine::send(nb::handle action, nb::handle env_id, nb::handle objects) {
  const Use use(*this, "send");
  start(read_action(action, env_id, objects, pool().is_async() ? last_ids_ : all_envs_), false, false);
}

nb::object Engine::recv(nb::handle timeout, nb::handle at_least) {
  const Use use(*this, "recv");
  const std::optional<double> seconds = read_timeout(timeout);
  const std::optional<int> enough = read_at_least(at_least);
  if (pending_) return complete(false);
  if (pool().in_flight_count() == 0)
    raise("NothingInFlightError",
          "recv() with nothing in flight would wait forever: send() actions or async_reset() first");
  if (!enough) {
    wait(seconds);
    return finish(false);
  }
  const bool any = replay_ && !pool().gathering() ? wait_in_order(*enough, seconds.has_value())
                                                  : ready_some(pool().options().batch_size, *enough, timeout, false);
  return any ? finish(false) : finish_without_rows();
}

std::optional<int> Engine::read_at_least(nb::handle given) {
  if (given.is_none()) return std::nullopt;
  const int most = pool().options().batch_size;
  const Py_ssize_t rows = PyNumber_AsSsize_t(given.ptr(), nullptr);
  const bool failed = PyErr_Occurred() != nullptr;
  forget_error();
  if (failed || rows < 0 || rows > most)
    raise("InputError", "recv(at_least=" + text_of(nb::repr(given)) + "): expected 0 to batch_size=" + std::to_string(most) +
                            ", or None for a whole batch");
  if (!pool().is_async())
    raise("UsageError", "recv(at_least=" + std::to_string(rows) +
                            ") is for async pools: here batch_size=num_envs, and a batch has a row for every env that was sent to");
  return static_cast<int>(rows);
}

nb::object Engine::recv_some(int enough, int at_least, nb::handle timeout, bool steps_only) {
  const Use use(*this);
  if (pending_) {
    read_timeout(timeout);
    return complete(false);
  }
  if (replay_ && pool().in_flight_count() != 0) {
    wait(std::nullopt);
    return finish(false);
  }
  return ready_some(enough, at_least, timeout, steps_only) ? finish(false) : nb::none();
}

// Waits for rows as `recv_some` and `ParcelServer::exchange` say. Whether there is a batch to take.
bool Engine::ready_some(int enough, int at_least, nb::handle timeout, bool steps_only, std::optional<double> patience) {
  const std::optional<double> seconds = read_timeout(timeout);
  if (pool().in_flight_count() == 0) return false;
  if (!pool().gathering()) {
    bool any = wait_for_rows(enough, steps_only, end_of(seconds));
    if (!any && at_least > 0)
      any = patience ? wait_patiently(at_least, *patience) : wait_for_rows(at_least, steps_only, std::nullopt);
    if (!any && !wait_for_rows(1, false, Clock::time_point::min())) return false;
    if (!pool().ready()) pool().seal_early();
  }
  return wait_until(std::nullopt);
}

// Waits as long as one row follows the other in time. Whether so many were ready.
bool Engine::wait_patiently(int rows, double patience) {
  if (wait_for_rows(rows, false, end_of(patience))) return true;  // most often, and without a look at each row
  for (int row = 1; row <= rows; ++row)
    if (!wait_for_rows(row, false, end_of(row == 1 ? 10 * patience : patience))) return false;
  return true;
}

// Whether that many rows of the next batch were ready in time.
bool Engine::wait_for_rows(int rows, bool steps_only, std::optional<Clock::time_point> end) {
  struct Content {
    Pool& pool;
    ~Content() { pool.be_content_with(0); }
  } const content{pool()};
  pool().be_content_with(std::max(rows, 1), steps_only);
  return wait_until(end);
}

nb::object Engine::step(nb::handle action, nb::handle env_id) {
  const Use use(*this, "step");
  start(read_action(action, env_id, nb::none(), pool().is_async() ? last_ids_ : all_envs_), false, true);
  if (pending_) return complete(false);  // a batch of other envs, in async mode: it was first
  wait(std::nullopt);
  return finish(false);
}

nb::object Engine::step_all(nb::handle action) {
  const Use use(*this, "step");
  if (in_flight_count() != 0)
    raise("InFlightError", "envs are in flight: all of them can be stepped together only if none is");
  start(read_action(action, nb::none(), nb::none(), all_envs_), true, true);
  wait(std::nullopt);
  return finish(false);
}

// Checks an action, gives it to its envs, and returns them. If anything is wrong, no env gets any of it. `otherwise`: the
// envs if the user names none.
std::span<const std::int32_t> Engine::read_action(nb::handle action, nb::handle env_id, nb::handle objects,
                                                  std::span<const std::int32_t> otherwise) {
  const auto envs = input_->read(action, env_id, otherwise);
  refuse_pending(envs);
  nb::object packed = nb::borrow(objects);
  if (has_object_actions_ && objects.is_none()) packed = host_object_.attr("pack_actions")(action, list_of(envs));
  host_.settle(envs);
  if (!packed.is_none())
    for (const std::int32_t env : envs)
      if (nb::object value = nb::borrow(PyDict_GetItem(packed.ptr(), nb::int_(env).ptr())); value.is_valid())
        host_.give_objects(env, value);
  was_sent_ = true;
  return envs;
}

void Engine::start(std::span<const std::int32_t> envs, bool gather, bool recv_follows) {
  pool().send(envs, gather, recv_follows);
  set(counters_->pool().in_flight, static_cast<std::uint64_t>(pool().in_flight_count()));
  if (host_.wants_attention()) host_.attend();
}

// Waits until the batch is ready. Ctrl-C raises and leaves everything in flight.
void Engine::wait(std::optional<double> timeout) {
  const int whole = pool().options().batch_size;
  if (replay_ && !pool().gathering()) {
    if (!wait_in_order(whole, timeout.has_value())) refuse_to_wait(*timeout, std::min(whole, pool().in_flight_count()));
    return;
  }
  if (wait_until(end_of(timeout))) return;
  if (recorder_) recorder_->write_timeout();
  refuse_to_wait(*timeout, pool().expected());
}

// Waits until all rows of the next recorded batch are kept. Whatever is ready is kept; envs run as they always do. Whether
// it has any: else the time was over there.
bool Engine::wait_in_order(int at_least, bool has_timeout) {
  const std::int32_t most = std::min(pool().options().batch_size, pool().in_flight_count());
  const auto envs = replay_->next(std::min(at_least, most), most, has_timeout);
  if (envs.empty()) {
    replay_->pass_timeout();
    return false;
  }
  while (!std::all_of(envs.begin(), envs.end(), [this](std::int32_t env) { return replay_->has(env); })) {
    ready_some(1, 1, nb::none(), false);
    faults_.clear();
    const Batch batch = pool().take_batch(faults_);
    nb::object notes = take_notes(batch);
    replay_->keep(batch, std::move(notes), std::exchange(faults_, {}));
  }
  replay_->check_failures();
  return true;
}

// The same; returns false if the time is over before the batch is ready.
bool Engine::wait_until(std::optional<Clock::time_point> end) {
  WaitTime waiting(*counters_);
  bool has_looked = !host_.has_to_fetch();
  while (!pool().ready()) {
    if (host_.wants_attention()) host_.attend();
    if (host_.is_brief()) {  // then the interpreter lock is kept
      pool().work_or_wait(nanoseconds(0));
      continue;
    }
    waiting.begin(host_.runs_beside_the_caller() ? CallerState::kWaiting : CallerState::kStepping);
    host_.report_slow();
    nanoseconds most = kSignalInterval;
    if (end) {
      const auto now = Clock::now();
      if (*end <= now && has_looked) return false;
      most = *end <= now ? nanoseconds(0) : std::min<nanoseconds>(most, *end - now);
    }
    host_.work(most);
    has_looked = true;
    look_for_signals();
  }
  return true;
}

void Engine::count(const Batch& batch) {
  PoolRecord& counts = counters_->pool();
  add_to(counts.batches, 1);
  add_to(counts.steps, static_cast<std::uint64_t>(batch.rows));
  set(counts.in_flight, static_cast<std::uint64_t>(pool().in_flight_count()));
  set(counts.batches_held, pool().batches_held());
  set(counts.memory_bytes, pool().memory());
  if (!batch.any_ended) return;
  std::uint64_t ended = 0;
  for (std::int32_t row = 0; row < batch.rows; ++row) ended += batch.ended[row];
  add_to(counts.episodes, ended);
}

nb::object Engine::finish(bool is_reset) {
  take_pending();
  return complete(is_reset);
}

void Engine::take_pending() {
  nb::object notes;
  Batch batch = take_rows(notes);
  keep_pending(std::move(batch), notes);
}

// The ready batch, with its notes and `faults_`. The interpreter lock is needed only where the host makes notes.
Batch Engine::take_rows(nb::object& notes) {
  const bool has_order = !pool().gathering();  // otherwise the caller has chosen it
  faults_.clear();
  Batch batch = replay_ && has_order ? replay_->take(faults_, notes) : pool().take_batch(faults_);
  last_ids_.assign(batch.env_id, batch.env_id + batch.rows);
  count(batch);
  if (!replay_ || !has_order) notes = take_notes(batch);
  if (recorder_) recorder_->set_batch(std::span(last_ids_).first(has_order ? last_ids_.size() : 0), faults_);
  return batch;
}

// The result of a `recv` whose time is over, and which is content with nothing.
nb::object Engine::finish_without_rows() {
  Batch batch = KeptRows(pool()).take({});
  faults_.clear();
  last_ids_.clear();
  if (recorder_) recorder_->set_timeout();
  try {
    keep_pending(std::move(batch), nb::object());
    return complete(false);
  } catch (...) {
    pending_.reset();  // the next `recv` may want rows
    throw;
  }
}

void Engine::keep_pending(Batch batch, const nb::object& notes) {
  nb::object extras = collect_extras(notes);
  const bool is_looked_at = watching_ && note(batch);
  pending_.emplace(Pending{.result = output_->step_result(std::move(batch), faults_),
                           .extras = std::move(extras),
                           .is_looked_at = is_looked_at});
}

nb::object Engine::complete(bool as_reset) {
  nb::object error;
  nb::object result = give_away(as_reset, error);
  if (error.is_none()) return result;
  raise_again(error);
}

// Gives the batch away, and the error that is to be raised with it, or None. If a signal handler or Ctrl-C raises on the
// way, it stays where it is. `as_reset`: in the form that `reset` returns; `recv` returns the rows of a reset in the form
// of steps too.
nb::object Engine::give_away(bool as_reset, nb::object& error) {
  if (!as_reset) show_pending();
  nb::object result = pending_->is_shown ? pending_->result : shown(as_reset);
  // If we left a signal to Python, it would run the handler after we have returned and, if that raises, drop the result.
  look_for_signals();
  if (recorder_) recorder_->write();
  error = std::move(pending_->error);
  pending_.reset();
  return result;
}

// The batch is then in the form that `recv` returns. What it was made from goes now: this takes time.
void Engine::show_pending() {
  if (pending_->is_shown) return;
  pending_->result = shown(false);
  pending_->extras.reset();
  pending_->is_shown = true;
}

// Lets Python add what does not fit in arrays, once.
void Engine::add_extras() {
  if (!pending_->extras.is_valid()) return;
  nb::object finished = host_object_.attr("finish_rows")(pending_->result, pending_->extras[0], pending_->extras[1]);
  pending_->result = finished[0];
  pending_->error = finished[1];
  pending_->extras.reset();
}

// Lets Python add what does not fit in arrays, and the view convert the result.
nb::object Engine::shown(bool as_reset) {
  add_extras();
  nb::object result = pending_->result;
  const nb::object error = pending_->error;
  if (std::exchange(pending_->is_looked_at, false) && watching_) {
    const nb::object look = watching_->look;  // it may end the watching
    look(result, error);
  }
  if (as_reset) result = nb::make_tuple(result[0], result[4]);
  const nb::object& show = as_reset ? show_reset_ : show_step_;
  if (!show.is_none()) result = owned(PyObject_CallOneArg(show.ptr(), result.ptr()));
  if (!error.is_none()) error.attr("batch") = result;
  return result;
}

void Engine::show_as(nb::object step, nb::object reset, bool players) {
  if (output_) output_->show_players(players);
  show_step_ = std::move(step);
  show_reset_ = std::move(reset);
}

nb::object Engine::plainly(nb::handle function, nb::args args) {
  if (is_plain_)
    raise("ConcurrentUseError", "a rollout of this pool is under way: neither its policy nor another thread can start one");
  { const Use use(*this, "rollout"); }
  // Set back in any case, with no point in between where a signal handler could raise.
  struct Plain {
    Engine& engine;
    nb::object step, reset;
    bool players;
    explicit Plain(Engine& of)
        : engine(of), step(of.show_step_), reset(of.show_reset_), players(of.output_ && of.output_->shows_players()) {
      engine.is_plain_ = true;
      engine.show_as(nb::none(), nb::none(), false);
    }
    ~Plain() {
      engine.show_as(std::move(step), std::move(reset), players);
      engine.is_plain_ = false;
    }
  } const plain(*this);
  return owned(PyObject_CallObject(function.ptr(), args.ptr()));
}

// Writes a batch into the book; whether it is time for a closer look.
bool Engine::note(const Batch& batch) {
  WatchBook& book = *watching_->book;
  book.add(batch, pool().spec().max_num_players, pool().options().table.reward_is_float32 != 0, faults_);
  const auto now = Clock::now();
  if (now < watching_->next_look && faults_.empty()) return false;
  watching_->next_look = now + nanoseconds(book.look_every_ns.load(std::memory_order_relaxed));
  return true;
}

void Engine::lock_pages(int gpu) {
  try {
    pool().lock_pages(std::make_shared<CudaPageLock>(gpu));
  } catch (const std::runtime_error& error) {
    raise("UnsupportedError", std::string("the memory of the pool cannot be locked for copies to a GPU: ") + error.what());
  }
}

void Engine::refuse_pending(std::span<const std::int32_t> envs) const {
  if (!pending_) return;
  for (const std::int32_t env : envs)
    if (std::find(last_ids_.begin(), last_ids_.end(), env) != last_ids_.end())
      raise("InFlightError", "env " + std::to_string(env) +
                                 " is in flight: the call that should have returned its result was interrupted. Call "
                                 "recv() to get it");
}

// What Python adds to a batch: its notes and its faults. Most batches have none, and then the object is invalid.
nb::object Engine::take_notes(const Batch& batch) {
  nb::object notes = host_.take_notes(batch, faults_);
  if (!kept_notes_.empty()) notes = take_kept_notes(batch, std::move(notes));
  if (!faults_.empty()) add_to(counters_->pool().failures, faults_.size());
  return notes;
}

// Rows that were put back come before those that followed.
nb::object Engine::take_kept_notes(const Batch& batch, nb::object others) {
  nb::object notes;
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    auto kept = kept_notes_.extract(batch.env_id[row]);
    if (kept.empty()) continue;
    nb::object note = owned(PySequence_List(kept.mapped().ptr()));
    note[0] = row;
    add_to_list(notes, owned(PyList_AsTuple(note.ptr())));
  }
  if (!notes.is_valid()) return others;
  if (others.is_valid()) notes.attr("extend")(others);
  return notes;
}

nb::object Engine::collect_extras(const nb::object& notes) const {
  if (!notes.is_valid() && faults_.empty()) return {};
  nb::list faults;
  for (const Fault& f : faults_) faults.append(fault_tuple(f));
  return nb::make_tuple(notes.is_valid() ? notes : nb::list(), faults);
}

// ---- the order of results ----------------------------------------------------------------------

void Engine::check_unused(const char* what) {
  const Use use(*this, what);
  if (recorder_ || replay_)
    raise("UsageError", std::string(what) + ": the order of this pool is recorded or replayed already");
  if (was_sent_)
    raise("UsageError", std::string(what) + ": envs were sent actions or resets before. Call it first, right after make()");
}

void Engine::record_order(int file, std::int64_t offset, bool wide, const std::string& name) {
  check_unused("record_order");
  recorder_ = std::make_unique<OrderRecorder>(OrderFile{Descriptor::duplicate(file), name, offset, wide});
}

void Engine::replay_order(int file, std::int64_t offset, bool wide, const std::string& name) {
  check_unused("replay_order");
  replay_ = std::make_unique<OrderReplay>(OrderFile{Descriptor::duplicate(file), name, offset, wide}, pool());
}

void Engine::count_elsewhere(std::uint64_t steps, std::uint64_t episodes, std::uint64_t failures) {
  const Use use(*this);
  PoolRecord& counts = counters_->pool();
  add_to(counts.steps, steps);
  add_to(counts.episodes, episodes);
  add_to(counts.failures, failures);
  if (pool().is_async()) last_ids_ = all_envs_;
}

// ---- ending ------------------------------------------------------------------------------------

// An interrupted close leaves a closed pool; the next close() continues.
void Engine::close() {
  if (host_.forked()) inside_.store(0, std::memory_order_release);  // a thread that is inside is so in the parent
  const Entry entry(*this);  // a concurrent close() would free what this one waits for
  closed_ = true;
  output_.reset();
  input_.reset();
  pending_.reset();
  recorder_.reset();
  replay_.reset();
  kept_notes_.clear();
  sessions_.reset();
  host_object_.attr("close")();
}

// ---- the garbage collector ---------------------------------------------------------------------

int Engine::traverse(visitproc visit, void* arg) const {
  Py_VISIT(xla_error_.ptr());
  Py_VISIT(host_object_.ptr());
  Py_VISIT(show_step_.ptr());
  Py_VISIT(show_reset_.ptr());
  Py_VISIT(sessions_.ptr());
  if (watching_) {
    Py_VISIT(watching_->book_object.ptr());
    Py_VISIT(watching_->look.ptr());
  }
  if (pending_) {
    Py_VISIT(pending_->result.ptr());
    Py_VISIT(pending_->error.ptr());
    Py_VISIT(pending_->extras.ptr());
  }
  for (const auto& [env, note] : kept_notes_) Py_VISIT(note.ptr());
  return replay_ ? replay_->traverse(visit, arg) : 0;
}

void Engine::clear_references() {
  if (xla_) xla_->give_up();  // before it is gone: programs that are inside use it
  xla_.reset();
  xla_error_ = nb::none();
  pending_.reset();
  kept_notes_.clear();
  watching_.reset();
  replay_.reset();
  sessions_.reset();
  show_step_ = show_reset_ = nb::none();
}

}  // namespace stepmill
