// One thread steps one env: the same state machine as on the host (`core/autoreset.h`) around the same class.
//
// A thread copies its env into registers, lets the machine write the env's row there, and stores what has changed. So the
// class and the machine know nothing of how memory is laid out, and the compiler sees through both.
#pragma once

#include "core/autoreset.h"
#include "gpu/arguments.h"
#include "gpu/limits.h"
#include "gpu/thread.h"

namespace stepmill::gpu {

// The largest piece that the place of a row in a column allows.
template <int bytes>
using PieceOf = std::conditional_t<
    bytes % 16 == 0, uint4,
    std::conditional_t<bytes % 8 == 0, std::uint64_t,
                       std::conditional_t<bytes % 4 == 0, std::uint32_t,
                                          std::conditional_t<bytes % 2 == 0, std::uint16_t, std::uint8_t>>>>;

// How often a loop over words is written out: wholly for a small env, whose words then are registers. For a large one the
// compiler would take minutes.
constexpr int unrolled(int times) { return times <= 160 ? times : 16; }

// Which arrays make up a row. stepmill writes it from what the env says about itself (`stepmill/device/cuda`):
//
//     struct Form {
//       static constexpr sm_autoreset kAutoreset = SM_NEXT_STEP;
//       using Observation = Arrays<bytes of a row, ...>;
//       using Info = Arrays<...>;
//       using Action = Arrays<...>;
//       static bool put_in_space(void* const* action);   // puts an action into its space, and says whether it was outside
//     };
template <int... bytes>
struct Arrays {
  static constexpr int kCount = sizeof...(bytes);
  static constexpr std::int64_t kBytes[kCount + 1] = {bytes..., 0};  // as the tables of the host have them
  static constexpr int pieces() { return (0 + ... + (bytes / static_cast<int>(sizeof(PieceOf<bytes>)))); }
};

constexpr int after(int offset, std::int64_t bytes) { return static_cast<int>((offset + bytes + 15) / 16 * 16); }

template <class Sizes>
constexpr int total() {
  int offset = 0;
  for (const std::int64_t bytes : Sizes::kBytes) offset = after(offset, bytes);
  return offset == 0 ? 16 : offset;
}

// Between memory of the GPU and bytes in registers. These hold numbers of any type, and the compiler may take it that no
// number is read as another: so they are copied as bytes.
template <int bytes, int times>
STEPMILL_INLINE void take_row(std::byte* to, const void* from) {
  using Piece = PieceOf<bytes>;
  STEPMILL_UNROLL_BY(times)
  for (int i = 0; i < bytes; i += static_cast<int>(sizeof(Piece))) {
    const Piece piece = *reinterpret_cast<const Piece*>(static_cast<const std::byte*>(from) + i);
    memcpy(to + i, &piece, sizeof(Piece));
  }
}
template <int bytes, int times>
STEPMILL_INLINE void give_row(void* to, const std::byte* from) {
  using Piece = PieceOf<bytes>;
  STEPMILL_UNROLL_BY(times)
  for (int i = 0; i < bytes; i += static_cast<int>(sizeof(Piece))) {
    Piece piece;
    memcpy(&piece, from + i, sizeof(Piece));
    *reinterpret_cast<Piece*>(static_cast<std::byte*>(to) + i) = piece;
  }
}

// Where some arrays of one row are, one after another.
template <class Sizes>
STEPMILL_INLINE void place(void** places, std::byte* bytes) {
  int offset = 0;
  STEPMILL_UNROLL
  for (int i = 0; i < Sizes::kCount; ++i) {
    places[i] = bytes + offset;
    offset = after(offset, Sizes::kBytes[i]);
  }
}

template <class Sizes, int leaf = 0, int offset = 0>
STEPMILL_INLINE void load_row(std::byte* bytes, const void* const* columns, std::int64_t row) {
  if constexpr (leaf < Sizes::kCount) {
    constexpr int size = static_cast<int>(Sizes::kBytes[leaf]);
    take_row<size, unrolled(Sizes::pieces())>(bytes + offset, static_cast<const std::byte*>(columns[leaf]) + row * size);
    load_row<Sizes, leaf + 1, after(offset, size)>(bytes, columns, row);
  }
}

template <class Sizes, int leaf = 0, int offset = 0>
STEPMILL_INLINE void store_row(const std::byte* bytes, void* const* columns, std::int64_t row) {
  if constexpr (leaf < Sizes::kCount) {
    constexpr int size = static_cast<int>(Sizes::kBytes[leaf]);
    give_row<size, unrolled(Sizes::pieces())>(static_cast<std::byte*>(columns[leaf]) + row * size, bytes + offset);
    store_row<Sizes, leaf + 1, after(offset, size)>(bytes, columns, row);
  }
}

// An env's object, which is kept in words. Only those that have changed are stored: what is constant costs no bandwidth.
template <class E>
struct Memory {
  static constexpr int kWords = static_cast<int>((sizeof(E) + 7) / 8);

  alignas(alignof(E) > 8 ? alignof(E) : 8) std::byte object[8 * kWords];
  std::uint64_t before[kWords];

  STEPMILL_INLINE void load(const std::uint64_t* from, std::int64_t env, std::int64_t num_envs) {
    STEPMILL_UNROLL_BY(unrolled(kWords))
    for (int w = 0; w < kWords; ++w) {
      before[w] = from[w * num_envs + env];
      memcpy(object + 8 * w, &before[w], 8);
    }
  }
  STEPMILL_INLINE void store(std::uint64_t* to, std::int64_t env, std::int64_t num_envs) {
    STEPMILL_UNROLL_BY(unrolled(kWords))
    for (int w = 0; w < kWords; ++w) {
      std::uint64_t word;
      memcpy(&word, object + 8 * w, 8);
      if (word != before[w]) to[w * num_envs + env] = word;
      before[w] = word;
    }
  }
  STEPMILL_INLINE E& env() { return *reinterpret_cast<E*>(object); }
};

STEPMILL_INLINE std::int32_t env_of_thread() { return static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x); }

// Stores the row of a thread, of which `columns` has the rest. `observation` and `info` may be those of an end.
template <class Form>
STEPMILL_INLINE void give(const Results& to, std::int32_t id, const sm_columns& columns, const std::byte* observation,
                          const std::byte* info, const std::uint8_t* has_info, bool abnormal) {
  store_row<typename Form::Observation>(observation, to.observation, id);
  store_row<typename Form::Info>(info, to.info, id);
  STEPMILL_UNROLL
  for (int i = 0; i < Form::Info::kCount; ++i) to.has_info[i][id] = has_info[i];
  to.reward[id] = *static_cast<const float*>(columns.reward);
  to.terminated[id] = *columns.terminated;
  to.truncated[id] = *columns.truncated;
  to.ended[id] = *columns.ended;
  to.abnormal[id] = abnormal;
  to.env_id[id] = id;
  to.elapsed_step[id] = *columns.elapsed_step;
  to.episode_length[id] = *columns.episode_length;
  to.episode_return[id] = *columns.episode_return;
}

// Infos that were written and taken back: they are 0, like those that were not written.
template <class Info>
STEPMILL_INLINE void clear_absent(void* const* infos, const std::uint8_t* has_info) {
  STEPMILL_UNROLL
  for (int i = 0; i < Info::kCount; ++i)
    if (!has_info[i]) memset(infos[i], 0, static_cast<std::size_t>(Info::kBytes[i]));
}

// What the row of an env that did not end has instead, with `same_step`.
template <class Form>
STEPMILL_INLINE void give_final(const Results& to, std::int32_t id, const std::byte* observation, const std::byte* info,
                                const std::uint8_t* has_info, bool ended) {
  if (ended) {
    store_row<typename Form::Observation>(observation, to.final_observation, id);
    store_row<typename Form::Info>(info, to.final_info, id);
  }
  STEPMILL_UNROLL
  for (int i = 0; i < Form::Info::kCount; ++i) to.has_final_info[i][id] = ended ? has_info[i] : 0;
}

// What the machine is given of the env of a thread. It points to locals of one function, each of them a variable of its
// own: so the compiler can keep all of them in registers.
template <class E, class Form>
struct Turnstile {
  const Arguments* arguments;
  const sm_shared* shared;
  const sm_columns* columns;
  std::int32_t id;
  sm_env_state* state;
  sm_reset_request* request;
  Memory<E>* memory;
  Rng* rng;
  std::int64_t* resets;
  const std::byte *final_observation, *final_info;
  const std::uint8_t* has_final_info;

  STEPMILL_INLINE Visit<E> visit(std::int32_t entry) const {
    return {*shared, entry, id, *state, *request, memory->env(), *rng, *resets};
  }
  STEPMILL_INLINE Place place(const Visit<E>&) const { return {*columns, 0}; }
  void fault(std::int32_t, int) const {}  // nothing is caught here
  STEPMILL_INLINE void keep_end(const Visit<E>&) const {
    if constexpr (Form::kAutoreset != SM_SAME_STEP) return;
    const Arguments& a = *arguments;
    give<Form>(a.results, id, *columns, final_observation, final_info, has_final_info, true);
    give_final<Form>(a.results, id, final_observation, final_info, has_final_info, true);
    memory->store(a.envs.memory, id, a.num_envs);
    a.envs.episode_return[id] = state->episode_return;
    a.envs.elapsed[id] = state->elapsed;
    remains_of_thread().shows_end = true;
  }
  STEPMILL_INLINE void keep_reset(const Visit<E>&) const {
    Remains& remains = remains_of_thread();
    remains.was_reset = true;
    remains.elapsed = 0;
  }
};

template <class E, class Form>
STEPMILL_INLINE void advance(const Arguments& a) {
  using Observation = typename Form::Observation;
  using Info = typename Form::Info;
  using Action = typename Form::Action;
  using In = Turnstile<E, Form>;
  using Machine = Autoreset<E, In>;
  const std::int32_t id = env_of_thread();
  if (id >= a.num_envs || (a.which && !a.which[id])) return;
  arguments_of_block() = &a;

  // All that every env needs: a thread waits once for what it has asked for.
  alignas(16) std::byte action[total<Action>()];
  load_row<Action>(action, a.action, id);
  Memory<E> memory;
  memory.load(a.envs.memory, id, a.num_envs);
  Seldom& seldom = a.envs.seldom[id];
  Rng rng(seldom);
  std::uint32_t phase = a.envs.phase[id];
  sm_env_state state;
  state.episode_return = a.envs.episode_return[id];
  state.elapsed = a.envs.elapsed[id];
  state.phase = static_cast<std::uint8_t>(phase);
  state.command = a.command ? a.command[id] : static_cast<std::uint8_t>(SM_STEP);
  state.failures = static_cast<std::uint16_t>(phase >> 16);
  state.episode = 0;        // nobody asks for it here,
  std::int64_t resets = 0;  // nor for this
  sm_reset_request request{};
  // Seeds and options are kept until a reset has gone well.
  if (a.has_seed && a.has_seed[id]) {
    seldom.seed = a.seed[id];
    a.envs.phase[id] = phase |= kHasSeed;
  }
  if (state.command == SM_RESET) {
    seldom.option_mask = a.option_mask;
    STEPMILL_UNROLL
    for (int i = 0; a.option && i < SM_MAX_RESET_OPTIONS; ++i) seldom.option[i] = a.option[i];
    a.envs.phase[id] = phase = a.option_mask ? phase | kHasOptions : phase & ~kHasOptions;
  }
  if (phase & kHasSeed) {
    request.has_seed = 1;
    request.seed = seldom.seed;
  }
  if (phase & kHasOptions) {
    request.option_mask = seldom.option_mask;
    STEPMILL_UNROLL
    for (int i = 0; i < SM_MAX_RESET_OPTIONS; ++i) request.option[i] = seldom.option[i];
  }

  // Its row.
  alignas(16) std::byte observation[total<Observation>()], final_observation[total<Observation>()];
  alignas(16) std::byte info[total<Info>()] = {}, final_info[total<Info>()] = {};  // 0 where an env says nothing
  void *observations[Observation::kCount + 1], *final_observations[Observation::kCount + 1];
  void *infos[Info::kCount + 1], *final_infos[Info::kCount + 1], *actions[Action::kCount + 1];
  place<Observation>(observations, observation);
  place<Observation>(final_observations, final_observation);
  place<Info>(infos, info);
  place<Info>(final_infos, final_info);
  place<Action>(actions, action);
  std::uint8_t has_info[Info::kCount + 1], has_final_info[Info::kCount + 1];
  float reward;
  std::uint8_t terminated, truncated, ended = 0;
  std::int32_t env_id, elapsed_step, episode_length = 0;
  double episode_return = 0;

  sm_shared shared{};
  shared.action = actions;
  shared.action_bytes = Action::kBytes;
  shared.observation_bytes = Observation::kBytes;
  shared.info_bytes = Info::kBytes;
  shared.observation_leaves = Observation::kCount;
  shared.info_leaves = Info::kCount;
  shared.autoreset = Form::kAutoreset;
  shared.max_episode_steps = a.max_episode_steps;
  shared.max_num_players = 1;
  shared.reward_is_float32 = 1;

  sm_columns columns{};
  columns.observation = observations;
  columns.final_observation = final_observations;
  columns.info = infos;
  columns.final_info = final_infos;
  columns.info_present = has_info;
  columns.final_info_present = has_final_info;
  columns.reward = &reward;
  columns.terminated = &terminated;
  columns.truncated = &truncated;
  columns.ended = &ended;
  columns.env_id = &env_id;
  columns.elapsed_step = &elapsed_step;
  columns.episode_length = &episode_length;
  columns.episode_return = &episode_return;

  Remains& remains = remains_of_thread();
  remains.elapsed = state.elapsed;
  remains.has_drawn = remains.was_reset = remains.shows_end = false;
  const In in{&a,      &shared, &columns, id,                &state,     &request,
              &memory, &rng,    &resets,  final_observation, final_info, has_final_info};
  if (Machine::will_step(state)) {
    if (Form::put_in_space(actions)) note_least(&a.notes->bad_action, id);
    clear_infos(shared, has_info, 0, 1);
    const Outcome outcome = memory.env().step(ActionRow(shared, 0, 1), rng);
    remains.elapsed = state.elapsed + 1;
    Machine::finish_step(in, 0, shared, columns, memory.env(), state, id, 0, outcome);
  } else {
    Machine::start_or_look(in, 0);
    clear_absent<Info>(infos, has_info);
  }

  memory.store(a.envs.memory, id, a.num_envs);
  rng.store();
  a.envs.episode_return[id] = state.episode_return;
  a.envs.elapsed[id] = state.elapsed;
  const std::uint32_t phase_now =
      state.phase | (request.has_seed ? kHasSeed : 0) | (request.option_mask ? kHasOptions : 0) |
      static_cast<std::uint32_t>(state.failures) << 16;
  if (phase_now != phase) a.envs.phase[id] = phase_now;
  // Nobody else writes it, but adding in this way needs no waiting for what it was.
  if (ended) atomicAdd(&seldom.ended, 1u);

  give<Form>(a.results, id, columns, observation, info, has_info, false);
  if constexpr (Form::kAutoreset == SM_SAME_STEP)
    give_final<Form>(a.results, id, final_observation, final_info, has_final_info, ended);
}

// The row of an env that failed, and what is left of the env: its object is as it was before the step (if the reset after a
// good end has failed, as that end left it), its generator is where it was, and it has to be reset.
template <class Form>
[[noreturn]] void fail() {
  const Arguments& a = *arguments_of_block();
  const Remains& remains = remains_of_thread();
  const std::int32_t id = env_of_thread();
  const Results& to = a.results;
  const std::uint32_t phase = a.envs.phase[id];
  std::uint32_t failures = phase >> 16;
  if (remains.shows_end) {
    failures = 0;  // the step was good
    atomicAdd(&a.envs.seldom[id].ended, 1u);
  } else {
    for (int leaf = 0; leaf < Form::Observation::kCount; ++leaf) {
      const std::int64_t bytes = Form::Observation::kBytes[leaf];
      memset(static_cast<std::byte*>(to.observation[leaf]) + id * bytes, 0, static_cast<std::size_t>(bytes));
    }
    for (int leaf = 0; leaf < Form::Info::kCount; ++leaf) {
      const std::int64_t bytes = Form::Info::kBytes[leaf];
      memset(static_cast<std::byte*>(to.info[leaf]) + id * bytes, 0, static_cast<std::size_t>(bytes));
      to.has_info[leaf][id] = 0;
      if (Form::kAutoreset == SM_SAME_STEP) to.has_final_info[leaf][id] = 0;
    }
    to.reward[id] = 0;
    to.terminated[id] = 0;
    to.truncated[id] = 1;
    to.ended[id] = 0;
    to.abnormal[id] = 1;
    to.env_id[id] = id;
    to.elapsed_step[id] = remains.elapsed;
    to.episode_length[id] = 0;
    to.episode_return[id] = 0;
  }
  a.envs.elapsed[id] = remains.elapsed;
  a.envs.phase[id] = SM_ENDED | (remains.was_reset ? 0 : phase & (kHasSeed | kHasOptions)) |
                     (failures < SM_MOST_FAILURES ? failures + 1 : failures) << 16;
  if (remains.has_drawn)
    for (int i = 0; i < 5; ++i) a.envs.seldom[id].random[i] = remains.random[i];
  atomicAdd(&a.notes->failures, 1ULL);
  note_least(&a.notes->failed, id);
  end_thread();
}

inline void copy_env(const Copy& c) {
  const std::int32_t i = env_of_thread();
  if (i >= c.num_envs) return;
  const std::int64_t from = c.from_index ? c.from_index[i] : i, to = c.to_index ? c.to_index[i] : i;
  for (std::int64_t w = 0; w < c.words; ++w) c.to.memory[w * c.to_count + to] = c.from.memory[w * c.from_count + from];
  const std::uint32_t ended = c.goes_on_counting ? c.to.seldom[to].ended : 0;
  c.to.seldom[to] = c.from.seldom[from];
  c.to.seldom[to].ended = ended;
  c.to.episode_return[to] = c.from.episode_return[from];
  c.to.elapsed[to] = c.from.elapsed[from];
  c.to.phase[to] = c.from.phase[from];
}

inline void take_notes(const TakeNotes& t) {
  if (env_of_thread() != 0) return;
  t.to->failures = atomicExch(&t.from->failures, 0ULL);
  t.to->bad_action = atomicExch(&t.from->bad_action, 0u);
  t.to->failed = atomicExch(&t.from->failed, 0u);
}

inline void count_env(const Count& c) {
  const std::int32_t i = env_of_thread();
  if (i < c.num_envs && c.envs.seldom[i].ended) atomicAdd(c.ended, static_cast<unsigned long long>(c.envs.seldom[i].ended));
}

}  // namespace stepmill::gpu

#define STEPMILL_GPU_ENV(Class, Form)                                                          \
  void stepmill::gpu::fail_thread() { stepmill::gpu::fail<Form>(); }                           \
  STEPMILL_KERNEL void stepmill_step(STEPMILL_PARAMETER stepmill::gpu::Arguments arguments) {  \
    stepmill::gpu::advance<Class, Form>(arguments);                                            \
  }                                                                                            \
  STEPMILL_KERNEL void stepmill_copy(STEPMILL_PARAMETER stepmill::gpu::Copy arguments) {       \
    stepmill::gpu::copy_env(arguments);                                                        \
  }                                                                                            \
  STEPMILL_KERNEL void stepmill_count(STEPMILL_PARAMETER stepmill::gpu::Count arguments) {     \
    stepmill::gpu::count_env(arguments);                                                       \
  }                                                                                            \
  STEPMILL_KERNEL void stepmill_take_notes(STEPMILL_PARAMETER stepmill::gpu::TakeNotes arguments) { \
    stepmill::gpu::take_notes(arguments);                                                      \
  }                                                                                            \
  STEPMILL_ON_HOST(stepmill_step, stepmill::gpu::Arguments)                                    \
  STEPMILL_ON_HOST(stepmill_take_notes, stepmill::gpu::TakeNotes)                              \
  STEPMILL_ON_HOST(stepmill_copy, stepmill::gpu::Copy)                                         \
  STEPMILL_ON_HOST(stepmill_count, stepmill::gpu::Count)
