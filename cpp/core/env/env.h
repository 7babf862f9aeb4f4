// What a native env is, for its author, who includes it as <stepmill/env.h>.
//
// An env is one class:
//
//     class MyEnv {
//      public:
//       static std::vector<ConfigItem> configuration();          // keys and defaults; may be left out
//       static constexpr bool kNeverBlocks = true;               // see below; may be left out
//       static constexpr const char* kResetOptions[] = {"low", nullptr};       // may be left out
//       static void check_options(const Options&);               // throws; may be left out
//       static EnvSpec spec(const Config&);                      // arrays, without building anything
//       explicit MyEnv(const Config&);
//
//       void reset(Rng&, const Options&);
//       Outcome step(const ActionRow&, Rng&);
//       void observe(const Row&) const;                          // writes observation and info
//       static void step_many(Turns<MyEnv>&) noexcept;           // many at once; may be left out
//       void picture(std::vector<double>&) const;                // adds what a drawing shows; may be left out
//       static constexpr bool kPlainMemory = true;               // how it is saved, see below; may be left out
//     };
//
// `step` computes and `observe` writes, and the engine calls them in this order. Because of this split, a slow step
// holds no place in an open batch, and `same_step` can write the last observation and the first one of the next episode
// from the same env.
//
// A row has those keys of `info` that `observe` asks for: an env whose resets and steps tell different things asks for
// what it has to tell now.
//
// An env that only computes should say so with kNeverBlocks: then the calling thread steps it too, which for short
// steps is much faster than handing them to another thread. An env that may wait for something (a simulator in another
// process, a file, a lock) must not say so: it runs only on the pool's threads, so that Ctrl-C and other Python threads
// still work meanwhile.
//
// An env of a simulator that Python builds (`envs/mujoco`) takes a second Config everywhere: what the Python half of its
// family (`stepmill/sources/simulator.py`) says about the simulator. For `spec` these are its sizes; for an env also the
// addresses of what was built for it.
//
//       static EnvSpec spec(const Config&, const Config& simulator);
//       MyEnv(const Config&, const Config& simulator);
//       void connect(const Config& simulator);                   // another one, from the next reset on
//
// An env can be saved and restored (`pool.save`) if its class says how. If all it has are numbers and arrays of them,
// without a pointer, a copy of its memory is a copy of the env: `kPlainMemory`. Otherwise it has two methods, which write
// and read everything that `reset` and `step` change, in the same order (`core/env/state.h`). Configuration need not be
// saved: a state is only given to envs with the same one.
//
//       void save(Writer&) const;
//       void load(Reader&);                                      // may throw, and need not mend itself then
//
// A GPU steps envs whose memory is plain: it gets a copy (`gpu/kernel.h`). An env that shares a table with others keeps a
// std::shared_ptr to it, and a GPU gets a copy of the table too. It must not have pointers itself.
//
//       const std::shared_ptr<const Table>& reads() const;       // a Table has std::size_t bytes() const
//
// An env may throw from anywhere except step_many: its row is marked as abnormal and the others go on. Autoreset, the
// time limit and episode statistics are the engine's work (`core/stepper.h`), never the env's. `envs/debug/template.h`
// is an env to copy, with a comment at every decision.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/env/env_table.h"
#include "core/env/rng.h"
#include "core/env/spec.h"
#include "core/env/state.h"

namespace stepmill {

// The result of one step. Both flags may be true: an env that fails in its last allowed step.
struct Outcome {
  double reward = 0.0;
  bool terminated = false;
  bool truncated = false;  // by the env's own rules; the engine applies the time limit
};

// The options of one `reset(options={...})`, in the order of the class's kResetOptions.
class Options {
 public:
  explicit Options(const sm_reset_request& request) : request_(request) {}

  bool has(int index) const { return (request_.option_mask >> index & 1) != 0; }
  double get(int index, double otherwise) const {
    return has(index) ? request_.option[index] : otherwise;
  }
  // The seed of this reset, if it has one. Native envs can ignore it: their Rng is seeded with it.
  std::optional<std::uint64_t> seed() const {
    return request_.has_seed ? std::optional(request_.seed) : std::nullopt;
  }

 private:
  const sm_reset_request& request_;
};

// The action of one env, in the action table.
class ActionRow {
 public:
  ActionRow() = default;
  ActionRow(const sm_shared& shared, std::int64_t env, int players)
      : action_(shared.action),
        bytes_(shared.action_bytes),
        sent_(shared.action_players),
        env_(env),
        players_(players) {}

  // The action as a single number: the common case of a Discrete space.
  std::int64_t index() const { return *get<std::int64_t>(); }

  template <class T>
  const T* get(int leaf = 0, int player = 0) const {
    const std::int64_t row = env_ * players_ + player;
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(action_[leaf]) +
                                      row * bytes_[leaf]);
  }

  // Whether a player sent an action. Those that the env has shown and that go on always do.
  bool acts(int player) const { return !sent_ || sent_[env_ * players_ + player] != 0; }

 private:
  void* const* action_ = nullptr;
  const std::int64_t* bytes_ = nullptr;
  const std::uint8_t* sent_ = nullptr;
  std::int64_t env_ = 0;
  int players_ = 1;
};

// What a row shows of a player. The last two are its last row: it has left, and does not act any more.
enum class Presence : std::uint8_t {
  kAbsent = 0,
  kHere = SM_HAS_ROW,
  kTerminated = SM_HAS_ROW | SM_PLAYER_TERMINATED,
  kTruncated = SM_HAS_ROW | SM_PLAYER_TRUNCATED,
};

// The row of a batch that an env writes. It must write every element of the observation, and of the infos that it asks
// for, because rows are recycled.
class Row {
 public:
  Row(const sm_shared& shared, const sm_columns& columns, std::int64_t row, int players)
      : observation_(columns.observation),
        info_(columns.info),
        info_present_(reinterpret_cast<bool*>(columns.info_present) + row * shared.info_leaves),
        observation_bytes_(shared.observation_bytes),
        info_bytes_(shared.info_bytes),
        reward_(columns.reward),
        presence_(columns.players),
        row_(row),
        players_(players),
        reward_is_float32_(shared.reward_is_float32 != 0) {}

  template <class T>
  T* observation(int leaf = 0, int player = 0) const {
    const std::int64_t row = row_ * players_ + player;
    return reinterpret_cast<T*>(static_cast<std::byte*>(observation_[leaf]) +
                                row * observation_bytes_[leaf]);
  }

  // The value of one of the env's own keys of `info`. Asking for it gives the row that key: a row has the keys that
  // `observe` asks for, no others.
  template <class T>
  T* info(int leaf) const {
    info_present_[leaf] = true;
    return reinterpret_cast<T*>(static_cast<std::byte*>(info_[leaf]) +
                                row_ * info_bytes_[leaf]);
  }

  // For envs of many players, each of which keeps its number, from 0 to max_num_players - 1, as long as it is in the
  // episode. A batch has the rows of those that are not absent; if an env says nothing, all are here.
  void set_presence(int player, Presence presence) const {
    if (presence_) presence_[row_ * players_ + player] = static_cast<std::uint8_t>(presence);
  }
  // The reward of each player.
  void set_reward(int player, double reward) const {
    if (!takes_rewards_) return;
    const std::int64_t row = row_ * players_ + player;
    if (reward_is_float32_)
      static_cast<float*>(reward_)[row] = static_cast<float>(reward);
    else
      static_cast<double*>(reward_)[row] = reward;
  }

  // The same row, shown after a reset: its rewards belong to the step before.
  Row without_rewards() const {
    Row row = *this;
    row.takes_rewards_ = false;
    return row;
  }

 private:
  void* const* observation_;
  void* const* info_;
  // Of this row. Bools, though the column holds bytes: a byte that is written could be part of anything, and the
  // compiler would load everything again that `observe` has in registers.
  bool* info_present_;
  const std::int64_t* observation_bytes_;
  const std::int64_t* info_bytes_;
  void* reward_;
  std::uint8_t* presence_;
  std::int64_t row_;
  int players_;
  bool reward_is_float32_;
  bool takes_rewards_ = true;
};

// Envs that are stepped together, at most kMost. `outcome(i)` takes what `step` would return.
template <class E>
class Turns {
 public:
  static constexpr int kMost = 64;

  Turns(const sm_shared& shared, std::optional<E>* envs, Rng* rngs, std::int32_t first_id, int players)
      : shared_(shared), envs_(envs), rngs_(rngs), first_id_(first_id), players_(players) {}

  void clear() { size_ = 0; }
  void add(std::int32_t id) { ids_[size_++] = id; }

  int size() const { return size_; }
  std::int32_t id(int i) const { return ids_[i]; }
  E& env(int i) const { return *envs_[ids_[i] - first_id_]; }
  Rng& rng(int i) const { return rngs_[ids_[i] - first_id_]; }
  ActionRow action(int i) const { return ActionRow(shared_, ids_[i], players_); }
  Outcome& outcome(int i) { return outcomes_[i]; }

 private:
  const sm_shared& shared_;
  std::optional<E>* envs_;
  Rng* rngs_;
  std::int32_t first_id_;
  int players_;
  int size_ = 0;
  std::int32_t ids_[kMost];
  Outcome outcomes_[kMost];
};

// Optional parts of an env class, found by name.
template <class E>
concept HasConfiguration = requires { E::configuration(); };
template <class E>
concept HasResetOptions = requires { E::kResetOptions[0]; };
template <class E>
concept HasOptionCheck = requires(const Options& options) { E::check_options(options); };
// Steps envs together, if that is faster. Equal to `step` for each of them, and noexcept: we could not tell which env
// failed.
template <class E>
concept StepsMany = requires(Turns<E>& turns) {
  { E::step_many(turns) } noexcept;
};
// Calls a simulator of another package, which a Python half of the family makes (see below).
template <class E>
concept HasSimulator = requires(const Config& config) { E::spec(config, config); };
// Adds the numbers that a drawing of the env shows: its state, and what Gymnasium's env remembers only to draw it. The
// drawing itself is Python's work (stepmill/sources/drawing.py).
template <class E>
concept HasPicture = requires(const E& env, std::vector<double>& numbers) { env.picture(numbers); };
template <class E>
concept NeverBlocks = requires { requires E::kNeverBlocks; };
// A copy of the env's memory is a copy of the env. The compiler cannot see that there is no pointer in it, so the class
// says it.
template <class E>
concept PlainMemory = requires { requires E::kPlainMemory; };
template <class E>
concept SavesItself = requires(const E& env, E& other, Writer& to, Reader& from) {
  env.save(to);
  other.load(from);
};
// A copy of the env's memory is a copy of the env, but for a table that it reads.
template <class E>
concept ReadsMemory = requires(const E& env) {
  { env.reads()->bytes() } -> std::same_as<std::size_t>;
};
// An env of many players writes its rewards itself, with Row::set_reward.
template <class E>
concept ManyPlayers = requires { requires E::kManyPlayers; };

}  // namespace stepmill
