#include "bindings/python/numpy_api.h"

#include "bindings/hosts/worker_object.h"

#include "bindings/python/bytes.h"
#include "bindings/python/crash_note.h"

namespace nb = nanobind;

namespace stepmill {

WorkerObject::WorkerObject(Arguments a)
    : worker_(a.arena, a.outbox, a.rows_event, a.spec, a.plan, a.post),
      python_(std::move(a.python)),
      simulators_(std::move(a.simulators)),
      first_env_(a.post.first_env),
      envs_(python_ ? python_->take_set() : std::move(a.native)),
      read_mail_(std::move(a.read_mail)),
      write_note_(std::move(a.write_note)),
      answer_(std::move(a.answer)),
      loop_(std::move(a.loop)),
      turns_(static_cast<std::size_t>(a.post.env_count)) {
  if (a.is_loaded) surroundings_.emplace();
  if (python_)
    python_->kind().reset_after_end = [this](int env) { worker_.reset_after_end(env); };
  if (python_ && !loop_.is_none()) {
    python_->kind().may_suspend = true;
    python_->kind().episode_over = loop_.attr("episode_over");
    waiting_ = loop_.attr("waiting");
  }
}

void WorkerObject::run() {
  worker_.announce();
  while (!worker_.told_to_stop()) {
    const std::int32_t env = worker_.next();
    set_crash_env(env);
    if (env < 0) {
      {
        const nb::gil_scoped_release release;
        worker_.wait();
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      continue;
    }
    begin(env);
  }
}

// Begins what an env is asked. What it returns has to be awaited before it can go on; null: it was done.
nb::object WorkerObject::begin(std::int32_t env) {
  if (worker_.is_call(env)) {
    nb::object answer = answer_(env, to_bytes(worker_.mail(env)));
    if (!PyBytes_CheckExact(answer.ptr())) return answer;
    worker_.publish_call(env, bytes_of(answer));
    return {};
  }
  if (kept_.size() != 0) take_kept(env);
  if (python_) read_mail(env);
  return act(env);
}

void WorkerObject::read_mail(std::int32_t env) {
  if (worker_.is_reset(env)) python_->env(env).set_options(nb::none());  // drops those of a failed reset
  const auto mail = worker_.mail(env);
  if (mail.empty()) return;
  nb::object parts = read_mail_(env, to_bytes(mail));  // (options, objects, what went wrong)
  if (nb::object options = parts[0]; !options.is_none()) python_->env(env).set_options(options);
  if (nb::object objects = parts[1]; !objects.is_none()) python_->env(env).set_objects(objects);
  if (nb::object failure = parts[2]; !failure.is_none()) python_->env(env).set_failure(failure);
}

nb::object WorkerObject::act(std::int32_t env) {
  worker_.advance(*envs_, env);
  if (python_) {
    if (nb::object awaited = python_->env(env).take_awaited(); awaited.is_valid()) return awaited;
    python_->env(env).forget_answers();
  }
  if (surroundings_) surroundings_->restore();  // other envs of this worker come next
  if (!python_ && PyErr_Occurred()) PyErr_WriteUnraisable(nullptr);  // a callback of the user, in a simulator, raised
  nb::object note = note_of(env);
  worker_.publish(env, note.is_valid() ? bytes_of(note) : std::span<const std::byte>());
  return {};
}

// ---- with an event loop ------------------------------------------------------------------------

WorkerObject::Working::Working(WorkerObject& worker, std::int32_t env)
    : worker_(worker), env_(env), from_(monotonic_ns()) {
  set_crash_env(env);
  worker_.worker_.show_running(env);
}

WorkerObject::Working::~Working() {
  set_crash_env(-1);
  worker_.worker_.show_running(-1);
  worker_.worker_.add_work(env_, monotonic_ns() - from_);
}

nb::object WorkerObject::take() {
  for (;;) {
    const std::int32_t env = worker_.next();
    if (env < 0) return nb::none();
    const Working working(*this, env);
    if (python_ && worker_.is_cancelled(env) && !worker_.is_call(env))  // it need not begin
      python_->env(env).set_failure(nb::module_::import_("asyncio").attr("CancelledError")("nobody waits for it"));
    nb::object awaited = begin(env);
    if (!awaited.is_valid()) continue;
    nb::object turn = nb::cast(new Turn(*this, env, std::move(awaited)), nb::rv_policy::take_ownership);
    turns_[static_cast<std::size_t>(env - first_env_)] = turn;
    tell_waiting(nb::cast<Turn&>(turn));
    return turn;
  }
}

nb::list WorkerObject::cancelled() {
  nb::list out;
  for (std::int32_t env = worker_.next_cancelled(); env >= 0; env = worker_.next_cancelled())
    if (const nb::object& turn = turns_[static_cast<std::size_t>(env - first_env_)]; turn.is_valid()) out.append(turn);
  return out;
}

const char* WorkerObject::phase(std::int32_t env) const {
  return worker_.is_call(env) ? "call" : python_->env(env).phase();
}

nb::object WorkerObject::go_on(std::int32_t env, nb::object value, nb::object error) {
  nb::object next;
  const bool was_full = worker_.is_full();
  if (!worker_.is_call(env)) {
    python_->env(env).answer(std::move(value), std::move(error));
    next = act(env);
  } else {  // it may have come to nothing: at its deadline
    if (error.is_valid()) value = loop_.attr("failed_call")(error);
    worker_.publish_call(env, bytes_of(value));
  }
  if (next.is_valid()) return next;
  turns_[static_cast<std::size_t>(env - first_env_)] = nb::object();
  if (was_full) loop_.attr("look")();  // another one may run now
  return {};
}

void WorkerObject::tell_waiting(Turn& turn) {
  if (!waiting_.is_none()) waiting_(nb::find(turn));
}

void WorkerObject::replace(int env, nb::object by) { python_->env(env).replace(std::move(by)); }

nb::object WorkerObject::save(int env) const {
  std::vector<std::byte> state;
  save_env(*envs_, env, simulator(env), state);
  return to_bytes(state);
}

void WorkerObject::connect(int env) {
  connect_simulator(*envs_, env, simulator(env));
}

// What goes with the row besides arrays, pickled; null: nothing.
nb::object WorkerObject::note_of(std::int32_t env) {
  if (!python_) return worker_.fault().empty() ? nb::object() : write_note_(env, to_text(worker_.fault()));
  const Note note = python_->env(env).take_note();
  if (note.empty()) return {};
  return write_note_(env, or_none(note.info), or_none(note.final_info), or_none(note.objects),
                     or_none(note.final_objects), or_none(note.error), note.phase);
}

}  // namespace stepmill
