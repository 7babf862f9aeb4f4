#include "bindings/output/counter_words.h"

#include <span>

#include "bindings/python/bytes.h"
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

template <class F>
auto or_value_error(F read) {
  try {
    return read();
  } catch (const UnreadableCounters& error) {
    throw nb::value_error(error.what());
  }
}

nb::object pools_of(int descriptor) {
  const SeenPools seen = or_value_error([&] { return read_pools(descriptor); });
  nb::list pools;
  for (const SeenPools::Pool& pool : seen.pools) {
    nb::list workers;
    for (const Words& worker : pool.workers) workers.append(bytes_from(worker));
    pools.append(nb::make_tuple(bytes_from(pool.pool), bytes_from(pool.caller), workers));
  }
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

}  // namespace

void register_counter_words(nb::module_& m) {
  m.attr("COUNTER_FILE") = CounterFile::kName;
  m.attr("POOL_WORDS") = names_of(kPoolWords);
  m.attr("WORKER_WORDS") = names_of(kWorkerWords);
  m.attr("HEADER_WORDS") = names_of(std::span(kHeaderWords).first(kHeaderWords.size() - 1));
  m.attr("SHARED_LAYOUT") = shared_layout();
  m.attr("SLOW_WINDOW_S") = kSlowWindow;
  m.def("read_pools", &pools_of, "descriptor"_a,
        "The header and the pools of a counter file: (words, [(pool, caller, [worker, ...]), ...]), words as bytes.");
  m.def("read_words", [](int descriptor, std::uint64_t offset, std::uint64_t count) {
    return bytes_from(or_value_error([&] { return read_words(descriptor, offset, count); }));
  }, "descriptor"_a, "offset"_a, "count"_a, "A part of memory that another process shares with us, as bytes.");
  m.def("read_ticks", &read_ticks, "The clock of the counters.");
  m.def("ticks_per_second", &ticks_per_second);
}

}  // namespace stepmill
