#include "bindings/python/numpy_api.h"

#include "bindings/hosts/inline_host.h"

#include "bindings/python/bytes.h"
#include "bindings/python/values.h"
#include "core/local_pool.h"

namespace nb = nanobind;

namespace stepmill {

InlineHost::InlineHost(PythonEnvs envs, EnvSpec spec, const PoolOptions& options, nb::object check_usable)
    : Host(std::make_unique<LocalPool>(envs.take_set(), std::move(spec), options), nullptr),
      envs_(std::move(envs)),
      check_usable_(std::move(check_usable)) {}

void InlineHost::give_objects(std::int32_t env, nb::handle objects) { envs_->env(env).set_objects(nb::borrow(objects)); }

void InlineHost::give_options(const ResetOrder& order) {
  for (std::size_t i = 0; i < order.envs.size(); ++i)
    if (order.resets(i)) envs_->env(order.envs[i]).set_options(order.object_of(i));
}

// Steps a part of the batch, with the interpreter lock. A KeyboardInterrupt is raised again: it may be the user's.
void InlineHost::work(std::chrono::nanoseconds) {
  pool().work_or_wait(std::chrono::nanoseconds(0));
  if (nb::object interrupt = std::move(envs_->kind().interrupt); interrupt.is_valid()) raise_again(interrupt);
}

// (row, env, info, final info, objects, final objects, exception, its phase)
nb::object InlineHost::take_notes(const Batch& batch, std::vector<Fault>&) {
  nb::object notes;
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    const std::int32_t env = batch.env_id[row];
    const Note note = envs_->env(env).take_note();
    if (note.empty()) continue;
    add_to_list(notes, nb::make_tuple(row, env, or_none(note.info), or_none(note.final_info), or_none(note.objects),
                                      or_none(note.final_objects), or_none(note.error), note.phase));
  }
  return notes;
}

void InlineHost::end() {
  Host::end();  // frees the envs too
  envs_.reset();
}

int InlineHost::traverse(visitproc visit, void* arg) const { return has_ended() ? 0 : envs_->traverse(visit, arg); }

void InlineHost::clear_references() {
  if (!has_ended()) envs_->clear_references();
}

}  // namespace stepmill
