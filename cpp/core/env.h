// The header that the author of a native env includes.
//
// An env is one class:
//
//     class MyEnv {
//      public:
//       static std::vector<ConfigItem> configuration();          // keys and defaults; may be left out
//       static constexpr const char* kResetOptions[] = {"low", nullptr};       // may be left out
//       static void check_options(const Options&);               // throws; may be left out
//       static EnvSpec spec(const Config&);                      // arrays, without building anything
//       explicit MyEnv(const Config&);
//
//       void reset(Rng&, const Options&);
//       Outcome step(const ActionRow&, Rng&);
//       void observe(const Row&) const;                          // writes observation and info
//     };
//
// `step` computes and `observe` writes, and the engine calls them in this order. It is this split
// that lets a slow step hold no place in an open batch, and lets `same_step` write the last
// observation and the first one of the next episode from the same env.
//
// An env may throw from anywhere: the row comes back as abnormal and the others go on. Autoreset,
// the time limit and episode statistics are the engine's work (`core/stepper.h`), never the env's.
// `envs/debug/template.h` is an env to copy, with a comment at every decision.
#pragma once

#include <cstdint>
#include <span>

#include "core/env_table.h"
#include "core/rng.h"
#include "core/spec.h"

namespace stepmill {

// What one step gave. Both ends may be true at once: an env that fails on its last allowed step.
struct Outcome {
  double reward = 0.0;
  bool terminated = false;
  bool truncated = false;  // by the env's own rules; the time limit is the engine's
};

// The options of one `reset(options={...})`, in the order of the class's kResetOptions.
class Options {
 public:
  explicit Options(const sm_reset_request& request) : request_(request) {}

  bool has(int index) const { return (request_.option_mask >> index & 1) != 0; }
  double get(int index, double otherwise) const {
    return has(index) ? request_.option[index] : otherwise;
  }

 private:
  const sm_reset_request& request_;
};

// The action of one env, in the action table.
class ActionRow {
 public:
  ActionRow(const sm_shared& shared, std::int64_t env) : shared_(shared), env_(env) {}

  // The action as a single number: the common case of a Discrete space.
  std::int64_t index() const { return *get<std::int64_t>(); }

  template <class T>
  const T* get(int leaf = 0, int player = 0) const {
    const std::int64_t row = env_ * shared_.max_num_players + player;
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(shared_.action[leaf]) +
                                      row * shared_.action_bytes[leaf]);
  }

  // How many players sent an action.
  int players() const { return shared_.action_players ? shared_.action_players[env_] : 1; }

 private:
  const sm_shared& shared_;
  std::int64_t env_;
};

// The row of a batch that an env writes. Every element of every leaf must be written: rows are
// recycled.
class Row {
 public:
  Row(const sm_shared& shared, const sm_columns& columns, std::int64_t row)
      : Row(shared, columns, row, columns.observation, columns.info) {}

  template <class T>
  T* observation(int leaf = 0, int player = 0) const {
    const std::int64_t row = row_ * shared_.max_num_players + player;
    return reinterpret_cast<T*>(static_cast<std::byte*>(observation_[leaf]) +
                                row * shared_.observation_bytes[leaf]);
  }

  template <class T>
  T* info(int leaf) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(info_[leaf]) +
                                row_ * shared_.info_bytes[leaf]);
  }

  // For envs of many players: how many rows this env fills, and the reward of each.
  void set_players(int count) const {
    if (columns_.players) columns_.players[row_] = count;
  }
  void set_reward(int player, double reward) const {
    write_reward(row_ * shared_.max_num_players + player, reward);
  }

  // The same row of the columns that keep an episode's last observation.
  Row final_row() const {
    return {shared_, columns_, row_, columns_.final_observation, columns_.final_info};
  }

  void write_reward(std::int64_t index, double reward) const {
    if (shared_.reward_is_float32)
      static_cast<float*>(columns_.reward)[index] = static_cast<float>(reward);
    else
      static_cast<double*>(columns_.reward)[index] = reward;
  }

 private:
  Row(const sm_shared& shared, const sm_columns& columns, std::int64_t row,
      void* const* observation, void* const* info)
      : shared_(shared), columns_(columns), observation_(observation), info_(info), row_(row) {}

  const sm_shared& shared_;
  const sm_columns& columns_;
  void* const* observation_;
  void* const* info_;
  std::int64_t row_;
};

// Optional parts of an env class, found by name.
template <class E>
concept HasConfiguration = requires { E::configuration(); };
template <class E>
concept HasResetOptions = requires { E::kResetOptions[0]; };
template <class E>
concept HasOptionCheck = requires(const Options& options) { E::check_options(options); };
// An env of many players writes its rewards itself, with Row::set_reward.
template <class E>
concept ManyPlayers = requires { requires E::kManyPlayers; };

}  // namespace stepmill
