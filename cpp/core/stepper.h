// The autoreset state machine, the only one in C++: what one action does to one env.
//
//            first action            action                    end
//   FRESH ----------------> LIVE ----------------> LIVE ... ---------> ENDED
//     ^  resets, action       ^                                          |
//     |  discarded            +------------------------------------------+
//                               next_step: the next action resets, and is discarded
//                               same_step: reset at once, inside the ending step
//                               disabled:  only a reset command does; `send` refuses actions
//
// A failure of an env is an ending too: the row is truncated and abnormal, and the next action resets the env in every
// mode except `disabled`.
//
// `Stepper<E>` is compiled for each env class, so that the loop over a chunk inlines its `step`.
//
// An env whose answer is not there yet throws `Suspended`. The same action is then done once more, from the beginning,
// with everything as it was before, when the answer is there: the env gives it at once, and may throw again later.
#pragma once

#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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

struct Suspended {};

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
  // A row of a batch.
  struct Place {
    const sm_columns& columns;
    std::int64_t row;
  };

  // Finds the envs of a job. The loops below keep what they use in locals, and call rare cases (a reset, an end, a
  // failure) out of line with this small value. So no local has its address taken, and the compiler can keep all of
  // them in registers.
  struct Turnstile {
    Stepper* self;
    const sm_job* job;
    std::int32_t first_id;
  };

  // One env at its turn, for the rare cases.
  struct Visit {
    const sm_job& job;
    const sm_shared& shared;
    std::int32_t index, id;
    sm_env_state& state;
    E& env;
    Rng& rng;
    std::int64_t& resets;

    // Entry `entry` of the job.
    Visit(const Turnstile& in, std::int32_t entry) : Visit(in, entry, in.job->env[entry]) {}
    Visit(const Turnstile& in, std::int32_t entry, std::int32_t env_id)
        : job(*in.job),
          shared(*in.job->shared),
          index(entry),
          id(env_id),
          state(shared.state[env_id]),
          env(*in.self->envs_[env_id - in.first_id]),
          rng(in.self->rngs_[env_id - in.first_id]),
          resets(in.self->resets_[env_id - in.first_id]) {}

    Place place() const {
      if (job.columns) return {*job.columns, job.first_row + index};
      const sm_place claimed = job.claim(job.context, id);
      return {*claimed.columns, claimed.row};
    }
  };

  static bool will_step(const sm_env_state& state) {
    return state.phase == SM_LIVE && state.command == SM_STEP;
  }

  static int players(const sm_shared& shared) {
    return ManyPlayers<E> ? shared.max_num_players : 1;
  }

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
      if (!will_step(shared.state[id])) [[unlikely]] {
        start_or_look(in, i);
        continue;
      }
      E& env = *in.self->envs_[id - in.first_id];
      try {
        const Outcome outcome =
            env.step(ActionRow(shared, id, players(shared)), in.self->rngs_[id - in.first_id]);
        any_ended |= finish_step(in, i, shared, columns, env, id, first_row + i, outcome);
      } catch (const Suspended&) {
      } catch (...) {
        fail(in, i, {*in.job->columns, first_row + i}, SM_IN_STEP);
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
    Turns<E> turns(shared, in.self->envs_.data(), in.self->rngs_.data(), in.first_id, players(shared));
    bool any_ended = false;
    for (std::int32_t from = 0; from < in.job->count; from += turns.kMost) {
      const std::int32_t to = in.job->count - from > turns.kMost ? from + turns.kMost : in.job->count;
      std::int32_t entries[Turns<E>::kMost];
      turns.clear();
      for (std::int32_t i = from; i < to; ++i) {
        const std::int32_t id = in.job->env[i];
        if (will_step(shared.state[id])) [[likely]] {
          entries[turns.size()] = i;
          turns.add(id);
        } else {
          start_or_look(in, i);
        }
      }
      E::step_many(turns);
      for (int i = 0; i < turns.size(); ++i)
        any_ended |= finish_step(in, entries[i], shared, columns, turns.env(i), turns.id(i),
                                 first_row + entries[i], turns.outcome(i));
    }
    return any_ended;
  }

  // Envs that take a slot of the open batch when their step is done.
  static bool advance_late(Turnstile in) {
    bool any_ended = false;
    for (std::int32_t i = 0; i < in.job->count; ++i) {
      Visit v(in, i);
      if (!will_step(v.state)) {
        start_or_look(in, i);
        continue;
      }
      std::optional<Outcome> outcome;
      try {
        outcome = v.env.step(ActionRow(v.shared, v.id, players(v.shared)), v.rng);
      } catch (...) {
        fail(in, i, v.place(), SM_IN_STEP);
        continue;
      }
      const Place place = v.place();
      begin_rows(v.shared, place.columns, place.row, &v.id, 1);
      any_ended |= finish_step(in, i, v.shared, place.columns, v.env, v.id, place.row, *outcome);
    }
    return any_ended;
  }

  // The rest of the row, after the step.
  [[gnu::always_inline]] static inline bool finish_step(const Turnstile& in, std::int32_t entry,
                                                        const sm_shared& shared,
                                                        const sm_columns& columns, E& env,
                                                        std::int32_t id, std::int64_t row,
                                                        const Outcome& outcome) {
    sm_env_state& state = shared.state[id];
    const std::int32_t elapsed = state.elapsed + 1;
    state.elapsed = elapsed;
    state.episode_return += outcome.reward;
    const bool truncated = outcome.truncated | (elapsed == shared.max_episode_steps);
    columns.elapsed_step[row] = elapsed;
    columns.terminated[row] = outcome.terminated;
    columns.truncated[row] = truncated;
    if constexpr (ManyPlayers<E>) {
      show_all_players(shared, columns, row);
    } else if (shared.reward_is_float32) {
      static_cast<float*>(columns.reward)[row] = static_cast<float>(outcome.reward);
    } else {
      static_cast<double*>(columns.reward)[row] = outcome.reward;
    }
    if (outcome.terminated | truncated) [[unlikely]] {
      end_episode(in, entry, {columns, row});
      return columns.ended[row];
    }
    try {
      env.observe(Row(shared, columns, row, players(shared)));
    } catch (...) {
      fail(in, entry, {columns, row}, SM_IN_OBSERVE);
      return false;
    }
    state.failures = 0;
    if (shared.last_observation) [[unlikely]]
      keep_last(shared, id, {columns, row});
    return false;
  }

  // The same columns, with those that keep an episode's end as its observation and infos.
  static sm_columns final_columns(sm_columns columns) {
    columns.observation = columns.final_observation;
    columns.info = columns.final_info;
    columns.info_present = columns.final_info_present;
    return columns;
  }

  [[gnu::noinline]] static void end_episode(Turnstile in, std::int32_t entry, Place place) {
    Visit v(in, entry);
    const sm_columns& columns = place.columns;
    const bool reset_now = v.shared.autoreset == SM_SAME_STEP;
    const sm_columns shown = reset_now ? final_columns(columns) : columns;
    v.state.phase = SM_ENDED;
    if (reset_now) clear_infos(v.shared, shown.info_present, place.row, 1);
    try {
      v.env.observe(Row(v.shared, shown, place.row, players(v.shared)));
    } catch (...) {
      fail(in, entry, place, SM_IN_OBSERVE);
      return;
    }
    v.state.failures = 0;
    columns.ended[place.row] = true;
    columns.episode_return[place.row] = v.state.episode_return;
    columns.episode_length[place.row] = v.state.elapsed;
    if (reset_now) {
      try {
        reset(v);
        v.env.observe(Row(v.shared, columns, place.row, players(v.shared)).without_rewards());
        columns.elapsed_step[place.row] = 0;
        v.state.episode += 1;
      } catch (const Suspended&) {
        return;
      } catch (...) {
        // Reward and end stand; the observation is the final one, and the next action resets.
        v.state.phase = SM_ENDED;
        show_end(v.shared, columns, place.row);
        report(v, SM_IN_RESET);
      }
    }
    keep_last(v.shared, v.id, place);
  }

  [[gnu::noinline]] static void start_or_look(Turnstile in, std::int32_t entry) {
    Visit v(in, entry);
    const std::uint8_t command = v.state.command;
    if ((command == SM_OBSERVE || command == SM_RECALL) && v.state.phase != SM_FRESH) {
      v.state.command = SM_STEP;
      const Place place = v.place();
      show(in, v, place, v.state.elapsed);
      if (command == SM_OBSERVE)  // they belong to the row of its last action
        clear_infos(v.shared, place.columns.info_present, place.row, 1);
    } else {
      start(in, v);
    }
  }

  // A row whose action was a reset, or counts as one.
  static void start(const Turnstile& in, Visit& v) {
    try {
      reset(v);
    } catch (const Suspended&) {
      return;
    } catch (...) {
      fail(in, v.index, v.place(), SM_IN_RESET);
      return;
    }
    if (show(in, v, v.place(), 0)) v.state.episode += 1;  // an episode has begun when its first observation is there
  }

  // A row that shows the present state of the env. Returns whether it could be observed.
  static bool show(const Turnstile& in, Visit& v, Place place, std::int32_t elapsed) {
    write_row_without_step(v.shared, place.columns, place.row, v.id, elapsed, false);
    try {
      v.env.observe(Row(v.shared, place.columns, place.row, players(v.shared)).without_rewards());
    } catch (...) {
      fail(in, v.index, place, SM_IN_OBSERVE);
      return false;
    }
    keep_last(v.shared, v.id, place);
    return true;
  }

  static void reset(Visit& v) {
    sm_env_state& state = v.state;
    sm_reset_request& request = v.shared.reset[v.id];
    if (request.has_seed) v.rng.reseed(request.seed);
    v.env.reset(v.rng, Options(request));
    v.resets += 1;
    request.has_seed = 0;
    request.option_mask = 0;
    state.phase = SM_LIVE;
    state.command = SM_STEP;
    state.elapsed = 0;
    state.episode_return = 0.0;
  }

  // Called while the exception is handled.
  [[gnu::noinline, gnu::cold]] static void fail(Turnstile in, std::int32_t entry, Place place, int phase) {
    Visit v(in, entry);
    const sm_shared& shared = v.shared;
    write_failed_row(shared, place.columns, place.row, v.id, v.state.elapsed, [&](int leaf) -> const std::byte* {
      if (!shared.last_observation) return nullptr;
      return static_cast<const std::byte*>(shared.last_observation[leaf]) +
             v.id * shared.observation_bytes[leaf] * shared.max_num_players;
    });
    v.state.phase = SM_ENDED;
    v.state.command = SM_STEP;
    report(v, phase);
  }

  static void report(Visit& v, int phase) {
    if (v.state.failures < SM_MOST_FAILURES) v.state.failures += 1;
    v.job.fault(v.job.context, v.id, phase, current_message().c_str());
  }

  // Keeps the observation of a row for later failures, if the pool asks for that.
  static void keep_last(const sm_shared& shared, std::int32_t id, const Place& place) {
    if (!shared.last_observation) return;
    for (int leaf = 0; leaf < shared.observation_leaves; ++leaf) {
      const std::int64_t bytes = shared.observation_bytes[leaf] * shared.max_num_players;
      std::memcpy(static_cast<std::byte*>(shared.last_observation[leaf]) + id * bytes,
                  static_cast<std::byte*>(place.columns.observation[leaf]) + place.row * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }

  static std::size_t as_size(std::int32_t count) { return static_cast<std::size_t>(count); }

  // Of a fixed length, so that an env need not be movable.
  std::vector<std::optional<E>> envs_;
  std::vector<Rng> rngs_;
  std::vector<std::int64_t> resets_;
};

}  // namespace stepmill
