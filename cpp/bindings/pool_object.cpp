#include "bindings/numpy_api.h"

#include "bindings/pool_object.h"

#include <cmath>
#include <cstring>

#include "bindings/errors.h"
#include "bindings/forked.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

using std::chrono::nanoseconds;

// How long a wait goes on before it looks whether the interpreter has a signal for us. A signal in
// the waiting thread ends the wait at once; this is for one that another thread was given.
constexpr auto kSignalInterval = std::chrono::milliseconds(50);

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

// Whose observation is being written: for messages.
thread_local int owner_env = 0;

}  // namespace

// Refuses a second thread.
class PoolObject::Entry {
 public:
  explicit Entry(PoolObject& pool) : pool_(pool) {
    if (pool.in_use_.exchange(true, std::memory_order_acquire))
      raise("ConcurrentUseError",
            "another thread is inside this pool: a pool serves one thread at a time. Use a lock, or "
            "a pool for each thread");
  }
  ~Entry() { pool_.in_use_.store(false, std::memory_order_release); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  PoolObject& pool_;
};

// Guards a method: refuses a closed pool, a forked child and a second thread.
class PoolObject::Use {
 public:
  explicit Use(PoolObject& pool) : entry_(may_be_used(pool)) {}

 private:
  static PoolObject& may_be_used(PoolObject& pool) {
    if (pool.closed_) raise("ClosedError", "the pool is closed: make a new one");
    if (pool.forked())
      raise("ForkedError",
            "the pool was made before a fork and belongs to the parent process: its threads do not "
            "exist here. Make a pool in this process instead");
    return pool;
  }

  const Entry entry_;
};

PoolObject::PoolObject(Arguments a)
    : pool_(std::make_unique<Pool>(a.table, a.configs, std::move(a.spec), a.options)),
      observation_tree_(a.observation_tree),
      action_tree_(a.action_tree),
      table_(a.table),
      on_faults_(std::move(a.on_faults)),
      generation_(process_generation()) {
  input_.emplace(*pool_, std::move(a.action_tree), a.bounds);
  output_.emplace(*pool_, std::move(a.observation_tree));
  leaf_offset_.push_back(0);
  for (const Leaf& leaf : pool_->spec().observation)  // each aligned for any number
    leaf_offset_.push_back((leaf_offset_.back() + static_cast<std::size_t>(leaf.row_bytes()) + 7) / 8 * 8);
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

bool PoolObject::forked() const { return generation_ != process_generation(); }

// ---- send and recv -----------------------------------------------------------------------------

// Whom an action without ids is for: every env, or those of the last batch.
std::span<const std::int32_t> PoolObject::implied_envs() const {
  return pool_->is_async() ? last_ids_ : all_envs_;
}

void PoolObject::send(nb::handle action, nb::handle env_id) {
  const Use use(*this);
  pool_->send(input_->read(action, env_id, implied_envs()), false, false);
}

nb::object PoolObject::recv(nb::handle timeout) {
  const Use use(*this);
  const std::optional<double> seconds = read_timeout(timeout);
  require_something_in_flight();
  wait(seconds);
  return finish(false);
}

nb::object PoolObject::step(nb::handle action, nb::handle env_id) {
  const Use use(*this);
  pool_->send(input_->read(action, env_id, implied_envs()), false, true);
  wait(std::nullopt);
  return finish(false);
}

void PoolObject::require_something_in_flight() const {
  if (pool_->in_flight_count() == 0)
    raise("NothingInFlightError",
          "recv() with nothing in flight would wait forever: send() actions or async_reset() first");
}

// Waits until the batch is ready. Ctrl-C raises and leaves everything in flight.
void PoolObject::wait(std::optional<double> timeout) {
  std::optional<Clock::time_point> end;
  if (timeout) end = Clock::now() + nanoseconds(static_cast<std::int64_t>(*timeout * 1e9));
  while (!pool_->ready()) {
    if (pool_->is_brief()) {  // then the interpreter lock is kept
      pool_->work_or_wait(nanoseconds(0));
      continue;
    }
    nanoseconds most = kSignalInterval;
    if (end) {
      const auto left = *end - Clock::now();
      if (left <= nanoseconds(0))
        raise("RecvTimeoutError",
              "recv(timeout=" + std::to_string(*timeout) + "): expected " +
                  std::to_string(pool_->expected()) +
                  " envs within that time, but the batch is not complete. They stay in flight: call "
                  "recv() again");
      most = std::min<nanoseconds>(most, left);
    }
    {
      const nb::gil_scoped_release release;
      const auto slice = Clock::now() + most;
      do pool_->work_or_wait(most);
      while (!pool_->ready() && Clock::now() < slice);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::object PoolObject::finish(bool is_reset) {
  faults_.clear();
  Batch batch = pool_->take_batch(faults_);
  const sm_columns& c = batch.buffer->columns.c;
  if (pool_->is_async()) last_ids_.assign(c.env_id, c.env_id + batch.rows);
  batches_ += 1;
  steps_ += static_cast<std::uint64_t>(batch.rows);
  if (batch.any_ended)
    for (std::int32_t row = 0; row < batch.rows; ++row) episodes_ += c.ended[row];
  nb::object result = is_reset ? output_->reset_result(std::move(batch), faults_)
                               : output_->step_result(std::move(batch), faults_);
  if (faults_.empty()) return result;
  nb::list faults;
  for (const Fault& f : faults_)
    faults.append(nb::make_tuple(f.env, f.phase, f.episode, f.step, f.failures, to_text(f.message)));
  return on_faults_(result, faults);
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
  ResetOrder order{env_id.is_none() ? std::span<const std::int32_t>(all_envs_) : input_->read_ids(env_id),
                   read_options(options),
                   {}};
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

void PoolObject::queue_reset(const ResetOrder& order, bool gather, const std::uint8_t* mask) {
  const auto envs = order.envs;
  for (const std::int32_t env : envs)
    if (pool_->in_flight(env))
      raise("InFlightError", "env " + std::to_string(env) +
                                 " is in flight: recv() its result before it is reset, or reset() all");
  if (pool_->is_async() ? gather && pool_->gathering() : pool_->in_flight_count() != 0)
    raise("InFlightError", "reset of chosen envs while others are in flight: recv() them first");
  pool_->make_room(static_cast<std::int32_t>(envs.size()), gather);
  // Nothing can fail from here on.
  for (std::size_t i = 0; i < envs.size(); ++i) {
    if (mask && !mask[i]) {
      pool_->table().state(envs[i]).command = SM_OBSERVE;
      continue;
    }
    sm_reset_request& to = pool_->table().reset_request(envs[i]);
    to.option_mask = order.options.option_mask;
    std::memcpy(to.option, order.options.option, sizeof(order.options.option));
    if (!order.seeds.empty() && order.seeds[i]) {
      to.seed = *order.seeds[i];
      to.has_seed = 1;
    }
    pool_->table().state(envs[i]).command = SM_RESET;
  }
  pool_->send(envs, gather, gather);
}

void PoolObject::send_reset(nb::handle env_id, nb::handle seeds, nb::handle options) {
  const Use use(*this);
  queue_reset(read_reset(env_id, seeds, options), false, nullptr);
}

nb::object PoolObject::reset(nb::handle env_id, nb::handle seeds, nb::handle options, nb::handle mask) {
  const Use use(*this);
  // A mask comes checked from the views: a bool for every env.
  const auto* chosen =
      mask.is_none() ? nullptr
                     : static_cast<const std::uint8_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(mask.ptr())));
  const ResetOrder order = read_reset(env_id, seeds, options);  // first: a bad reset drops nothing
  if (env_id.is_none() && !chosen) drain();
  queue_reset(order, true, chosen);
  wait(std::nullopt);
  return finish(true);
}

// Waits for everything in flight and drops it: what a reset of all envs makes void.
void PoolObject::drain() {
  while (pool_->in_flight_count() != 0) {
    wait(std::nullopt);
    Batch batch = pool_->take_batch(faults_);
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
  pool_->ask_to_stop();
  while (!pool_->stopped()) {
    {
      const nb::gil_scoped_release release;
      pool_->wait_stopped(kSignalInterval);
    }
    if (interruptible && PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  output_.reset();
  input_.reset();
  pool_.reset();
}

nb::object PoolObject::stats() const {
  nb::dict out;
  out["batches"] = batches_;
  out["steps"] = steps_;
  out["episodes"] = episodes_;
  if (pool_) {
    out["step_cost_ns"] = pool_->step_cost_ns();
    out["threads_started"] = pool_->threads_started();
    out["in_flight"] = pool_->in_flight_count();
    out["batches_held"] = pool_->batches_held();
    out["memory_bytes"] = pool_->memory();
  }
  return out;
}

// ---- Python envs -------------------------------------------------------------------------------

int PoolObject::next_env() {
  if (next_env_ < 0) next_env_ = pool_->next_env();
  return next_env_;
}

bool PoolObject::ready() const { return pool_->ready(); }

nb::object PoolObject::take_result() {
  const Use use(*this);
  return finish(false);
}

void PoolObject::queue_external_reset(nb::handle env_id, bool gather) {
  const Use use(*this);
  queue_reset(read_reset(env_id, nb::none(), nb::none()), gather, nullptr);
}

// The action of an env as its `step` takes it: scalars for Discrete spaces, copies of arrays else.
nb::object PoolObject::action_of(int env) const {
  return owned(action_tree_.build([&](int index) -> PyObject* {
    const Leaf& leaf = pool_->spec().action[static_cast<std::size_t>(index)];
    std::byte* row = pool_->table().action(index) + env * leaf.row_bytes();
    std::vector<npy_intp> shape(leaf.shape.begin(), leaf.shape.end());
    PyArray_Descr* type = PyArray_DescrFromType(numpy_type(leaf.dtype));
    if (leaf.kind == LeafKind::kDiscrete) {
      PyObject* scalar = PyArray_Scalar(row, type, nullptr);
      Py_DECREF(type);
      return scalar;
    }
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, type, static_cast<int>(shape.size()),
                                           shape.data(), nullptr, nullptr, 0, nullptr);
    if (array)
      std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)), row, static_cast<std::size_t>(leaf.row_bytes()));
    return array;
  }));
}

void PoolObject::check_observation(int env, nb::handle observation) {
  const Use use(*this);
  convert_observation(observation_tree_, observation, scratch(0), env, "");
}

void PoolObject::write_row(int env, nb::handle observation, double reward, bool terminated,
                           bool truncated, int elapsed, bool ended, double episode_return,
                           int episode_length, bool needs_reset, nb::handle final_observation) {
  const Use use(*this);
  convert_observation(observation_tree_, observation, scratch(0), env, "");
  if (!final_observation.is_none())
    convert_observation(observation_tree_, final_observation, scratch(1), env, "");
  // Nothing can fail from here on, so that a claimed row is always filled.
  const sm_place place = pool_->take_place(env);
  const sm_columns& c = *place.columns;
  const std::int64_t row = place.row;
  copy_observation(scratch(0), c.observation, row);
  if (!final_observation.is_none()) copy_observation(scratch(1), c.final_observation, row);
  if (pool_->options().table.reward_is_float32)
    static_cast<float*>(c.reward)[row] = static_cast<float>(reward);
  else
    static_cast<double*>(c.reward)[row] = reward;
  c.env_id[row] = env;
  c.terminated[row] = terminated;
  c.truncated[row] = truncated;
  c.ended[row] = ended;
  c.elapsed_step[row] = elapsed;
  c.episode_return[row] = episode_return;
  c.episode_length[row] = episode_length;
  pool_->table().state(env).phase = needs_reset ? SM_ENDED : SM_LIVE;
  pool_->finish_row(env, ended);
  next_env_ = -1;
}

std::byte* PoolObject::scratch(int observation) {
  scratch_.resize(2 * leaf_offset_.back());  // in the first call only
  return scratch_.data() + static_cast<std::size_t>(observation) * leaf_offset_.back();
}

void PoolObject::copy_observation(const std::byte* from, void* const* columns, std::int64_t row) const {
  const auto& leaves = pool_->spec().observation;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    std::memcpy(static_cast<std::byte*>(columns[i]) + row * leaves[i].row_bytes(), from + leaf_offset_[i],
                static_cast<std::size_t>(leaves[i].row_bytes()));
}

// Checks the leaves of an observation and writes them to where `leaf_offset_` has them, behind `to`.
void PoolObject::convert_observation(const TreeNode& node, nb::handle value, std::byte* to, int env,
                                     const std::string& path) {
  const auto reject = [&](const std::string& expected) {
    raise("ObservationError", "observation" + path + " of env " + std::to_string(env) + ": expected " +
                                  expected + ", got " + describe_object(value));
  };
  if (node.is_leaf()) {
    if (node.leaf() < 0) return;
    const auto index = static_cast<std::size_t>(node.leaf());
    const std::string name = "observation" + path;
    const std::int32_t rows[1] = {0};
    LeafInput input{pool_->spec().observation[index], to + leaf_offset_[index], rows, 1};
    input.check_values = false;
    input.batched = false;
    input.error = "ObservationError";
    input.what = name.c_str();
    owner_env = env;
    input.owner = [](std::int64_t) { return "env " + std::to_string(owner_env); };
    write_leaf(value, input);
    return;
  }
  const auto& children = node.children();
  if (node.is_dict()) {
    for (std::size_t i = 0; i < children.size(); ++i) {
      nb::object child;  // held, since user code that runs later may change the dict
      if (PyDict_Check(value.ptr())) child = nb::borrow(PyDict_GetItemWithError(value.ptr(), node.keys()[i].ptr()));
      if (!child.is_valid()) forget_error();
      const std::string name = text_of(nb::repr(node.keys()[i]));
      if (!child.is_valid()) reject("a dict with the key " + name);
      convert_observation(children[i], child, to, env, path + "[" + name + "]");
    }
    return;
  }
  nb::object items = nb::steal(PySequence_Tuple(value.ptr()));  // its own: a list may change while it is read
  if (!items.is_valid() || PyTuple_GET_SIZE(items.ptr()) != static_cast<Py_ssize_t>(children.size())) {
    forget_error();
    reject("a tuple of " + std::to_string(children.size()) + " parts");
  }
  for (std::size_t i = 0; i < children.size(); ++i)
    convert_observation(children[i], PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)), to, env,
                        path + "[" + std::to_string(i) + "]");
}

}  // namespace stepmill
