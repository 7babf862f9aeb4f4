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
      answer_(std::move(a.answer)) {
  if (a.is_loaded) surroundings_.emplace();
  if (python_)
    python_->kind().reset_after_end = [this](int env) { worker_.reset_after_end(env); };
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
    if (worker_.is_call(env))
      worker_.publish_call(env, bytes_of(answer_(env, to_bytes(worker_.mail(env)))));
    else
      act(env);
  }
}

void WorkerObject::act(std::int32_t env) {
  if (kept_.size() != 0) take_kept(env);
  if (python_) {
    if (worker_.is_reset(env)) python_->env(env).set_options(nb::none());  // drops those of a failed reset
    if (const auto mail = worker_.mail(env); !mail.empty()) {
      nb::object parts = read_mail_(env, to_bytes(mail));  // (options, objects, what went wrong)
      if (nb::object options = parts[0]; !options.is_none()) python_->env(env).set_options(options);
      if (nb::object objects = parts[1]; !objects.is_none()) python_->env(env).set_objects(objects);
      if (nb::object failure = parts[2]; !failure.is_none()) python_->env(env).set_failure(failure);
    }
  }
  worker_.advance(*envs_, env);
  if (surroundings_) surroundings_->restore();  // other envs of this worker come next
  if (!python_ && PyErr_Occurred()) PyErr_WriteUnraisable(nullptr);  // a callback of the user, in a simulator, raised
  nb::object note = note_of(env);
  worker_.publish(env, note.is_valid() ? bytes_of(note) : std::span<const std::byte>());
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
