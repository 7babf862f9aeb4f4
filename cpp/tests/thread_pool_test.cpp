#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/check.h"

namespace stepmill::thread_pool_test {

// Work that can be counted: `add` units, each done by some thread.
struct Work {
  std::atomic<std::uint64_t> waiting{0}, done{0};

  bool take() {
    std::uint64_t now = waiting.load();
    do {
      if (now == 0) return false;
    } while (!waiting.compare_exchange_weak(now, now - 1));
    done += 1;
    done.notify_all();
    return true;
  }
  void wait_for(std::uint64_t count) {
    for (std::uint64_t now; (now = done.load()) < count;) done.wait(now);
  }
};

TEST(no_thread_is_started_before_there_is_work) {
  Work work;
  ThreadPool pool(4, -1, [&](int) { return work.take(); }, [&] { return work.waiting > 0; });
  CHECK(pool.started() == 0);
  CHECK(pool.stopped() == true);
  pool.call(0);
  CHECK(pool.started() == 0);
  work.waiting = 1;
  pool.call(2);
  CHECK(pool.started() == 2);
  work.wait_for(1);
  pool.call(9);
  CHECK(pool.started() == 4);
}

// Threads spin, then fall asleep between the rounds. A call must never be lost, least of all one that
// comes at the moment a thread gives up: no licence to spin makes those moments many.
TEST(every_call_gets_its_work_done) {
  constexpr std::uint64_t kRounds = test::kSanitized ? 3'000 : 30'000;
  for (const int threads : {1, 2, 5}) {
    Work work;
    ThreadPool pool(threads, -1, [&](int) { return work.take(); }, [&] { return work.waiting.load() > 0; });
    std::vector<std::unique_ptr<SpinBudget::Licence>> taken;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      if (round == kRounds / 4)
        for (int i = 0; i < available_cores(); ++i)
          taken.push_back(std::make_unique<SpinBudget::Licence>(SpinBudget::instance()));
      // At another point of the thread's way to sleep each time.
      for (std::uint64_t i = 0; i < round % 200; ++i) relax();
      work.waiting.fetch_add(1, std::memory_order_seq_cst);
      pool.call(1 + static_cast<int>(round) % threads);
      work.wait_for(round);
      test::gets_on(round);
    }
    CHECK(work.done.load() == kRounds);
  }
}

// The envs that a thread knows are in its cache, so work for one thread is always the first one's.
TEST(only_the_first_threads_join_in) {
  Work work;
  std::atomic<std::uint64_t> strangers{0};
  std::atomic<int> called{4};
  ThreadPool pool(
      4, -1,
      [&](int thread) {
        const bool stranger = thread >= called;
        const bool took = work.take();
        if (took && stranger) strangers += 1;
        return took;
      },
      [&] { return work.waiting.load() > 0; });
  work.waiting = 100;
  pool.call(4);
  work.wait_for(100);
  called = 1;
  pool.call(1);  // with nothing to do: from here on the others stay out
  for (std::uint64_t round = 1; round <= 2'000; ++round) {
    work.waiting.fetch_add(1, std::memory_order_seq_cst);
    pool.call(1);
    work.wait_for(100 + round);
  }
  // Each of the others may have been on its way to a piece of work at that moment, and taken one later.
  CHECK(strangers.load() <= 3);
}

// Work of which every piece stays inside until all of its round are: only where every thread that is needed comes does a
// round end. Whoever looks hands that on before it goes in, at whatever moment others fall asleep.
TEST(while_work_that_blocks_waits_no_thread_sleeps) {
  constexpr std::uint64_t kRounds = test::kSanitized ? 1'000 : 10'000;
  for (const int threads : {1, 2, 3, 6}) {
    Work work;
    std::atomic<std::uint64_t> inside{0};
    ThreadPool* self = nullptr;
    ThreadPool pool(
        threads, -1,
        [&](int thread) {
          std::uint64_t now = work.waiting.load();
          do {
            if (now == 0) return false;
          } while (!work.waiting.compare_exchange_weak(now, now - 1));
          self->begin(thread);
          const std::uint64_t mine = inside.fetch_add(1);
          const std::uint64_t all = (mine / static_cast<std::uint64_t>(threads) + 1) * static_cast<std::uint64_t>(threads);
          inside.notify_all();
          for (std::uint64_t seen; (seen = inside.load()) < all;) inside.wait(seen);
          work.done += 1;
          work.done.notify_all();
          return true;
        },
        [&] { return work.waiting.load() > 0; });
    self = &pool;
    std::vector<std::unique_ptr<SpinBudget::Licence>> taken;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      if (round == kRounds / 2)
        for (int i = 0; i < available_cores(); ++i)
          taken.push_back(std::make_unique<SpinBudget::Licence>(SpinBudget::instance()));
      for (std::uint64_t i = 0; i < round % 200; ++i) relax();
      // At once, or one after the other.
      const auto pieces = static_cast<std::uint64_t>(threads), parts = round % 3 == 0 ? pieces : 1;
      for (std::uint64_t part = 0; part < parts; ++part) {
        work.waiting.fetch_add(pieces / parts, std::memory_order_seq_cst);
        pool.call_free(1, threads);
      }
      work.wait_for(round * pieces);
      test::gets_on(round);
    }
    CHECK(work.done.load() == kRounds * static_cast<std::uint64_t>(threads));
  }
}

TEST(stop_waits_for_the_chunk_a_thread_is_in) {
  std::atomic<int> state{0};  // 1: inside, 2: let go, 3: left
  ThreadPool pool(
      1, -1,
      [&](int) {
        if (state != 0) return false;
        state = 1;
        state.notify_all();
        state.wait(1);
        state = 3;
        return true;
      },
      [&] { return state == 0; });
  pool.call(1);
  state.wait(0);
  pool.ask_to_stop();
  CHECK(pool.stopped() == false);
  pool.wait_stopped(std::chrono::milliseconds(1));
  CHECK(pool.stopped() == false);
  state = 2;
  state.notify_all();
  while (!pool.stopped()) pool.wait_stopped(std::chrono::hours(1));
  CHECK(state == 3);
  pool.stop();
  pool.stop();  // once more does nothing
}

// Signals are the interpreter's; but a crash inside an env must reach its handler (faulthandler),
// and a blocked SIGSEGV ends the process without one.
TEST(threads_take_no_signals_but_those_of_a_crash) {
  sigset_t mask;
  sigemptyset(&mask);
  Work work;
  ThreadPool pool(
      1, -1,
      [&](int) {
        if (work.waiting > 0) pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        return work.take();
      },
      [&] { return work.waiting > 0; });
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  work.waiting = 1;
  pool.call(1);
  work.wait_for(1);
  for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1}) CHECK(sigismember(&mask, signal) == 1);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) CHECK(sigismember(&mask, signal) == 0);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK(sigismember(&after, SIGINT) == sigismember(&before, SIGINT));
}

TEST(threads_can_be_bound_to_cores) {
  std::atomic<int> cores{0};
  Work work;
  ThreadPool pool(
      1, 3,
      [&](int) {
        cpu_set_t set;
        if (work.waiting > 0 && sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
        return work.take();
      },
      [&] { return work.waiting > 0; });
  work.waiting = 1;
  pool.call(1);
  work.wait_for(1);
  CHECK(cores == 1);
}

// A machine without threads to give: the caller goes on alone.
TEST(a_thread_that_cannot_be_started_is_no_error) {
  pthread_attr_t usual, huge;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
  CHECK(pthread_setattr_default_np(&huge) == 0);
  ThreadPool pool(2, -1, [](int) { return false; }, [] { return false; });
  pool.call(2);
  CHECK(pool.started() == 0);
  CHECK(pool.stopped() == true);
  pthread_setattr_default_np(&usual);
  pool.call(2);
  CHECK(pool.started() == 2);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

}  // namespace stepmill::thread_pool_test
