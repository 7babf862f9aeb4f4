// What workers send besides the arrays: a note with a row, an answer to a call. The pool's side of their outboxes.
//
// It is read in the outbox of the life that wrote it. Before that outbox goes, and before the env is asked something
// else, what has not been received yet is saved in this process's own memory. A worker can write into its outbox at any
// time, so what is read there counts only if its seal says that these are the bytes that were written.
//
// It has no lock of its own: the pool's lock is held for every call except `noted`, which only the caller uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/process/process_checks.h"
#include "core/process/worker_roster.h"

namespace stepmill {

class Inbox {
 public:
  // All of these belong to the pool; `asked` is by env.
  Inbox(std::int32_t num_envs, const ProcessChecks& checks, const WorkerRoster& roster,
        const std::vector<Asked>& asked);

  // ---- notes of rows ----

  void begin_batch() { noted_.clear(); }
  // A row of the batch, written by a worker.
  void add_row(std::int32_t env, std::int32_t row) {
    ProcessChecks::Note& note = row_notes_[static_cast<std::size_t>(env)];
    note.offset = checks_.note_offset(env);
    if (note.offset == 0) return;
    note = checks_.note(env);
    noted_.emplace_back(row, env);
  }
  // The rows of the batch that have a note: (row, env).
  std::span<const std::pair<std::int32_t, std::int32_t>> noted() const { return noted_; }

  // Calls `copy` to copy the note of a row, if it has one, and to return where the copy is. False if these are not the
  // bytes that were written for that action.
  using Copy = std::function<std::span<const std::byte>(std::span<const std::byte>)>;
  bool read_note(std::int32_t env, std::uint32_t epoch, const Copy& copy) const;
  // Saves the note of the env's last row, which has been written.
  void save_note(std::int32_t env);
  void forget_note(std::int32_t env) { saved_notes_[static_cast<std::size_t>(env)].reset(); }

  // ---- answers to calls ----

  // False if these are not the bytes that were written.
  bool read_answer(std::int32_t env, std::vector<std::byte>& answer) const;
  void save_answer(std::int32_t env);
  void forget_answer(std::int32_t env) { saved_answers_[static_cast<std::size_t>(env)].reset(); }

 private:
  struct Saved {
    std::vector<std::byte> bytes;
    bool good = true;  // these are the bytes that were written
  };
  using SavedOfEnvs = std::vector<std::optional<Saved>>;

  const Asked& asked(std::int32_t env) const { return asked_[static_cast<std::size_t>(env)]; }
  std::span<const std::byte> find(std::int32_t env, const ProcessChecks::Note& note) const;
  Saved copy_of(std::int32_t env, const ProcessChecks::Note& note) const;

  const ProcessChecks& checks_;
  const WorkerRoster& roster_;
  const std::vector<Asked>& asked_;
  std::vector<ProcessChecks::Note> row_notes_;  // by env, of the row that was received last
  std::vector<std::pair<std::int32_t, std::int32_t>> noted_;
  SavedOfEnvs saved_notes_, saved_answers_;
};

}  // namespace stepmill
