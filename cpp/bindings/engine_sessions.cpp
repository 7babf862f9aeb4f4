#include "bindings/python/numpy_api.h"

#include "bindings/engine_sessions.h"

#include "bindings/engine_use.h"

namespace nb = nanobind;

namespace stepmill {
namespace {

// How long the caller steps envs before other tasks of its loop have their turn.
constexpr auto kSlice = std::chrono::milliseconds(1);

}  // namespace

void EngineSessions::begin(nb::object owner) {
  const Engine::Use use(engine_, "session");
  if (engine_.is_plain_)
    raise("ConcurrentUseError", "session: a rollout of this pool is under way, and its policy cannot use the pool");
  if (engine_.recorder_ || engine_.replay_)
    raise("UsageError",
          "session: the order of this pool's results is recorded or replayed, and sessions have no order that could be "
          "repeated: use another pool");
  if (engine_.in_flight_count() != 0)
    raise("InFlightError", "session: " + std::to_string(engine_.in_flight_count()) +
                               " envs are in flight: recv() or drain() their results first");
  pool().rows_event().open();
  if (pool().options().batch_size == pool().num_envs()) pool().return_as_ready(true);
  show_step_ = engine_.show_step_;
  show_reset_ = engine_.show_reset_;
  shows_players_ = engine_.output_->shows_players();
  engine_.show_as(nb::none(), nb::none(), false);
  is_put_.assign(static_cast<std::size_t>(pool().num_envs()), 0);
  engine_.sessions_ = std::move(owner);
}

void EngineSessions::end() {
  const Engine::Use use(engine_);
  start(resets_);
  start(steps_);
  engine_.drain();
  pool().look_again(true);
  pool().return_as_ready(pool().options().as_ready);
  engine_.show_as(std::move(show_step_), std::move(show_reset_), shows_players_);
  engine_.last_ids_.clear();
  engine_.sessions_.reset();
}

// ---- what is asked -----------------------------------------------------------------------------

void EngineSessions::put_action(std::int32_t env, nb::handle action, nb::handle batch) {
  const Engine::Use use(engine_);
  check_put(env);
  if (batch.is_none()) {
    engine_.input_->read_one(action, env);
    engine_.host_.settle({&env, 1});
  } else {
    engine_.read_action(batch, nb::none(), nb::none(), {&env, 1});
  }
  engine_.was_sent_ = true;
  put(env, steps_);
}

void EngineSessions::put_reset(std::int32_t env, nb::handle seed, nb::handle options) {
  const Engine::Use use(engine_);
  check_put(env);
  nb::list ids, seeds;
  ids.append(env);
  seeds.append(seed);
  const ResetOrder order = engine_.read_reset(ids, seed.is_none() ? nb::handle(Py_None) : seeds, options, nb::none());
  engine_.prepare_reset(order, false, nb::none());
  put(env, resets_);
}

// What is put down is not in flight yet.
void EngineSessions::check_put(std::int32_t env) const {
  if (env < 0 || env >= pool().num_envs()) throw nb::index_error("there is no such env");
  if (is_put_.empty()) throw std::logic_error("there are no sessions");
  if (is_put_[static_cast<std::size_t>(env)])
    raise("InFlightError", "env " + std::to_string(env) + " is in flight: its last action has no result yet");
}

bool EngineSessions::is_asked(std::int32_t env) const {
  if (engine_.host_.has_ended() || is_put_.empty()) return false;
  return is_put_[static_cast<std::size_t>(env)] || pool().in_flight(env);
}

void EngineSessions::put(std::int32_t env, std::vector<std::int32_t>& among) {
  among.push_back(env);
  is_put_[static_cast<std::size_t>(env)] = 1;
}

void EngineSessions::cancel(std::int32_t env) {
  const Engine::Use use(engine_);
  if (is_put_[static_cast<std::size_t>(env)]) {  // otherwise it would begin afterwards
    start(resets_);
    start(steps_);
  }
  if (pool().in_flight(env)) engine_.host_.cancel({&env, 1});
}

// ---- what comes --------------------------------------------------------------------------------

nb::object EngineSessions::exchange(bool rung, bool doubtful) {
  const Engine::Use use(engine_);
  pool().look_again(rung);
  if (!engine_.pending_) {
    // Apart, because the cost of a call is measured for both.
    start(resets_);
    start(steps_);
    if (doubtful) pool().doubt_counts();
    if (doubtful) engine_.host_.report_slow();
    if (engine_.host_.wants_attention()) engine_.host_.attend();
    step_here();
    engine_.host_.fetch();
    if (!has_row()) return nb::none();
    if (!pool().ready()) pool().seal_early();
    engine_.wait_until(std::nullopt);  // a moment, for rows whose slots are taken
    engine_.take_pending();
  }
  nb::object error;
  nb::object result = engine_.give_away(false, error);
  return nb::make_tuple(std::move(result), std::move(error));
}

// If there is no memory for it, it stays put down.
void EngineSessions::start(std::vector<std::int32_t>& envs) {
  if (envs.empty()) return;
  pool().send(envs, false, true);
  for (const std::int32_t env : envs) is_put_[static_cast<std::size_t>(env)] = 0;
  envs.clear();
  set(engine_.counters_->pool().in_flight, static_cast<std::uint64_t>(pool().in_flight_count()));
}

void EngineSessions::step_here() {
  const auto end = Clock::now() + kSlice;
  while (pool().needs_caller()) {
    if (engine_.host_.is_brief())
      pool().work_or_wait(std::chrono::nanoseconds(0));
    else
      engine_.host_.work(std::chrono::nanoseconds(0));
    look_for_signals();
    if (Clock::now() >= end) return;
  }
}

bool EngineSessions::has_row() {
  if (pool().in_flight_count() == 0) return false;
  pool().be_content_with(1);
  const bool has = pool().ready();
  pool().be_content_with(0);
  return has;
}

bool EngineSessions::watch() {
  const Engine::Use use(engine_);
  if (engine_.pending_ || !steps_.empty() || !resets_.empty() || pool().needs_caller()) return false;
  return pool().in_flight_count() == 0 || pool().watch_rows();
}

int EngineSessions::traverse(visitproc visit, void* arg) const {
  Py_VISIT(engine_object_.ptr());
  Py_VISIT(show_step_.ptr());
  Py_VISIT(show_reset_.ptr());
  return 0;
}

}  // namespace stepmill
