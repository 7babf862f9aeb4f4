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
// A failure of an env is an ending too: the row is truncated and abnormal, and the next action
// resets it in every mode but `disabled`.
//
// `Stepper<E>` is compiled for each env class, so that the loop over a chunk inlines its `step`.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "core/env.h"

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
  explicit Stepper(std::int32_t count) : envs_(std::make_unique<std::optional<E>[]>(count)),
                                         rngs_(std::make_unique<Rng[]>(count)) {}

  void build(std::int32_t index, const Config& config) { envs_[index].emplace(config); }

  // Advances every env of the job by its action. Returns whether an episode ended.
  bool advance(std::int32_t first_id, const sm_job& job) {
    bool any_ended = false;
    for (std::int32_t i = 0; i < job.count; ++i) {
      const std::int32_t id = job.env[i];
      sm_env_state& state = job.shared->state[id];
      Visit visit{job, id, state, *envs_[id - first_id], rngs_[id - first_id]};
      if (state.phase == SM_LIVE && state.command == SM_STEP) [[likely]]
        any_ended |= step(visit);
      else if (state.command == SM_OBSERVE && state.phase != SM_FRESH)
        look(visit);
      else
        start(visit);
    }
    return any_ended;
  }

 private:
  // One env at its turn in a job.
  struct Visit {
    const sm_job& job;
    std::int32_t id;
    sm_env_state& state;
    E& env;
    Rng& rng;

    const sm_shared& shared() const { return *job.shared; }
    sm_place place() const {
      if (job.columns) return {job.columns, job.row[id]};
      return job.claim(job.context, id);
    }
  };

  static bool step(Visit& v) {
    const sm_shared& shared = v.shared();
    int phase = SM_IN_STEP;
    std::optional<sm_place> place;
    try {
      const Outcome outcome = v.env.step(ActionRow(shared, v.id), v.rng);
      place = v.place();
      phase = SM_IN_OBSERVE;
      const Row row(shared, *place->columns, place->row);

      sm_env_state& state = v.state;
      state.elapsed += 1;
      state.episode_return += outcome.reward;
      const bool truncated = outcome.truncated || state.elapsed == shared.max_episode_steps;
      const bool ended = outcome.terminated || truncated;
      begin_row(v, *place, state.elapsed, outcome.terminated, truncated);
      if constexpr (!ManyPlayers<E>) row.write_reward(place->row, outcome.reward);
      if (!ended) [[likely]] {
        v.env.observe(row);
        keep_last(v, *place);
        state.failures = 0;
        return false;
      }
      end_episode(v, row, *place);
      return true;
    } catch (...) {
      fail(v, place, phase, current_message());
    }
    return false;
  }

  static void end_episode(Visit& v, const Row& row, const sm_place& place) {
    const sm_columns& columns = *place.columns;
    sm_env_state& state = v.state;
    columns.ended[place.row] = true;
    columns.episode_return[place.row] = state.episode_return;
    columns.episode_length[place.row] = state.elapsed;
    state.phase = SM_ENDED;
    state.failures = 0;
    if (v.shared().autoreset != SM_SAME_STEP) {
      v.env.observe(row);
      keep_last(v, place);
      return;
    }
    v.env.observe(row.final_row());
    try {
      reset(v);
      columns.elapsed_step[place.row] = 0;
      v.env.observe(row);
      keep_last(v, place);
    } catch (...) {
      // Reward and end stand; the observation is the final one, and the next action resets.
      state.phase = SM_ENDED;
      copy_row(v.shared(), columns.final_observation, columns.observation, place.row);
      copy_info(v.shared(), columns, place.row);
      report(v, SM_IN_RESET, current_message());
    }
  }

  // A row whose action was a reset, or stands for one.
  static void start(Visit& v) {
    std::optional<sm_place> place;
    int phase = SM_IN_RESET;
    try {
      reset(v);
      place = v.place();
      phase = SM_IN_OBSERVE;
      begin_row(v, *place, 0, false, false);
      clear_reward(v, *place);
      v.env.observe(Row(v.shared(), *place->columns, place->row));
      keep_last(v, *place);
    } catch (...) {
      fail(v, place, phase, current_message());
    }
  }

  // A row that shows where the env stands. Nothing moves.
  static void look(Visit& v) {
    std::optional<sm_place> place;
    try {
      v.state.command = SM_STEP;
      place = v.place();
      begin_row(v, *place, v.state.elapsed, false, false);
      clear_reward(v, *place);
      v.env.observe(Row(v.shared(), *place->columns, place->row));
    } catch (...) {
      fail(v, place, SM_IN_OBSERVE, current_message());
    }
  }

  static void reset(Visit& v) {
    sm_env_state& state = v.state;
    sm_reset_request& request = v.shared().reset[v.id];
    if (request.has_seed) v.rng.reseed(request.seed);
    v.env.reset(v.rng, Options(request));
    request.has_seed = 0;
    request.option_mask = 0;
    state.phase = SM_LIVE;
    state.command = SM_STEP;
    state.elapsed = 0;
    state.episode_return = 0.0;
    state.episode += 1;
  }

  static void begin_row(const Visit& v, const sm_place& place, std::int32_t elapsed,
                        bool terminated, bool truncated) {
    const sm_columns& columns = *place.columns;
    const std::int64_t row = place.row;
    columns.env_id[row] = v.id;
    columns.elapsed_step[row] = elapsed;
    columns.terminated[row] = terminated;
    columns.truncated[row] = truncated;
    columns.ended[row] = false;
    columns.episode_return[row] = 0.0;
    columns.episode_length[row] = 0;
    if (columns.players) columns.players[row] = v.shared().max_num_players;
  }

  static void clear_reward(const Visit& v, const sm_place& place) {
    const sm_shared& shared = v.shared();
    const Row row(shared, *place.columns, place.row);
    for (int player = 0; player < shared.max_num_players; ++player) row.set_reward(player, 0.0);
  }

  // A failure fills its row like any result.
  static void fail(Visit& v, std::optional<sm_place> place, int phase,
                   const std::string& message) {
    const sm_shared& shared = v.shared();
    if (!place) place = v.place();
    const sm_columns& columns = *place->columns;
    begin_row(v, *place, v.state.elapsed, false, true);
    clear_reward(v, *place);
    const int players = shared.max_num_players;
    for (int leaf = 0; leaf < shared.observation_leaves; ++leaf) {
      const std::int64_t bytes = shared.observation_bytes[leaf] * players;
      std::byte* to = static_cast<std::byte*>(columns.observation[leaf]) + place->row * bytes;
      if (shared.last_observation)
        std::memcpy(to, static_cast<std::byte*>(shared.last_observation[leaf]) + v.id * bytes, bytes);
      else
        std::memset(to, 0, bytes);
    }
    for (int leaf = 0; leaf < shared.info_leaves; ++leaf) {
      const std::int64_t bytes = shared.info_bytes[leaf];
      std::memset(static_cast<std::byte*>(columns.info[leaf]) + place->row * bytes, 0, bytes);
    }
    v.state.phase = SM_ENDED;
    v.state.command = SM_STEP;
    report(v, phase, message);
  }

  static void report(Visit& v, int phase,
                   const std::string& message) {
    if (v.state.failures < 255) v.state.failures += 1;
    v.job.fault(v.job.context, v.id, phase, message.c_str());
  }

  static void keep_last(const Visit& v, const sm_place& place) {
    const sm_shared& shared = v.shared();
    if (!shared.last_observation) [[likely]]
      return;
    for (int leaf = 0; leaf < shared.observation_leaves; ++leaf) {
      const std::int64_t bytes = shared.observation_bytes[leaf] * shared.max_num_players;
      std::memcpy(static_cast<std::byte*>(shared.last_observation[leaf]) + v.id * bytes,
                  static_cast<std::byte*>(place.columns->observation[leaf]) + place.row * bytes,
                  bytes);
    }
  }

  static void copy_row(const sm_shared& shared, void* const* from, void* const* to,
                       std::int64_t row) {
    for (int leaf = 0; leaf < shared.observation_leaves; ++leaf) {
      const std::int64_t bytes = shared.observation_bytes[leaf] * shared.max_num_players;
      std::memcpy(static_cast<std::byte*>(to[leaf]) + row * bytes,
                  static_cast<std::byte*>(from[leaf]) + row * bytes, bytes);
    }
  }

  static void copy_info(const sm_shared& shared, const sm_columns& columns, std::int64_t row) {
    for (int leaf = 0; leaf < shared.info_leaves; ++leaf) {
      const std::int64_t bytes = shared.info_bytes[leaf];
      std::memcpy(static_cast<std::byte*>(columns.info[leaf]) + row * bytes,
                  static_cast<std::byte*>(columns.final_info[leaf]) + row * bytes, bytes);
    }
  }

  std::unique_ptr<std::optional<E>[]> envs_;
  std::unique_ptr<Rng[]> rngs_;
};

}  // namespace stepmill
