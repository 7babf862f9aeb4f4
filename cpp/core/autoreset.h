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
// An env whose answer is not there yet says `is_suspended`. The same action is then done once more, from the beginning,
// with everything as it was before, when the answer is there: the env gives it at once, and may be suspended again later.
#pragma once

#include <concepts>
#include <cstring>

#include "core/env/env.h"
#include "core/failed_row.h"

namespace stepmill {

template <class E>
concept MaySuspend = requires(const E& env) {
  { env.is_suspended() } -> std::same_as<bool>;
};

// A row of a batch.
struct Place {
  const sm_columns& columns;
  std::int64_t row;
};

// One env at its turn, for the rare cases.
template <class E>
struct Visit {
  const sm_shared& shared;
  std::int32_t entry, id;  // of the job, and of the env
  sm_env_state& state;
  sm_reset_request& request;
  E& env;
  Rng& rng;
  std::int64_t& resets;
};

// A turnstile finds the envs of a job. It is a small value, so that a loop can give it to the rare cases and keep its own
// locals in registers: none of them has its address taken.
//
//     Visit<E> visit(std::int32_t entry) const;        // the env of an entry
//     Place place(const Visit<E>&) const;              // its row
//     void fault(std::int32_t env, int phase) const;   // the exception being handled
//     void keep_end(const Visit<E>&) const;            // a row shows the end of an episode, and a reset comes that may fail
//     void keep_reset(const Visit<E>&) const;          // a reset has gone well, and what it shows may fail
template <class E, class Turnstile>
class Autoreset {
 public:
  static bool will_step(const sm_env_state& state) {
    return state.phase == SM_LIVE && state.command == SM_STEP;
  }

  static int players(const sm_shared& shared) {
    return ManyPlayers<E> ? shared.max_num_players : 1;
  }

  static bool is_suspended(const E& env) {
    if constexpr (MaySuspend<E>)
      return env.is_suspended();
    else
      return false;
  }

  // The rest of the row, after the step.
  [[gnu::always_inline]] static inline bool finish_step(const Turnstile& in, std::int32_t entry,
                                                        const sm_shared& shared,
                                                        const sm_columns& columns, E& env,
                                                        sm_env_state& state, std::int32_t id, std::int64_t row,
                                                        const Outcome& outcome) {
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

  [[gnu::noinline]] static void start_or_look(Turnstile in, std::int32_t entry) {
    Visit<E> v = in.visit(entry);
    const std::uint8_t command = v.state.command;
    if ((command == SM_OBSERVE || command == SM_RECALL) && v.state.phase != SM_FRESH) {
      v.state.command = SM_STEP;
      const Place place = in.place(v);
      show(in, v, place, v.state.elapsed);
      if (command == SM_OBSERVE)  // they belong to the row of its last action
        clear_infos(v.shared, place.columns.info_present, place.row, 1);
    } else {
      start(in, v);
    }
  }

  // Called while the exception is handled.
  [[gnu::noinline, gnu::cold]] static void fail(Turnstile in, std::int32_t entry, Place place, int phase) {
    Visit<E> v = in.visit(entry);
    const sm_shared& shared = v.shared;
    write_failed_row(shared, place.columns, place.row, v.id, v.state.elapsed, [&](int leaf) -> const std::byte* {
      if (!shared.last_observation) return nullptr;
      return static_cast<const std::byte*>(shared.last_observation[leaf]) +
             v.id * shared.observation_bytes[leaf] * shared.max_num_players;
    });
    v.state.phase = SM_ENDED;
    v.state.command = SM_STEP;
    report(in, v, phase);
  }

 private:
  // The same columns, with those that keep an episode's end as its observation and infos.
  static sm_columns final_columns(sm_columns columns) {
    columns.observation = columns.final_observation;
    columns.info = columns.final_info;
    columns.info_present = columns.final_info_present;
    return columns;
  }

  [[gnu::noinline]] static void end_episode(Turnstile in, std::int32_t entry, Place place) {
    Visit<E> v = in.visit(entry);
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
      in.keep_end(v);
      try {
        if (!reset(in, v)) return;
        v.env.observe(Row(v.shared, columns, place.row, players(v.shared)).without_rewards());
        columns.elapsed_step[place.row] = 0;
        v.state.episode += 1;
      } catch (...) {
        // Reward and end stand; the observation is the final one, and the next action resets.
        v.state.phase = SM_ENDED;
        show_end(v.shared, columns, place.row);
        report(in, v, SM_IN_RESET);
      }
    }
    keep_last(v.shared, v.id, place);
  }

  // A row whose action was a reset, or counts as one.
  static void start(const Turnstile& in, Visit<E>& v) {
    try {
      if (!reset(in, v)) return;
    } catch (...) {
      fail(in, v.entry, in.place(v), SM_IN_RESET);
      return;
    }
    if (show(in, v, in.place(v), 0)) v.state.episode += 1;  // an episode has begun when its first observation is there
  }

  // A row that shows the present state of the env. Returns whether it could be observed.
  static bool show(const Turnstile& in, Visit<E>& v, Place place, std::int32_t elapsed) {
    write_row_without_step(v.shared, place.columns, place.row, v.id, elapsed, false);
    try {
      v.env.observe(Row(v.shared, place.columns, place.row, players(v.shared)).without_rewards());
    } catch (...) {
      fail(in, v.entry, place, SM_IN_OBSERVE);
      return false;
    }
    keep_last(v.shared, v.id, place);
    return true;
  }

  // Whether it was done: the env may be suspended.
  static bool reset(const Turnstile& in, Visit<E>& v) {
    sm_env_state& state = v.state;
    sm_reset_request& request = v.request;
    if (request.has_seed) v.rng.reseed(request.seed);
    v.env.reset(v.rng, Options(request));
    if (is_suspended(v.env)) return false;
    v.resets += 1;
    request.has_seed = 0;
    request.option_mask = 0;
    state.phase = SM_LIVE;
    state.command = SM_STEP;
    state.elapsed = 0;
    state.episode_return = 0.0;
    in.keep_reset(v);
    return true;
  }

  static void report(const Turnstile& in, Visit<E>& v, int phase) {
    if (v.state.failures < SM_MOST_FAILURES) v.state.failures += 1;
    in.fault(v.id, phase);
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
};

}  // namespace stepmill
