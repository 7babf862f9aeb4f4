// A worker is killed at every point of the protocol in turn, and everything else must go on as if nothing had happened:
// every action has one row, the rows of others are right, and those of the victim are right or say that they are not.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/process/kill_points.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"

namespace stepmill::kill_points_test {

using test::Case;
using test::Ids;
using test::kPoints;
using test::Ledger;
using test::Point;
using test::ProcessDriverOptions;
using test::Processes;
using test::Trap;

std::set<std::string> known_points() {
  std::set<std::string> out;
  for (const Point& point : kPoints) out.insert(point.name);
  return out;
}

TEST(the_list_has_every_point_in_the_sources) {
  std::set<std::string> found;
  const std::string use = "STEPMILL_KILL_POINT(\"";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(STEPMILL_CORE_FOLDER)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (auto at = text.find(use); at != text.npos; at = text.find(use, at)) {
      at += use.size();
      found.insert(text.substr(at, text.find('"', at) - at));
    }
  }
  for (const std::string& name : found) {
    if (known_points().contains(name)) continue;
    test::fail_check(__FILE__, __LINE__, "a kill point that no test kills at: " + name);
  }
  CHECK(found.size() == 16u);  // a search in the wrong folder finds fewer
  CHECK((found == known_points()) == true);
}

// ---- modes ---------------------------------------------------------------------------------------

constexpr std::int32_t kEnvs = 7, kWorkers = 3, kVictim = 1;

struct Mode {
  const char* name;
  std::int32_t batch_size;
  sm_autoreset autoreset;
  bool gathers;  // now and then chosen envs are reset
  bool Point::*passes;
  bool as_ready = false;  // resets among the steps, and waits of all kinds
  bool in_loop = false;   // the caller waits in an event loop, for one row at a time
};

constexpr Mode kModes[] = {
    {"sync", kEnvs, SM_NEXT_STEP, false, &Point::in_sync},
    {"async", 3, SM_NEXT_STEP, false, &Point::in_async},
    {"async with gathers", 3, SM_NEXT_STEP, true, &Point::in_async},
    {"sync, same step", kEnvs, SM_SAME_STEP, false, &Point::in_same_step},
    {"as ready", kEnvs, SM_NEXT_STEP, false, &Point::in_async, true},
    {"in a loop", kEnvs, SM_NEXT_STEP, false, &Point::in_async, true, true},
};

ProcessDriverOptions options_for(const Mode& mode, bool keep_last = false) {
  ProcessDriverOptions options;
  options.num_envs = kEnvs;
  options.batch_size = mode.batch_size;
  options.as_ready = mode.as_ready;
  options.num_workers = kWorkers;
  options.work = 20;
  options.autoreset = mode.autoreset;
  options.keep_last_observation = keep_last;
  return options;
}

bool passes(const Mode& mode, const Point& point) {
  return point.*mode.passes || (mode.as_ready && point.in_resets) || (mode.in_loop && point.in_loop);
}

void play_a_batch(Ledger& ledger, const Mode& mode) {
  if (mode.gathers && ledger.random() % 4 == 0 && !ledger.idle().empty()) {
    Ids some = ledger.idle();
    std::shuffle(some.begin(), some.end(), ledger.random);
    some.resize(1 + ledger.random() % some.size());
    ledger.send_reset(some, true);
    ledger.receive();
  }
  ledger.send_any(false, true, mode.as_ready);
  if (mode.in_loop)
    ledger.receive_in_loop();
  else if (mode.as_ready && ledger.random() % 4 != 0)
    ledger.receive_some(1 + static_cast<std::int32_t>(ledger.random() % 3), ledger.random() % 4 != 0);
  else
    ledger.receive();
}

std::string what(const Point& point, const Mode& mode, int pass) {
  return std::string(mode.name) + ", pass " + std::to_string(pass) + " of '" + point.name + "'";
}

TEST(a_good_run_passes_every_point) {
  std::set<std::string> passed;
  for (const Mode& mode : kModes) {
    Processes p(options_for(mode));
    Ledger ledger(p);
    for (int i = 0; i < 30; ++i) play_a_batch(ledger, mode);
    ledger.drain();
    for (std::int32_t env = 0; env < kEnvs; ++env) p.call(env, "hello");
    for (std::uint32_t i = 0; i < p.board().name_count; ++i) passed.insert(p.board().names[i]);
  }
  CHECK((passed == known_points()) == true);
}

// ---- killed at a point ---------------------------------------------------------------------------

void kill_while_acting(const Point& point, const Mode& mode, int pass) {
  const Case here(what(point, mode, pass));
  Processes p(options_for(mode, pass == 2));
  Ledger ledger(p, static_cast<std::uint32_t>(pass));
  ledger.excuse(kVictim);
  Trap& trap = p.board().arm(Trap::kKill, kVictim, point.name, pass);
  // On a busy machine others play many batches until the victim comes. If it never does, the alarm says so.
  while (trap.reached == 0 && test::failed_checks == 0) play_a_batch(ledger, mode);
  for (int i = 0; i < 50; ++i) play_a_batch(ledger, mode);
  ledger.drain();
  for (int i = 0; i < 2; ++i) {  // on a slow machine the death may be noticed only now; the next worker answers after it
    ledger.send_any(false, false);
    ledger.drain();
  }
  for (std::int32_t env = 0; env < kEnvs; ++env) {
    if (p.worker_of(env) != kVictim)
      CHECK(ledger.lost(env) == 0);
    else if (mode.gathers || mode.as_ready)
      CHECK(ledger.lost(env) <= 1);  // a reset finds a new env, and loses nothing
    else
      CHECK(ledger.lost(env) == 1);
  }
  if (trap.env >= 0) CHECK(ledger.rows_before(trap.env) == trap.row + point.stands);
  CHECK(p.restarts(kVictim) == 1u);
  CHECK(p.codes() == std::vector<int>{-SIGKILL});
}

TEST(a_worker_killed_at_any_point_loses_no_action_and_harms_no_other) {
  int turn = 0;
  for (const Mode& mode : kModes)
    for (const Point& point : kPoints)
      for (int pass = 1; pass <= 3; ++pass)
        if (passes(mode, point) && (!test::kSanitized || ++turn % 4 == 0))
          kill_while_acting(point, mode, pass);
}

// A call is answered, or says why not; rows that wait to be received meanwhile stand.
void kill_in_a_call(const Point& point, int pass, bool rows_wait) {
  const Mode& mode = kModes[rows_wait];
  const Case here(what(point, mode, pass) + " of a call" + (rows_wait ? " while rows wait" : ""));
  Processes p(options_for(mode));
  Ledger ledger(p);
  ledger.excuse(kVictim);
  for (int i = 0; i < 3; ++i) play_a_batch(ledger, mode);
  ledger.drain();
  if (rows_wait) ledger.send_any(false, false);
  for (std::int32_t env = 0; env < kEnvs; ++env) p.await_rest(env);
  Trap& trap = p.board().arm(Trap::kKill, kVictim, point.name, pass);
  const Ids envs = p.envs_of(kVictim);
  int calls = 0;
  while (calls < 10) {
    const std::int32_t env = envs[static_cast<std::size_t>(calls) % envs.size()];
    const auto [answer, fault] = p.call(env, "how are you");
    calls += 1;
    if (fault) {
      CHECK(fault->env == env);
      CHECK(fault->phase == SM_IN_CALL);
      CHECK(fault->kind == Fault::kDied);
      CHECK(answer == "");
      break;
    }
    CHECK(answer == test::answer_to("how are you", env, 1));
  }
  CHECK(trap.reached == 1u);
  // Where the answer was whole it stands, and the call after it is the first to fail.
  CHECK(calls == pass + point.stands);
  for (std::int32_t env = 0; env < kEnvs; ++env)
    if (p.worker_of(env) != kVictim) CHECK(p.call(env, "and you").first == test::answer_to("and you", env, 1));
  if (rows_wait) {
    int rows = 0;
    while (p.pool->in_flight_count() != 0)
      for (const auto& result : ledger.receive()) {
        CHECK(!result.fault);
        ++rows;
      }
    CHECK(rows == kEnvs);
  }
  for (int i = 0; i < 20; ++i) play_a_batch(ledger, mode);
  ledger.drain();
  for (std::int32_t env = 0; env < kEnvs; ++env) {
    CHECK(ledger.lost(env) == (p.worker_of(env) == kVictim ? 1 : 0));
    const std::uint32_t life = p.worker_of(env) == kVictim ? 2 : 1;
    CHECK(p.call(env, "still there").first == test::answer_to("still there", env, life));
  }
}

TEST(a_worker_killed_in_a_call_leaves_the_caller_an_answer) {
  for (const bool rows_wait : {false, true})
    for (const Point& point : kPoints)
      for (int pass = 1; pass <= (test::kSanitized ? 1 : 3); ++pass)
        if (point.in_call) kill_in_a_call(point, pass, rows_wait);
}

}  // namespace stepmill::kill_points_test
