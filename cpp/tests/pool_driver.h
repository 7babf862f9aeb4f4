// A pool as its bindings drive it: write actions, send, wait, take the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/local_pool.h"
#include "tests/obedient_env.h"
#include "tests/rows.h"

namespace stepmill::test {

using Ids = std::vector<std::int32_t>;

inline Ids all_of(std::int32_t count) {
  Ids out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

struct DriverOptions {
  std::int32_t num_envs = 4, batch_size = 4, num_threads = 2;
  std::int64_t work = 1;
  bool as_ready = false;
  sm_autoreset autoreset = SM_NEXT_STEP;
  std::int32_t max_episode_steps = 0;
  bool keep_last_observation = false;
  Arena::Kind arena = Arena::Kind::kPrivate;

  TableOptions table() const {
    TableOptions out;
    out.num_envs = num_envs;
    out.max_episode_steps = max_episode_steps;
    out.autoreset = autoreset;
    out.keep_last_observation = keep_last_observation;
    return out;
  }
  PoolOptions pool() const {
    PoolOptions out;
    out.table = table();
    out.batch_size = batch_size;
    out.as_ready = as_ready;
    out.num_threads = num_threads;
    out.arena = arena;
    return out;
  }
};

inline DriverOptions sync_of(std::int32_t envs, std::int32_t threads = 2, std::int64_t work = 1) {
  DriverOptions options;
  options.num_envs = options.batch_size = envs;
  options.num_threads = threads;
  options.work = work;
  return options;
}

inline DriverOptions async_of(std::int32_t envs, std::int32_t batch, std::int32_t threads = 2, std::int64_t work = 1) {
  DriverOptions options = sync_of(envs, threads, work);
  options.batch_size = batch;
  return options;
}

// Sends whatever it is told to an obedient pool.
class Driver {
 public:
  explicit Driver(const DriverOptions& o)
      : options(o),
        pool(std::make_unique<EnvSet>(obedient_table(), obedient_configs(o.num_envs, o.work)), obedient_spec(),
             o.pool()) {
    for (std::int32_t env = 0; env < o.num_envs; ++env) seed(env, static_cast<std::uint64_t>(env));
  }

  void seed(std::int32_t env, std::uint64_t value) {
    pool.table().reset_request(env).seed = value;
    pool.table().reset_request(env).has_seed = 1;
  }
  void write(std::int32_t env, std::int64_t order) {
    reinterpret_cast<std::int64_t*>(pool.table().action(0))[env] = order;
  }

  void send(const Ids& envs, std::int64_t order, bool recv_follows = false) {
    for (const std::int32_t env : envs) write(env, order);
    pool.send(envs, false, recv_follows);
  }
  void send_reset(const Ids& envs, bool gather) {
    for (const std::int32_t env : envs) pool.table().state(env).command = SM_RESET;
    pool.send(envs, gather, gather);
  }

  // A wake that was lost would last for kLongEnough.
  void wait() {
    constexpr auto kLongEnough = std::chrono::seconds(20);
    const auto end = Clock::now() + kLongEnough;
    while (!pool.ready()) {
      if (Clock::now() >= end) throw std::runtime_error("recv hangs");
      pool.work_or_wait(kLongEnough);
    }
    if (Clock::now() >= end) throw std::runtime_error("recv was not woken");
  }
  Batch recv() {
    wait();
    faults.clear();
    return pool.take_batch(faults);
  }
  // What is ready, once so many rows are.
  Batch recv_some(std::int32_t at_least, bool steps_only = false) {
    pool.be_content_with(at_least, steps_only);
    wait();
    pool.be_content_with(0);
    if (!pool.ready()) pool.seal_early();
    return recv();
  }
  void drop(const Batch& batch) { batch.store->release(batch.buffer); }
  void recv_and_drop() { drop(recv()); }

  Ids ids(const Batch& batch) const {
    const std::int32_t* first = batch.buffer->columns.c.env_id;
    return {first, first + batch.rows};
  }
  std::string row(const Batch& batch, std::int32_t index) const {
    return row_bytes(pool.spec(), pool.options().table, batch.buffer->columns.c, index);
  }

  const DriverOptions options;
  LocalPool pool;
  std::vector<Fault> faults;
};

// What an obedient env shows of itself.
inline double steps_of(const Batch& batch, std::int32_t row) {
  return static_cast<double*>(batch.buffer->columns.c.observation[0])[row * 4];
}
inline double resets_of(const Batch& batch, std::int32_t row) {
  return static_cast<double*>(batch.buffer->columns.c.observation[0])[row * 4 + 1];
}

}  // namespace stepmill::test
