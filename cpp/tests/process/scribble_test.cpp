// Envs that write anywhere in the memory that they share with their pool. What must hold: the pool neither crashes nor
// hangs, every action has one row, or the pool says from now on that it is broken, and it can be ended. What is in those
// rows is not promised.
//
//   scribble_test                the seeds that every run of the tests tries
//   STEPMILL_ROUNDS=500 scribble_test   as many seeds more

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include "core/process/process_pool.h"
#include "tests/check.h"
#include "tests/process/process_driver.h"

namespace stepmill::scribble_test {

using test::Ids;
using test::ProcessDriverOptions;
using test::Processes;

constexpr std::int32_t kEnvs = 8;

std::uint32_t rounds() {
  const char* given = std::getenv("STEPMILL_ROUNDS");
  return given ? static_cast<std::uint32_t>(std::atoi(given)) : test::kSanitized ? 2 : 6;
}

std::int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

struct Shape {
  const char* name;
  std::int32_t batch_size;
  bool as_ready;
  sm_autoreset autoreset;
  bool has_no_ring = false;  // each env has a row of its own
};
constexpr Shape kShapes[] = {{"sync", kEnvs, false, SM_NEXT_STEP, true},
                             {"async", 3, false, SM_NEXT_STEP},
                             {"one by one", 1, false, SM_SAME_STEP},
                             {"as ready", kEnvs, true, SM_NEXT_STEP}};

ProcessDriverOptions options_of(const Shape& shape, std::uint32_t seed) {
  ProcessDriverOptions options;
  options.num_envs = kEnvs;
  options.batch_size = shape.batch_size;
  options.as_ready = shape.as_ready;
  options.autoreset = shape.autoreset;
  options.num_workers = 3;
  options.keep_last_observation = seed % 2 == 0;
  options.deadlines = {300'000'000, 300'000'000};
  options.start_ns = 10'000'000'000;
  options.seed = seed;
  // They have much to say about what they find.
  options.before_announce = [](std::int32_t, std::uint32_t) { (void)!std::freopen("/dev/null", "w", stderr); };
  return options;
}

class Scribbled {
 public:
  Scribbled(const Shape& shape, std::uint32_t seed) : p_(options_of(shape, seed)), random_(seed) {}

  // Whether the pool lived to the end.
  bool play(int batches) {
    try {
      play_on(batches);
      return true;
    } catch (const BrokenMemory&) {
      CHECK_THROWS(p_.pool->check_whole(), BrokenMemory);
      return false;
    }
  }

 private:
  void play_on(int batches) {
    for (int i = 0; i < batches; ++i) {
      send();
      receive();
      if (random_() % 8 == 0) call();
      if (random_() % 8 == 0) look();
    }
    while (p_.pool->in_flight_count() != 0) receive();
    CHECK(in_flight_.empty());
  }

  // With waits that end by themselves, as those of the bindings do: nobody may be woken.
  template <class F, class G>
  void wait(const char* what, F done, G some) {
    const auto end = Clock::now() + test::kLongEnough;
    while (!done()) {
      p_.attend();
      if (Clock::now() > end) throw test::Hang(what);
      some();
    }
  }

  void send() {
    Ids idle;
    for (std::int32_t env = 0; env < kEnvs; ++env)
      if (!p_.pool->in_flight(env)) idle.push_back(env);
    std::shuffle(idle.begin(), idle.end(), random_);
    if (p_.options.as_ready && !idle.empty()) idle.resize(1 + random_() % idle.size());
    for (const std::int32_t env : idle) {
      const auto draw = random_() % 10;
      const std::int64_t orders[] = {test::kScribble, test::kScribble, test::kScribble, test::kScribble, test::kTerminate};
      p_.write_order(env, draw < std::size(orders) ? orders[draw] : std::int64_t{test::kGoOn});
      if (draw == 5) p_.pool->set_mail(env, test::bytes_of(std::string(300, 'm')));
      in_flight_.insert(env);
    }
    if (!idle.empty()) p_.pool->send(idle, false, false);
  }

  void receive() {
    if (p_.pool->in_flight_count() == 0) return;
    const bool some = p_.options.as_ready && random_() % 2;
    p_.pool->be_content_with(some ? 2 : 0);
    const auto ready = [&] { return p_.pool->ready(); };
    const auto wait_some = [&] { p_.pool->work_or_wait(std::chrono::milliseconds(20)); };
    wait("recv hangs", ready, wait_some);
    p_.pool->be_content_with(0);
    if (some && !p_.pool->ready()) p_.pool->seal_early();
    wait("recv hangs", ready, wait_some);
    p_.faults.clear();
    const Batch batch = p_.pool->take_batch(p_.faults);
    CHECK(batch.rows > 0);
    for (std::int32_t row = 0; row < batch.rows; ++row) CHECK(in_flight_.erase(batch.env_id[row]) == 1u);
    for (const auto& [row, env] : p_.pool->noted()) {
      std::vector<std::byte> note;
      const auto copy = [&](std::span<const std::byte> bytes) {
        note.assign(bytes.begin(), bytes.end());
        return std::span<const std::byte>(note);
      };
      if (!p_.pool->read_note(env, copy)) p_.pool->spoil(batch, row);
    }
    Processes::drop(batch);
  }

  void call() {
    const auto env = static_cast<std::int32_t>(random_() % kEnvs);
    const auto rests = [&] { return p_.pool->at_rest(env); };
    const auto wait_some = [&] { p_.pool->wait_at_rest(env, std::chrono::milliseconds(20)); };
    wait("an env does not come to rest", rests, wait_some);
    p_.pool->queue_call(env, test::bytes_of("hello"));
    wait("a call is not answered", rests, wait_some);
    std::vector<std::byte> answer;
    if (!p_.pool->take_call(env, answer)) CHECK(test::text_of(answer).starts_with("env ") == true);
  }

  void look() {
    (void)p_.pool->outbox_bytes();
    (void)p_.pool->step_cost_ns();
    (void)p_.pool->counters()->copy();
  }

  Processes p_;
  std::mt19937 random_;
  std::set<std::int32_t> in_flight_;
};

TEST(whatever_envs_write_every_action_has_one_row_or_the_pool_is_broken) {
  const std::int64_t before = peak_memory();
  for (std::uint32_t seed = 1; seed <= rounds(); ++seed)
    for (const Shape& shape : kShapes) {
      const std::string what = std::string(shape.name) + ", seed " + std::to_string(seed);
      test::running_test = what.c_str();
      alarm(240);  // for each of them, since one may ask for many rounds
      try {
        const bool lived = Scribbled(shape, seed).play(60);
        if (shape.has_no_ring) CHECK(lived == true);  // what is left belongs to one env
      } catch (const std::exception& error) {
        test::fail_check(what.c_str(), 0, std::string("threw ") + error.what());
      }
    }
  CHECK(peak_memory() - before < (std::int64_t{1} << 30));
}

}  // namespace stepmill::scribble_test
