#include "bindings/engine_tap.h"

#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <utility>

#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "bindings/python/values.h"
#include "core/counters/counter_file.h"
#include "core/counters/counter_reader.h"
#include "core/counters/pool_record.h"
#include "core/process/process_layout.h"
#include "core/counters/ticks.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stepmill {
namespace {

nb::object bytes_from(const Words& words) { return to_bytes(std::as_bytes(std::span(words))); }

nb::object bytes_from(const PoolWords& words) {
  nb::list workers;
  for (const Words& worker : words.workers) workers.append(bytes_from(worker));
  return nb::make_tuple(bytes_from(words.pool), bytes_from(words.caller), workers);
}

nb::object pools_of(int descriptor) {
  const SeenPools seen = read_pools(descriptor);
  nb::list pools;
  for (const PoolWords& pool : seen.pools) pools.append(bytes_from(pool));
  return nb::make_tuple(bytes_from(seen.header), pools);
}

template <class Names>
nb::object names_of(const Names& words) {
  nb::list out;
  for (const WordName& one : words) out.append(nb::make_tuple(one.name, one.count));
  return nb::tuple(out);
}

// Where things are in the memory that a pool shares with its worker processes.
nb::dict shared_layout() {
  nb::dict out;
  out["worker_words"] = sizeof(WorkerBlock) / sizeof(Word);
  out["worker_busy_ns"] = offsetof(WorkerBlock, busy_ns) / sizeof(Word);
  out["worker_steps"] = offsetof(WorkerBlock, steps) / sizeof(Word);
  out["times_buckets"] = StepTimes::kBuckets;
  nb::list bounds;
  for (int bucket = 0; bucket < StepTimes::kBuckets; ++bucket) bounds.append(StepTimes::upper_bound_ns(bucket));
  out["times_bounds_ns"] = bounds;
  out["stage_running"] = static_cast<int>(Stage::kRunning);
  return out;
}

nb::tuple numbers_in(const WatchBook& book, std::int32_t env) {
  if (!book.has(env)) raise("EnvIdError", "env_id " + std::to_string(env) + " is out of range");
  const WatchBook::EnvNumbers its = book.numbers(env);
  return nb::make_tuple(its.episode_return, its.elapsed, its.episodes, its.last_return, its.failures);
}

nb::list recent_in(const WatchBook& book) {
  nb::list out;
  for (const auto& [episode_return, length] : book.recent()) out.append(nb::make_tuple(episode_return, length));
  return out;
}

nb::list rewards_in(const WatchBook& book, const std::vector<std::int32_t>& envs, std::size_t most) {
  for (const std::int32_t env : envs)
    if (!book.has(env)) raise("EnvIdError", "env_id " + std::to_string(env) + " is out of range");
  nb::list out;
  for (const auto& [values, ends] : book.rewards(envs, most)) out.append(nb::make_tuple(nb::cast(values), nb::cast(ends)));
  return out;
}

}  // namespace

Tap::Tap(nb::handle engine)
    : engine_(nb::steal(PyWeakref_NewRef(engine.ptr(), nullptr))), counters_(nb::cast<Engine&>(engine).counters_) {}

nb::object Tap::counters() const { return bytes_from(counters_->copy()); }

nb::dict Tap::figures() const {
  nb::dict out;
  const nb::object held = engine();
  if (held.is_none()) return out;
  const Engine& its = nb::cast<const Engine&>(held);
  if (its.host_.has_ended()) return out;
  const Pool& pool = its.pool();
  out["step_cost_ns"] = pool.step_cost_ns();
  out["threads_started"] = pool.threads_started();
  out["in_flight"] = its.in_flight_count();
  out["batches_held"] = pool.batches_held();
  out["memory_bytes"] = pool.memory();
  out["locked_bytes"] = pool.locked();
  its.host_.add_stats(out);
  return out;
}

void Tap::watch(nb::object book, nb::object look) const {
  const nb::object held = engine();
  if (held.is_none()) return;
  Engine& its = nb::cast<Engine&>(held);
  its.watching_.reset();
  if (!book.is_none())
    its.watching_.emplace(
        Engine::Watching{book, std::move(look), &nb::cast<WatchBook&>(book), Clock::time_point::min()});
}

void register_tap(nb::module_& m) {
  nb::class_<Tap>(m, "Tap")
      .def(nb::init<nb::handle>(), "engine"_a)
      .def("counters", &Tap::counters)
      .def("figures", &Tap::figures)
      .def("watch", &Tap::watch, "book"_a.none(), "look"_a.none());

  nb::class_<WatchBook>(m, "WatchBook")
      .def(nb::init<std::int32_t>(), "num_envs"_a)
      .def("look_every", [](WatchBook& book, double seconds) { book.look_every_ns = interval_of(seconds).count(); },
           "seconds"_a)
      .def("numbers", &numbers_in, "env_id"_a)
      .def("recent", &recent_in)
      .def("take_returns", [](WatchBook& book) {
            const auto [sum, count] = book.take_returns();
            return nb::make_tuple(sum, count);
          })
      .def("rewards", &rewards_in, "env_ids"_a, "most"_a);

  m.attr("COUNTER_FILE") = CounterFile::kName;
  m.attr("POOL_WORDS") = names_of(kPoolWords);
  m.attr("WORKER_WORDS") = names_of(kWorkerWords);
  m.attr("HEADER_WORDS") = names_of(std::span(kHeaderWords).first(kHeaderWords.size() - 1));
  m.attr("SHARED_LAYOUT") = shared_layout();
  m.attr("SLOW_WINDOW_S") = kSlowWindow;
  m.def("read_pools", &pools_of, "descriptor"_a,
        "The header and the pools of a counter file: (words, [(pool, caller, [worker, ...]), ...]), words as bytes.");
  m.def("read_words", [](int descriptor, std::uint64_t offset, std::uint64_t count) {
    return bytes_from(read_words(descriptor, offset, count));
  }, "descriptor"_a, "offset"_a, "count"_a, "A part of memory that another process shares with us, as bytes.");
  m.def("read_ticks", &read_ticks, "The clock of the counters.");
  m.def("ticks_per_second", &ticks_per_second);
}

}  // namespace stepmill
