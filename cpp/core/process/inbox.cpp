#include "core/process/inbox.h"

namespace stepmill {

Inbox::Inbox(std::int32_t num_envs, const ProcessChecks& checks, const WorkerRoster& roster,
             const std::vector<Asked>& asked)
    : checks_(checks),
      roster_(roster),
      asked_(asked),
      row_notes_(static_cast<std::size_t>(num_envs)),
      saved_notes_(static_cast<std::size_t>(num_envs)),
      saved_answers_(static_cast<std::size_t>(num_envs)) {}

// In the outbox of the life that was last asked.
std::span<const std::byte> Inbox::find(std::int32_t env, const ProcessChecks::Note& note) const {
  const WorkerRoster::Life* life = roster_.crew_of(env).find(asked(env).incarnation);
  if (!life || !life->outbox) return {};
  return life->outbox->read(note.offset, note.bytes);
}

Inbox::Saved Inbox::copy_of(std::int32_t env, const ProcessChecks::Note& note) const {
  const auto found = find(env, note);
  Saved saved;
  saved.bytes.assign(found.begin(), found.end());
  // The seal of the copy, which no other process can change.
  saved.good = found.size() == note.bytes && seal_of(saved.bytes, env, asked(env).epoch) == note.seal;
  return saved;
}

// ---- notes of rows -----------------------------------------------------------------------------

bool Inbox::read_note(std::int32_t env, std::uint32_t epoch, const Copy& copy) const {
  const auto e = static_cast<std::size_t>(env);
  if (const auto& saved = saved_notes_[e]) {
    if (saved->good) copy(saved->bytes);
    return saved->good;
  }
  const ProcessChecks::Note note = row_notes_[e];
  if (note.offset == 0) return true;
  const auto found = find(env, note);
  return found.size() == note.bytes && seal_of(copy(found), env, epoch) == note.seal;
}

void Inbox::save_note(std::int32_t env) {
  auto& saved = saved_notes_[static_cast<std::size_t>(env)];
  // An impossible report about a row is found when the row is received.
  if (saved || !checks_.fault_phase(env, asked(env).epoch)) return;
  const auto note = checks_.note(env);
  saved = note.offset != 0 ? copy_of(env, note) : Saved{};
}

// ---- answers to calls --------------------------------------------------------------------------

bool Inbox::read_answer(std::int32_t env, std::vector<std::byte>& answer) const {
  const auto& saved = saved_answers_[static_cast<std::size_t>(env)];
  Saved read = saved ? *saved : copy_of(env, checks_.call(env));
  answer = std::move(read.bytes);
  return read.good;
}

void Inbox::save_answer(std::int32_t env) {
  auto& saved = saved_answers_[static_cast<std::size_t>(env)];
  if (!saved) saved = copy_of(env, checks_.call(env));
}

}  // namespace stepmill
