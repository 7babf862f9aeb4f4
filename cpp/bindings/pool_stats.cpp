// What a pool tells of itself.
#include "bindings/numpy_api.h"

#include "bindings/pool_object.h"

#include <algorithm>
#include <array>

#include "bindings/errors.h"

namespace nb = nanobind;

namespace stepmill {

nb::object PoolObject::stats() const {
  nb::dict out;
  const double age = std::chrono::duration<double>(Clock::now() - counts_.since).count();
  out["batches"] = counts_.batches;
  out["steps"] = counts_.steps;
  out["episodes"] = counts_.episodes;
  out["steps_per_second"] = age > 0.0 ? static_cast<double>(counts_.steps) / age : 0.0;
  if (!pool_) return out;
  out["step_cost_ns"] = pool_->step_cost_ns();
  out["threads_started"] = pool_->threads_started();
  out["in_flight"] = in_flight_count();
  out["batches_held"] = pool_->batches_held();
  out["memory_bytes"] = pool_->memory();
  if (processes_) out.update(process_stats(age));
  return out;
}

nb::dict PoolObject::process_stats(double age) const {
  nb::list workers;
  std::uint32_t restarts = 0;
  for (const ProcessPool::WorkerStats& w : processes_->worker_stats()) {
    nb::dict one;
    // None, not a number that kill() takes for everybody.
    one["pid"] = w.pid > 0 ? nb::object(nb::int_(w.pid)) : nb::none();
    one["alive"] = w.alive;
    one["use"] = age > 0.0 ? std::min(1.0, w.busy_s / age) : 0.0;
    one["busy_seconds"] = w.busy_s;
    one["actions"] = w.steps;
    one["restarts"] = w.restarts;
    one["outbox_bytes"] = w.outbox_bytes;
    workers.append(one);
    restarts += w.restarts;
  }
  // A column for each percentile, a row an env.
  constexpr std::array<double, 3> kParts = {0.5, 0.9, 0.99};
  constexpr std::array<const char*, 3> kNames = {"p50", "p90", "p99"};
  npy_intp count = pool_->num_envs();
  std::array<nb::object, 3> columns;
  for (nb::object& column : columns) column = owned(PyArray_ZEROS(1, &count, NPY_FLOAT64, 0));
  for (std::int32_t env = 0; env < pool_->num_envs(); ++env) {
    const auto values = processes_->step_percentiles(env, kParts);
    for (std::size_t k = 0; k < kParts.size(); ++k)
      static_cast<double*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(columns[k].ptr())))[env] = values[k];
  }
  nb::dict times;
  for (std::size_t k = 0; k < kParts.size(); ++k) times[kNames[k]] = columns[k];
  nb::dict out;
  out["workers"] = workers;
  out["restarts"] = restarts;
  out["step_seconds"] = times;
  return out;
}

}  // namespace stepmill
