// Runs the envs of a class on the host, one job after another.
//
// `Stepper<E>` is compiled for each env class, so that the loop over a chunk inlines its `step`.
#pragma once

#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/autoreset.h"
#include "core/env/env.h"
#include "core/failed_row.h"

namespace stepmill {

// The text of the exception being handled.
inline std::string current_message() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "the env threw something that is not a std::exception";
  }
}

template <class E>
class Stepper {
 public:
  explicit Stepper(std::int32_t count) : envs_(as_size(count)), rngs_(as_size(count)), resets_(as_size(count)) {}

  template <class... Arguments>
  void emplace(std::int32_t index, Arguments&&... arguments) {
    envs_[index].emplace(std::forward<Arguments>(arguments)...);
  }
  E& env(std::int32_t index) { return *envs_[index]; }
  const E& env(std::int32_t index) const { return *envs_[index]; }
  const Rng& rng(std::int32_t index) const { return rngs_[index]; }
  // How often the env was reset since it was built.
  std::int64_t resets(std::int32_t index) const { return resets_[index]; }

  // What decides the future of an env, except for what the engine keeps in its table.
  void save(std::int32_t index, Writer& to) const
    requires(PlainMemory<E> || SavesItself<E>)
  {
    if constexpr (PlainMemory<E>) {
      static_assert(std::is_trivially_copyable_v<E>, "kPlainMemory: this class has members that cannot be copied as bytes");
      to.put(Saved{rngs_[index].state(), resets_[index], *envs_[index]});
    } else {
      to.put(rngs_[index].state(), resets_[index]);
      envs_[index]->save(to);
    }
  }

  // If it throws, the env may be anything: give it what was saved before.
  void load(std::int32_t index, Reader from)
    requires(PlainMemory<E> || SavesItself<E>)
  {
    sm_random_state rng;
    std::int64_t resets = 0;
    if constexpr (PlainMemory<E>) {
      if (from.left() != sizeof(Saved)) throw std::runtime_error("a state of another size");
      Saved saved = {{}, 0, *envs_[index]};
      from.take(saved);
      rng = saved.rng;
      resets = saved.resets;
      std::memcpy(static_cast<void*>(&*envs_[index]), &saved.env, sizeof(E));  // some members may be constant
    } else {
      from.take(rng, resets);
      envs_[index]->load(from);
      from.finish();
    }
    rngs_[index].set_state(rng);
    resets_[index] = resets;
  }

  // What is saved of an env whose memory is plain.
  struct Saved {
    sm_random_state rng;
    std::int64_t resets;
    E env;
  };

  // Advances every env of the job by its action. Returns whether an episode ended.
  bool advance(std::int32_t first_id, const sm_job& job) {
    const Turnstile in{this, &job, first_id};
    if (!job.columns) return advance_late(in);
    if constexpr (StepsMany<E>)
      return advance_together(in);
    else
      return advance_each(in);
  }

 private:
  struct Turnstile {
    Stepper* self;
    const sm_job* job;
    std::int32_t first_id;

    Visit<E> visit(std::int32_t entry) const {
      const std::int32_t id = job->env[entry], index = id - first_id;
      const sm_shared& shared = *job->shared;
      return {shared, entry, id, shared.state[id], shared.reset[id], *self->envs_[index], self->rngs_[index],
              self->resets_[index]};
    }
    Place place(const Visit<E>& v) const {
      if (job->columns) return {*job->columns, job->first_row + v.entry};
      const sm_place claimed = job->claim(job->context, v.id);
      return {*claimed.columns, claimed.row};
    }
    void keep_end(const Visit<E>&) const {}  // `catch` finds it where it is
    void keep_reset(const Visit<E>&) const {}
    void fault(std::int32_t env, int phase) const { job->fault(job->context, env, phase, current_message().c_str()); }
  };
  using Machine = Autoreset<E, Turnstile>;

  // What is the same for every step that does not end an episode, for whole rows at once.
  static void begin_rows(const sm_shared& shared, const sm_columns& columns, std::int64_t first,
                         const std::int32_t* ids, std::int32_t count) {
    const auto n = static_cast<std::size_t>(count);
    std::memcpy(columns.env_id + first, ids, n * sizeof(std::int32_t));
    std::memset(columns.ended + first, 0, n);
    std::memset(columns.episode_return + first, 0, n * sizeof(double));
    std::memset(columns.episode_length + first, 0, n * sizeof(std::int32_t));
    clear_infos(shared, columns.info_present, first, count);
  }

  // Envs whose rows are known, one after another.
  static bool advance_each(Turnstile in) {
    const sm_shared shared = *in.job->shared;
    const sm_columns columns = *in.job->columns;
    const std::int64_t first_row = in.job->first_row;
    begin_rows(shared, columns, first_row, in.job->env, in.job->count);
    bool any_ended = false;
    for (std::int32_t i = 0; i < in.job->count; ++i) {
      const std::int32_t id = in.job->env[i];
      if (!Machine::will_step(shared.state[id])) [[unlikely]] {
        Machine::start_or_look(in, i);
        continue;
      }
      E& env = *in.self->envs_[id - in.first_id];
      try {
        const Outcome outcome =
            env.step(ActionRow(shared, id, Machine::players(shared)), in.self->rngs_[id - in.first_id]);
        if (Machine::is_suspended(env)) continue;
        any_ended |= Machine::finish_step(in, i, shared, columns, env, shared.state[id], id, first_row + i, outcome);
      } catch (...) {
        Machine::fail(in, i, {*in.job->columns, first_row + i}, SM_IN_STEP);
      }
    }
    return any_ended;
  }

  // The same for an env class that steps many together: in blocks, first the resets, then all steps in one call, then
  // their rows.
  static bool advance_together(Turnstile in) {
    const sm_shared shared = *in.job->shared;
    const sm_columns columns = *in.job->columns;
    const std::int64_t first_row = in.job->first_row;
    begin_rows(shared, columns, first_row, in.job->env, in.job->count);
    Turns<E> turns(shared, in.self->envs_.data(), in.self->rngs_.data(), in.first_id, Machine::players(shared));
    bool any_ended = false;
    for (std::int32_t from = 0; from < in.job->count; from += turns.kMost) {
      const std::int32_t to = in.job->count - from > turns.kMost ? from + turns.kMost : in.job->count;
      std::int32_t entries[Turns<E>::kMost];
      turns.clear();
      for (std::int32_t i = from; i < to; ++i) {
        const std::int32_t id = in.job->env[i];
        if (Machine::will_step(shared.state[id])) [[likely]] {
          entries[turns.size()] = i;
          turns.add(id);
        } else {
          Machine::start_or_look(in, i);
        }
      }
      E::step_many(turns);
      for (int i = 0; i < turns.size(); ++i)
        any_ended |= Machine::finish_step(in, entries[i], shared, columns, turns.env(i),
                                          shared.state[turns.id(i)], turns.id(i), first_row + entries[i], turns.outcome(i));
    }
    return any_ended;
  }

  // Envs that take a slot of the open batch when their step is done.
  static bool advance_late(Turnstile in) {
    bool any_ended = false;
    for (std::int32_t i = 0; i < in.job->count; ++i) {
      Visit<E> v = in.visit(i);
      if (!Machine::will_step(v.state)) {
        Machine::start_or_look(in, i);
        continue;
      }
      std::optional<Outcome> outcome;
      try {
        outcome = v.env.step(ActionRow(v.shared, v.id, Machine::players(v.shared)), v.rng);
      } catch (...) {
        Machine::fail(in, i, in.place(v), SM_IN_STEP);
        continue;
      }
      const Place place = in.place(v);
      begin_rows(v.shared, place.columns, place.row, &v.id, 1);
      any_ended |= Machine::finish_step(in, i, v.shared, place.columns, v.env, v.state, v.id, place.row, *outcome);
    }
    return any_ended;
  }

  static std::size_t as_size(std::int32_t count) { return static_cast<std::size_t>(count); }

  // Of a fixed length, so that an env need not be movable.
  std::vector<std::optional<E>> envs_;
  std::vector<Rng> rngs_;
  std::vector<std::int64_t> resets_;
};

}  // namespace stepmill
