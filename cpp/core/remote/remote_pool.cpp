#include "core/remote/remote_pool.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/failed_row.h"
#include "core/next_seed.h"

namespace stepmill {

RemotePool::RemotePool(EnvSpec spec, const PoolOptions& options, std::vector<std::int32_t> first_envs,
                       std::vector<std::uint64_t> seeds)
    : Pool(std::move(spec), options, BatchRing::places_for(options.table.num_envs, options.batch_size), 0),
      orders_(table_, spec_),
      answers_(spec_, options.table, table_),
      states_(table_),
      first_(std::move(first_envs)),
      ring_(arena_->at(arena_->grow(BatchRing::bytes(num_envs(), options.batch_size), kCacheLine)), num_envs(),
            options.batch_size),
      place_(static_cast<std::size_t>(num_envs()), Place::kIdle),
      lost_(static_cast<std::size_t>(num_envs())),
      is_new_(static_cast<std::size_t>(num_envs())),
      seeds_(std::move(seeds)),
      waiting_(first_.size()),
      away_count_(first_.size()),
      lives_(first_.size()),
      losses_(first_.size()) {
  first_.push_back(num_envs());
  counters_->publish();
}

int RemotePool::group_of(std::int32_t env) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), env) - first_.begin()) - 1;
}

// ---- sending -----------------------------------------------------------------------------------

void RemotePool::start(std::span<const std::int32_t> envs, bool, bool) {
  for (const std::int32_t env : envs) {
    const auto e = static_cast<std::size_t>(env);
    keep_seed(env);
    const int group = group_of(env);
    // A reset starts over, whatever was lost, and an env that was given a saved state goes on from there.
    const std::uint8_t command = table_.state(env).command;
    const bool fails = lost_[e] && command != SM_RESET && command != SM_RECALL;
    lost_[e] = 0;
    if (fails) {
      fail(env, losses_[static_cast<std::size_t>(group)]);
      continue;
    }
    place_[e] = Place::kWaiting;
    has_more_waiting_ = true;
    waiting_[static_cast<std::size_t>(group)].push_back(env);
  }
}

void RemotePool::pack(int group, std::size_t count, std::span<std::byte> to) {
  auto& waiting = waiting_[static_cast<std::size_t>(group)];
  const std::span<const std::int32_t> envs(waiting.data(), count);
  orders_.pack(envs, first_[static_cast<std::size_t>(group)], to);
  for (const std::int32_t env : envs) place_[static_cast<std::size_t>(env)] = Place::kAway;
  away_count_[static_cast<std::size_t>(group)] += static_cast<std::int32_t>(count);
  waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
}

// An env that is lost gets a seed that follows from its last one.
void RemotePool::keep_seed(std::int32_t env) {
  if (table_.reset_request(env).has_seed) seeds_[static_cast<std::size_t>(env)] = table_.reset_request(env).seed;
}

bool RemotePool::is_new(std::int32_t env) const {
  const auto e = static_cast<std::size_t>(env);
  return Pool::is_new(env) || (is_new_[e] && !lost_[e]);
}

void RemotePool::adopt(std::int32_t env, std::optional<std::uint32_t> lives) {
  Pool::adopt(env, lives);
  seeds_[static_cast<std::size_t>(env)] = table_.reset_request(env).seed;
}

// ---- lending -----------------------------------------------------------------------------------

std::vector<std::byte> RemotePool::lend(int group, std::span<const std::int32_t> envs) {
  const std::int32_t first = first_[static_cast<std::size_t>(group)], end = first_[static_cast<std::size_t>(group) + 1];
  for (const std::int32_t env : envs)
    if (env < first || env >= end || in_flight(env) || place_[static_cast<std::size_t>(env)] != Place::kIdle)
      throw std::invalid_argument("env " + std::to_string(env) + " is not an idle env of its group");
  std::vector<std::byte> parcel(states_.bytes(envs.size()));
  states_.pack(envs, first, parcel);
  for (const std::int32_t env : envs) {
    keep_seed(env);
    place_[static_cast<std::size_t>(env)] = Place::kLent;
  }
  return parcel;
}

void RemotePool::take_back(int group, std::span<const std::byte> states) { take_states(group, states, Place::kLent); }

void RemotePool::keep_last(std::span<const std::int32_t> envs, int leaf, std::span<const std::byte> rows) const {
  const sm_shared& shared = table_.shared();
  if (!shared.last_observation) return;
  const auto bytes = leaf < shared.observation_leaves
                         ? static_cast<std::size_t>(shared.observation_bytes[leaf] * shared.max_num_players)
                         : 0;
  if (bytes == 0 || rows.size() != envs.size() * bytes)
    throw BrokenParcel(std::to_string(rows.size()) + " bytes of observations for " + std::to_string(envs.size()) + " envs");
  auto* to = static_cast<std::byte*>(shared.last_observation[leaf]);
  for (std::size_t i = 0; i < envs.size(); ++i)
    std::memcpy(to + static_cast<std::size_t>(envs[i]) * bytes, rows.data() + i * bytes, bytes);
}

// ---- answers -----------------------------------------------------------------------------------

// The states of envs that come from there, in the table: they are idle again. Throws BrokenParcel, like `unpack`.
std::vector<std::int32_t> RemotePool::take_states(int group, std::span<const std::byte> states, Place from) {
  const std::int32_t first = first_[static_cast<std::size_t>(group)], end = first_[static_cast<std::size_t>(group) + 1];
  std::vector<std::int32_t> envs = states_.envs(states, end - first);
  for (std::size_t i = 0; i < envs.size(); ++i)
    if (place_[static_cast<std::size_t>(first + envs[i])] != from || states_.state(states, i).phase > SM_ENDED)
      throw BrokenParcel("the state of env " + std::to_string(first + envs[i]) + ", which was not asked for");
  states_.unpack(states, envs, first);
  for (std::int32_t& env : envs) {
    env += first;
    table_.state(env).command = SM_STEP;
    place_[static_cast<std::size_t>(env)] = Place::kIdle;
    is_new_[static_cast<std::size_t>(env)] = 0;
  }
  return envs;
}

std::int32_t RemotePool::unpack(int group, std::span<const std::byte> rows) {
  const AnswerRows::Parts answer = answers_.split(rows);
  const std::vector<std::int32_t> envs = take_states(group, answer.states, Place::kAway);
  const auto count = static_cast<std::int32_t>(envs.size());
  away_count_[static_cast<std::size_t>(group)] -= count;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t env = envs[static_cast<std::size_t>(i)];
    const Row row = take_row(env);
    copy_row(env, row, answer.layout, answer.batch, i);
    keep_last(env, row);
    finish_row(env, row);
  }
  return count;
}

// For failures of which the other end cannot tell: if it is lost.
void RemotePool::keep_last(std::int32_t env, const Row& row) const {
  const sm_shared& shared = table_.shared();
  if (!shared.last_observation) return;
  for (int leaf = 0; leaf < shared.observation_leaves; ++leaf) {
    const std::int64_t bytes = shared.observation_bytes[leaf] * shared.max_num_players;
    std::memcpy(static_cast<std::byte*>(shared.last_observation[leaf]) + env * bytes,
                static_cast<std::byte*>(row.buffer.columns.c.observation[leaf]) + row.number * bytes,
                static_cast<std::size_t>(bytes));
  }
}

// ---- failures ----------------------------------------------------------------------------------

void RemotePool::lose(int group, const Fault& reason) {
  const auto g = static_cast<std::size_t>(group);
  lives_[g] += 1;
  losses_[g] = reason;
  waiting_[g].clear();
  away_count_[g] = 0;
  for (std::int32_t env = first_[g]; env < first_[g + 1]; ++env) {
    const auto e = static_cast<std::size_t>(env);
    const Place place = std::exchange(place_[e], Place::kIdle);
    if (place == Place::kWaiting || place == Place::kAway) {
      fail(env, reason);
      continue;
    }
    if (place == Place::kLent || table_.state(env).phase == SM_LIVE) lost_[e] = 1;
    reseed(env);  // also if its episode is over: its next reset would draw from a generator that is gone
  }
}

std::vector<Fault> RemotePool::take_losses(std::span<const std::int32_t> envs) {
  std::vector<Fault> out;
  for (const std::int32_t env : envs)
    if (std::exchange(lost_[static_cast<std::size_t>(env)], std::uint8_t{0}))
      out.push_back(mark_failed(env, losses_[static_cast<std::size_t>(group_of(env))]));
  return out;
}

void RemotePool::fail(std::int32_t env, const Fault& reason) {
  const Row row = take_row(env);
  const sm_shared& shared = table_.shared();
  write_failed_row(shared, row.buffer.columns.c, row.number, env, table_.state(env).elapsed,
                   [&](int leaf) -> const std::byte* {
                     if (!shared.last_observation) return nullptr;
                     return static_cast<const std::byte*>(shared.last_observation[leaf]) +
                            env * shared.observation_bytes[leaf] * shared.max_num_players;
                   });
  const sm_env_state& state = table_.state(env);
  const bool resets = state.phase != SM_LIVE || state.command == SM_RESET;
  Fault fault = mark_failed(env, reason);
  if (resets) fault.phase = SM_IN_RESET;
  faults_.add(std::move(fault));
  finish_row(env, row);
}

// What a failure means for an env, and who it was.
Fault RemotePool::mark_failed(std::int32_t env, Fault reason) {
  sm_env_state& state = table_.state(env);
  state.phase = SM_ENDED;
  state.command = SM_STEP;
  if (state.failures < SM_MOST_FAILURES) state.failures += 1;
  reseed(env);
  reason.env = env;
  reason.episode = state.episode;
  reason.step = state.elapsed;
  reason.failures = state.failures;
  return reason;
}

// An env that is built again gets a new seed, unless a seed waits for its next reset.
void RemotePool::reseed(std::int32_t env) {
  is_new_[static_cast<std::size_t>(env)] = 1;
  sm_reset_request& request = table_.reset_request(env);
  if (request.has_seed) return;
  request.seed = next_seed(seeds_[static_cast<std::size_t>(env)], lives(env));
  request.has_seed = 1;
}

}  // namespace stepmill
