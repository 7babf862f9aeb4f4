// A worker is killed, stopped or held at every point of the protocol in turn, and everything else must go on
// as if nothing had happened: every action has one row, the rows of others are right, and those of the victim
// are right or say that they are not.

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <thread>

#include "tests/check.h"
#include "tests/process_driver.h"
#include "tests/process_ledger.h"

namespace stepmill {
namespace {

using test::Board;
using test::Ids;
using test::Ledger;
using test::ProcessDriverOptions;
using test::Processes;
using test::Trap;

// ---- the points ----------------------------------------------------------------------------------

struct Point {
  const char* name;
  bool in_sync, in_async, in_same_step, in_call;  // where it is passed
  bool stands;  // the row, or the answer, is whole by then: it counts
  bool in_resets = false;  // only of pools whose results come as they are ready, for their resets
};

constexpr Point kPoints[] = {
    {"before running", true, true, true, true, false},
    {"running", true, true, true, true, false},
    {"end kept", false, false, true, false, false},
    {"before writing", true, true, true, true, false},
    {"writing", true, true, true, true, false},
    {"taken", false, true, false, false, false},
    {"claimed", false, true, false, false, false},
    {"copied", true, true, true, false, false},
    {"reported", true, true, true, false, false},
    {"done", true, true, true, false, true},
    {"half counted", false, false, false, false, true, true},
    {"counted", true, true, true, false, true},
    {"committed", true, true, true, false, true},
    {"rest", true, true, true, false, true},
    {"call at rest", false, false, false, true, true},
};

std::set<std::string> known_points() {
  std::set<std::string> out;
  for (const Point& point : kPoints) out.insert(point.name);
  return out;
}

TEST(the_list_has_every_point_in_the_sources) {
  std::set<std::string> found;
  const std::string use = "STEPMILL_KILL_POINT(\"";
  for (const auto& entry : std::filesystem::directory_iterator(STEPMILL_CORE_FOLDER)) {
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
};

constexpr Mode kModes[] = {
    {"sync", kEnvs, SM_NEXT_STEP, false, &Point::in_sync},
    {"async", 3, SM_NEXT_STEP, false, &Point::in_async},
    {"async with gathers", 3, SM_NEXT_STEP, true, &Point::in_async},
    {"sync, same step", kEnvs, SM_SAME_STEP, false, &Point::in_same_step},
    {"as ready", kEnvs, SM_NEXT_STEP, false, &Point::in_async, true},
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

void play_a_batch(Ledger& ledger, const Mode& mode) {
  if (mode.gathers && ledger.random() % 4 == 0 && !ledger.idle().empty()) {
    Ids some = ledger.idle();
    std::shuffle(some.begin(), some.end(), ledger.random);
    some.resize(1 + ledger.random() % some.size());
    ledger.send_reset(some, true);
    ledger.receive();
  }
  ledger.send_any(false, true, mode.as_ready);
  if (mode.as_ready && ledger.random() % 4 != 0)
    ledger.receive_some(1 + static_cast<std::int32_t>(ledger.random() % 3), ledger.random() % 4 != 0);
  else
    ledger.receive();
}

// Says in which case a hang happened.
class Case {
 public:
  explicit Case(std::string what) : what_(std::move(what)), before_(test::failed_checks), test_(test::running_test) {
    test::running_test = what_.c_str();
  }
  ~Case() {
    test::running_test = test_;
    if (test::failed_checks != before_) std::cerr << "  in: " << what_ << "\n";
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

 private:
  const std::string what_;
  const int before_;
  const char* const test_;
};

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
  for (int i = 0; i < 300 && trap.reached == 0; ++i) play_a_batch(ledger, mode);
  CHECK(trap.reached == 1u);
  for (int i = 0; i < 50; ++i) play_a_batch(ledger, mode);
  ledger.drain();
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
        if ((point.*mode.passes || (mode.as_ready && point.in_resets)) && (!test::kSanitized || ++turn % 4 == 0))
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

// ---- rows that are whole and perhaps not counted -------------------------------------------------

// One env a worker, so that the n-th pass of a point is that of the n-th action.
ProcessDriverOptions one_env_each(std::int32_t workers, std::int32_t batch_size) {
  ProcessDriverOptions options;
  options.num_envs = options.num_workers = workers;
  options.batch_size = batch_size;
  return options;
}

// A first action of every env, and all that belongs to it is over: traps that are set now are met by the next.
void begin(Processes& p, Ledger& ledger) {
  ledger.send(test::all_of(p.options.num_envs), test::kGoOn);
  ledger.drain();
  for (std::int32_t env = 0; env < p.options.num_envs; ++env) p.await_rest(env);
}

TEST(rows_that_nobody_counted_are_received) {
  for (const std::int32_t batch_size : {3, 2})
    for (const char* point : {"done", "counted", "committed"}) {
      const Case here(std::string(point) + ", batches of " + std::to_string(batch_size));
      Processes p(one_env_each(3, batch_size));
      Ledger ledger(p);
      begin(p, ledger);
      for (std::int32_t worker = 0; worker < 3; ++worker) {
        ledger.excuse(worker);
        p.board().arm(Trap::kKill, worker, point);
      }
      ledger.send(test::all_of(3), test::kTerminate);  // a batch also says that an episode ended
      while (p.pool->in_flight_count() != 0)
        for (const auto& result : ledger.receive()) CHECK(!result.fault);
      for (int i = 0; i < 3; ++i) {
        ledger.send(test::all_of(3), test::kGoOn);
        ledger.drain();
      }
      for (std::int32_t env = 0; env < 3; ++env) CHECK(ledger.lost(env) == 1);
    }
}

TEST(a_batch_in_doubt_waits_for_who_is_alive) {
  for (const std::int32_t batch_size : {3, 2})
    for (const char* point : {"done", "counted", "committed"}) {
      const Case here(std::string(point) + ", batches of " + std::to_string(batch_size));
      Processes p(one_env_each(3, batch_size));
      Ledger ledger(p);
      begin(p, ledger);
      ledger.excuse(0);
      p.board().arm(Trap::kKill, 0, point);
      ledger.send({0, 1}, test::kBlock);
      test::await_word("both stand at the gate", p.board().entered, 2);
      Trap& other = p.board().arm(Trap::kHold, 1, "copied");
      p.open_gate();
      test::await_word("the other writes", other.reached);
      p.await_loss(0);
      CHECK(p.pool->ready() == false);
      Processes::release(other);
      for (const auto& result : ledger.receive()) CHECK(!result.fault);
      ledger.send(test::all_of(3), test::kGoOn);
      ledger.drain();
    }
}

// A caller on a thread of its own, which is found asleep. It must be woken.
class Caller {
 public:
  explicit Caller(std::function<void()> receives)
      : thread_([this, receives = std::move(receives)] {
          id_ = gettid();
          try {
            receives();
          } catch (const test::Hang& error) {
            hang_ = error.what();
          }
        }) {}
  ~Caller() {
    if (thread_.joinable()) thread_.join();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void await_sleep() {
    test::until("the caller sleeps",
                [&] { return id_ != 0 && test::state_of("self/task/" + std::to_string(id_)) == 'S'; });
  }
  void join() {
    thread_.join();
    CHECK(hang_ == "");
  }

 private:
  std::atomic<pid_t> id_{0};
  std::string hang_;
  std::thread thread_;  // last: it uses the others
};

// The last worker of a batch in doubt wakes the caller, wherever it is delayed.
TEST(a_batch_in_doubt_wakes_the_caller) {
  for (const char* point : {"reported", "done", "counted", "committed"}) {
    const Case here(point);
    Processes p(one_env_each(2, 2));
    Ledger ledger(p);
    begin(p, ledger);
    ledger.excuse(0);
    p.board().arm(Trap::kKill, 0, "done");
    Trap& other = p.board().arm(Trap::kHold, 1, point);
    ledger.send({0, 1}, test::kGoOn);
    test::await_word("the other is held", other.reached);
    p.await_loss(0);
    Caller caller([&] { ledger.receive(); });
    caller.await_sleep();
    Processes::release(other);
    caller.join();
  }
}

// A live worker is between the last word on its row and its count while the batch is received by the words: it
// must not count in the batch that has the buffer next.
TEST(a_late_count_never_falls_into_the_next_batch) {
  for (const char* point : {"done", "counted", "committed"}) {
    const Case here(point);
    Processes p(one_env_each(2, 2));
    Ledger ledger(p);
    begin(p, ledger);
    ledger.excuse(0);
    p.board().arm(Trap::kKill, 0, "done");
    Trap& late = p.board().arm(Trap::kHold, 1, point);
    ledger.send({0, 1}, test::kGoOn);
    test::await_word("the other is held", late.reached);
    p.await_loss(0);
    Trap& writing = p.board().arm(Trap::kHold, 1, "before writing");
    if (!p.pool->ready()) {
      Processes::release(late);
      ledger.receive();
      ledger.send({0, 1}, test::kGoOn);
    } else {
      ledger.receive();
      ledger.send({0, 1}, test::kGoOn);
      Processes::release(late);
    }
    test::await_word("the other has not written", writing.reached);
    CHECK(p.pool->ready() == false);
    Processes::release(writing);
    ledger.receive();
  }
}

// ---- waits for steps -----------------------------------------------------------------------------

ProcessDriverOptions each_as_ready(std::int32_t workers) {
  ProcessDriverOptions options = one_env_each(workers, workers);
  options.as_ready = true;
  return options;
}

// The next reset of env 0 stands at the gate, in its worker.
void begin_with_slow_reset(Processes& p, Ledger& ledger) {
  begin(p, ledger);
  ledger.send({0}, test::kEndThenBlockInReset);
  ledger.drain();
  p.await_rest(0);
  ledger.send_reset({0}, false);
  test::await_word("it stands in its reset", p.board().entered);
}

// Both rows are whole and neither is counted when the caller goes to sleep. Whichever is counted last sees that the
// step is there, wherever the other is.
TEST(who_is_counted_last_wakes_a_caller_who_waits_for_a_step) {
  struct Order {
    const char* what;
    std::int32_t first;   // whose row is counted first: env 0 is reset, env 1 steps
    const char* hold_at;  // it goes no further then
  };
  constexpr Order kOrders[] = {
      {"the reset, then the step", 0, "rest"},
      {"the reset, which does not look whether somebody waits, then the step", 0, "counted"},
      {"the step, then the reset", 1, "rest"},
      {"the step, which does not look whether somebody waits, then the reset", 1, "counted"},
  };
  for (const Order& order : kOrders) {
    const Case here(order.what);
    Processes p(each_as_ready(2));
    Ledger ledger(p);
    begin(p, ledger);
    Trap* traps[2] = {&p.board().arm(Trap::kHold, 0, "done"), &p.board().arm(Trap::kHold, 1, "done")};
    ledger.send_reset({0}, false);
    ledger.send({1}, test::kGoOn);
    for (Trap* trap : traps) test::await_word("its row is whole", trap->reached);
    Trap& first = p.board().arm(Trap::kHold, order.first, order.hold_at);
    std::size_t rows = 0;
    Caller caller([&] { rows = ledger.receive_some(1, true).size(); });
    caller.await_sleep();
    Processes::release(*traps[order.first]);
    test::await_word("it is counted", first.reached);
    Processes::release(*traps[1 - order.first]);
    caller.join();
    CHECK(rows == 2u);  // both had taken their slots
    Processes::release(first);
    for (int i = 0; i < 3; ++i) {
      ledger.send({0, 1}, test::kGoOn);
      ledger.drain();
    }
  }
}

// A step whose worker dies before it wakes the caller: the pool does, and does not wait for the reset.
TEST(a_step_that_nobody_counted_ends_a_wait_for_steps) {
  for (const bool asleep : {true, false})
    for (const char* point : {"done", "counted", "committed", "rest"}) {
      const Case here(std::string(point) + (asleep ? ", the caller sleeps" : ""));
      Processes p(each_as_ready(2));
      Ledger ledger(p);
      ledger.excuse(1);
      begin_with_slow_reset(p, ledger);
      Trap& before = p.board().arm(Trap::kHold, 1, "before writing");
      ledger.send({1}, test::kGoOn);
      test::await_word("it is about to write", before.reached);
      p.board().arm(Trap::kKill, 1, point);
      std::size_t rows = 0;
      if (asleep) {
        Caller caller([&] { rows = ledger.receive_some(1, true).size(); });
        caller.await_sleep();
        Processes::release(before);
        caller.join();
      } else {
        Processes::release(before);
        p.await_loss(1);
        rows = ledger.receive_some(1, true).size();
      }
      CHECK(rows == 1u);
      CHECK(p.pool->in_flight(0) == true);
      p.open_gate();
      ledger.drain();
      CHECK(ledger.lost(1) == 0);
    }
}

// Whether it was counted before its worker died or not, and whether its row stands or is the pool's.
TEST(a_reset_that_nobody_counted_holds_no_step_back) {
  for (const char* point : {"taken", "copied", "reported", "done", "half counted", "counted", "committed"}) {
    const Case here(point);
    Processes p(each_as_ready(3));
    Ledger ledger(p);
    ledger.excuse(0);
    begin(p, ledger);
    Trap& trap = p.board().arm(Trap::kKill, 0, point);
    ledger.send_reset({0}, false);
    test::await_word("the reset is dead", trap.reached);
    ledger.send({1}, test::kBlock);
    test::await_word("the step runs", p.board().entered);
    p.await_loss(0);
    p.pool->be_content_with(1, true);
    CHECK(p.pool->ready() == false);  // a reset, dead or alive, is no step
    p.pool->be_content_with(1, false);
    CHECK(p.pool->ready() == true);
    p.open_gate();
    CHECK(ledger.receive_some(1, true).size() == 2u);
    ledger.send(test::all_of(3), test::kGoOn);
    ledger.drain();
  }
}

// A worker that dies between its two counts leaves a reset that is known and a row that is not.
TEST(a_reset_that_was_half_counted_holds_no_step_back) {
  for (const bool step_first : {true, false}) {
    const Case here(step_first ? "after the step" : "before the step");
    Processes p(each_as_ready(2));
    Ledger ledger(p);
    ledger.excuse(0);
    begin(p, ledger);
    Trap& reset = p.board().arm(Trap::kHold, 0, "half counted");
    Trap& step = p.board().arm(Trap::kHold, 1, "done");
    ledger.send_reset({0}, false);
    ledger.send({1}, test::kGoOn);
    for (Trap* trap : {&reset, &step}) test::await_word("its row is whole", trap->reached);
    if (step_first) {
      Processes::release(step);
      p.await_rest(1);
    }
    const auto victim = p.life(0);  // the caller starts another in its place
    std::size_t rows = 0;
    Caller caller([&] { rows = ledger.receive_some(1, true).size(); });
    caller.await_sleep();
    Processes::send(victim, SIGKILL);
    if (!step_first) {
      test::until("the pool sees it end", [&] { return p.pool->worker_stats()[0].pid != victim.pid; });
      Processes::release(step);
    }
    caller.join();
    CHECK(rows == 2u);
    CHECK(ledger.lost(0) == 0);
  }
}

// By the words, as by the counts.
TEST(in_a_batch_in_doubt_resets_are_no_steps) {
  for (const bool fails : {false, true})
    for (const char* point : {"done", "counted", "committed"}) {
      const Case here(std::string(point) + (fails ? ", one fails" : ""));
      Processes p(each_as_ready(4));
      Ledger ledger(p);
      ledger.excuse(0);
      begin(p, ledger);
      ledger.send({1}, fails ? test::kEndThenThrowInReset : test::kGoOn);
      ledger.drain();
      Trap& dies = p.board().arm(Trap::kKill, 0, point);
      ledger.send_reset({0, 1}, false);
      Trap& held = p.board().arm(Trap::kHold, 2, "copied");
      ledger.send({2}, test::kGoOn);
      test::await_word("one is dead", dies.reached);
      test::await_word("the step is being written", held.reached);
      p.await_loss(0);
      p.await_rest(1);  // this may start another in its place
      const auto ready_with = [&](std::int32_t rows, bool steps_only) {
        p.pool->be_content_with(rows, steps_only);
        return p.pool->ready();
      };
      CHECK(ready_with(1, true) == false);
      CHECK(ready_with(4, true) == false);
      CHECK(ready_with(2, false) == true);
      CHECK(ready_with(3, false) == false);
      Processes::release(held);
      p.await_rest(2);
      CHECK(ready_with(1, true) == true);
      CHECK(ledger.receive_some(1, true).size() == 3u);
      ledger.send(test::all_of(4), test::kGoOn);
      ledger.drain();
    }
}

// What is taken of it comes, be it resets alone.
TEST(a_batch_that_has_ended_is_waited_for_as_it_is) {
  Processes p(each_as_ready(3));
  Ledger ledger(p);
  begin(p, ledger);
  ledger.send({2}, test::kBlock);
  test::await_word("the step runs", p.board().entered);
  Trap& held = p.board().arm(Trap::kHold, 1, "copied");
  ledger.send_reset({0, 1}, false);
  test::await_word("one is being written", held.reached);
  p.await_rest(0);
  p.pool->seal_early();
  CHECK(p.pool->expected() == 2);
  const auto ready_with = [&](std::int32_t rows) {
    p.pool->be_content_with(rows, true);
    return p.pool->ready();
  };
  CHECK(ready_with(1) == true);
  CHECK(ready_with(2) == false);
  Processes::release(held);
  p.await_rest(1);
  CHECK(ready_with(2) == true);
  p.pool->be_content_with(0);
  for (const auto& result : ledger.receive()) CHECK(result.is_reset == true);
  p.open_gate();
  CHECK(ledger.receive_some(1, true)[0].env == 2);
}

// ---- stopped at a point --------------------------------------------------------------------------

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
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{4096}); }
  };
  const std::unique_ptr<std::byte, Free> copy(new (std::align_val_t{4096}) std::byte[bytes]);
  std::memcpy(copy.get(), arena->at(0), bytes);
  const ProcessPlan plan = p.pool->plan();
  ProcessTables tables(p.pool->spec(), plan.table, plan.batch_size, plan.process);
  tables.attach(copy.get() + plan.process_offset);
  const auto forget = [](auto& thing) { std::memset(static_cast<void*>(&thing), 0, sizeof thing); };
  for (std::int32_t env = 0; env < p.options.num_envs; ++env) {
    forget(tables.begun(env));
    forget(tables.times(env));
  }
  for (std::int32_t worker = 0; worker < p.options.num_workers; ++worker) forget(tables.worker(worker));
  return {copy.get(), copy.get() + bytes};
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

// ---- the reset after an end ----------------------------------------------------------------------

TEST(an_end_stands_when_its_worker_dies_in_the_reset_after_it) {
  for (const bool keep_last : {false, true}) {
    ProcessDriverOptions options = one_env_each(2, 2);
    options.autoreset = SM_SAME_STEP;
    options.keep_last_observation = keep_last;
    Processes p(options);
    Ledger ledger(p);
    for (int i = 0; i < 3; ++i) {
      ledger.send({0, 1}, test::kGoOn);
      ledger.receive();
    }
    ledger.excuse(0);
    ledger.send({0, 1}, test::kEndThenBlockInReset);
    test::await_word("both stand in their reset", p.board().entered, 2);
    p.kill_and_await(0);
    p.open_gate();
    p.wait();
    const Batch batch = p.recv();
    const sm_columns& c = batch.buffer->columns.c;
    CHECK(batch.any_ended == true);
    for (const std::int32_t row : {0, 1}) {
      CHECK(c.ended[row] == 1);
      CHECK(c.terminated[row] == 1);
      CHECK(c.truncated[row] == 0);
      CHECK(c.episode_length[row] == 3);
      CHECK(static_cast<double*>(c.reward)[row] != 0.0);
    }
    CHECK(p.faults.size() == 1u);
    CHECK(p.faults[0].env == 0);
    CHECK(p.faults[0].phase == SM_IN_RESET);
    const std::string final_row(static_cast<const char*>(c.final_observation[0]), 4 * sizeof(double));
    CHECK((final_row == std::string(static_cast<const char*>(c.observation[0]), 4 * sizeof(double))) == true);
    Processes::drop(batch);
    // It is the last good observation from then on.
    p.attend();
    p.kill_and_await(0);
    p.send_orders({0}, test::kGoOn);
    CHECK(p.pool->to_restart().size() == 1u);
    p.pool->restart_failed(0, p.pool->to_restart()[0].second, "no process");
    const Batch next = p.recv();
    const std::string shows(static_cast<const char*>(next.buffer->columns.c.observation[0]), 4 * sizeof(double));
    CHECK((shows == (keep_last ? final_row : std::string(4 * sizeof(double), '\0'))) == true);
    Processes::drop(next);
  }
}

}  // namespace
}  // namespace stepmill
