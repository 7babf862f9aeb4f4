// Workers that are stopped at points of the protocol: they miss their deadline, and when they wake they change nothing.

#include <cstring>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/process/kill_points.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"
#include "tests/zeroed_memory.h"

namespace stepmill::kill_points_stopped_test {

using test::Case;
using test::kPoints;
using test::Ledger;
using test::one_env_each;
using test::Point;
using test::ProcessDriverOptions;
using test::Processes;
using test::Trap;

constexpr std::uint64_t kDeadline = 100'000'000;

ProcessDriverOptions with_deadlines(ProcessDriverOptions options) {
  options.deadlines = {kDeadline, kDeadline};
  return options;
}

// A busy machine makes anybody late.
void excuse_all(Processes& p, Ledger& ledger) {
  for (std::int32_t worker = 0; worker < p.options.num_workers; ++worker) ledger.excuse(worker, 100);
}

void play_on(Processes& p, Ledger& ledger, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    ledger.send(test::all_of(p.options.num_envs), test::kGoOn);
    ledger.drain();
  }
}

// With deadlines: whatever a worker was about when it was stopped, nobody waits for it for ever. All points at
// once, a worker for each.
TEST(a_worker_stopped_at_any_point_misses_its_deadline) {
  for (const bool sync : {true, false}) {
    const Case here(sync ? "sync" : "async");
    std::vector<Point> points;
    for (const Point& point : kPoints)
      if (sync ? point.in_sync : point.in_async) points.push_back(point);
    const auto count = static_cast<std::int32_t>(points.size());
    Processes p(with_deadlines(one_env_each(count, sync ? count : 2)));
    Ledger ledger(p);
    excuse_all(p, ledger);
    for (std::int32_t worker = 0; worker < count; ++worker)
      p.board().arm(Trap::kStop, worker, points[static_cast<std::size_t>(worker)].name);
    ledger.send(test::all_of(count), test::kGoOn);
    int rows = 0;
    while (p.pool->in_flight_count() != 0)
      for (const auto& result : ledger.receive()) {
        const Case point(points[static_cast<std::size_t>(result.env)].name);
        ++rows;
        CHECK(result.lost() == !points[static_cast<std::size_t>(result.env)].stands);
        if (!result.fault) continue;
        CHECK(result.fault->kind == Fault::kLate);
        CHECK(result.fault->message.find("stopped") != std::string::npos);
      }
    CHECK(rows == count);
    play_on(p, ledger, 5);
    for (std::int32_t worker = 0; worker < count; ++worker) CHECK(p.restarts(worker) >= 1u);
  }
}

// Everything that a pool and its workers share, but for the times and flags that are only hints.
std::vector<std::byte> shared_memory(Processes& p) {
  const std::size_t bytes = p.pool->memory();
  const auto arena = Arena::attach(p.pool->arena_descriptor(), p.pool->plan().arena_bytes);
  const test::ZeroedMemory copy(bytes);
  std::memcpy(copy, arena->at(0), bytes);
  const ProcessPlan plan = p.pool->plan();
  ProcessTables tables(p.pool->spec(), plan.table, plan.batch_size, plan.process);
  tables.attach(copy + plan.process_offset);
  const auto forget = [](auto& thing) { std::memset(static_cast<void*>(&thing), 0, sizeof thing); };
  for (std::int32_t env = 0; env < p.options.num_envs; ++env) {
    forget(tables.begun(env));
    forget(tables.times(env));
  }
  for (std::int32_t worker = 0; worker < p.options.num_workers; ++worker) forget(tables.worker(worker));
  return {static_cast<std::byte*>(copy), copy + bytes};
}

// The pool cannot kill these, and does not learn that they ended: as if a system call held them.
ProcessDriverOptions immortal(ProcessDriverOptions options) {
  options.immortal = true;
  return options;
}

TEST(a_worker_that_wakes_after_it_was_given_up_changes_nothing) {
  for (const std::int32_t batch_size : {2, 1})
    for (const char* point : {"before running", "running", "before writing"}) {
      const Case here(std::string(point) + ", batches of " + std::to_string(batch_size));
      Processes p(immortal(with_deadlines(one_env_each(2, batch_size))));
      Ledger ledger(p);
      excuse_all(p, ledger);
      p.board().arm(Trap::kStop, 0, point);
      ledger.send({0}, test::kGoOn);
      p.await_stop(0);
      const auto old = p.life(0);
      CHECK(ledger.receive()[0].lost() == true);
      play_on(p, ledger, 10);
      const auto asleep = [](int pid) { return test::state_of(std::to_string(pid)) == 'S'; };
      test::until("the others sleep", [&] { return asleep(p.pid_of(0)) && asleep(p.pid_of(1)); });
      const auto before = shared_memory(p);
      Processes::send(old, SIGCONT);
      test::until("the old one found nothing to do", [&] { return asleep(old.pid); });
      CHECK((shared_memory(p) == before) == true);
      play_on(p, ledger, 1);  // they sleep on one bell now: slow, but right
      Processes::send(old, SIGKILL);
      Processes::let_see_the_end(old);
      play_on(p, ledger, 10);
    }
}

// While a row is being written it is its writer's: nobody answers for it before the writer is seen to end.
TEST(a_row_that_is_being_written_is_left_alone_until_its_writer_ended) {
  struct Writer {
    const char* point;
    bool dies;
  };
  std::vector<Writer> writers;
  for (const char* point : {"writing", "copied", "reported", "done"})
    for (const bool dies : {false, true}) writers.push_back({point, dies});
  const auto count = static_cast<std::int32_t>(writers.size());
  for (const bool sync : {true, false}) {
    Processes p(immortal(with_deadlines(one_env_each(count, sync ? count : 1))));
    Ledger ledger(p);
    excuse_all(p, ledger);
    for (std::int32_t worker = 0; worker < count; ++worker)
      p.board().arm(Trap::kStop, worker, writers[static_cast<std::size_t>(worker)].point);
    ledger.send(test::all_of(count), test::kGoOn);
    for (std::int32_t worker = 0; worker < count; ++worker) p.await_loss(worker);  // given up, and not ended
    std::vector<Processes::Life> old;
    for (std::int32_t worker = 0; worker < count; ++worker) {
      if (sync || worker == 0) CHECK(p.pool->ready() == false);
      old.push_back(p.life(worker));
      const bool dies = writers[static_cast<std::size_t>(worker)].dies;
      Processes::send(old.back(), dies ? SIGKILL : SIGCONT);
      if (dies) Processes::let_see_the_end(old.back());
    }
    int rows = 0;
    while (p.pool->in_flight_count() != 0)
      for (const auto& result : ledger.receive()) {
        const Writer& writer = writers[static_cast<std::size_t>(result.env)];
        const Case here(std::string(writer.point) + (writer.dies ? ", dies" : ", goes on"));
        CHECK(result.lost() == (writer.dies && std::string(writer.point) != "done"));
        ++rows;
      }
    CHECK(rows == count);
    for (std::size_t i = 0; i < old.size(); ++i)
      if (!writers[i].dies) {
        Processes::send(old[i], SIGKILL);
        Processes::let_see_the_end(old[i]);
      }
    play_on(p, ledger, 5);
  }
}

}  // namespace stepmill::kill_points_stopped_test
