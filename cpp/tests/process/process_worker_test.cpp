// The worker's side of a process pool, by hand: in one process, step by step.
#include <array>

#include "tests/check.h"
#include "tests/process/process_driver.h"
#include "tests/process/process_ledger.h"

namespace stepmill::process_worker_test {

using test::options_of;
using test::Processes;

// A worker that is an object of the test. The pool is told of its end by the test.
struct Hand {
  Hand(ProcessPool& pool, std::int32_t number, std::uint32_t life)
      : outbox(Outbox::create()),
        end(eventfd(0, EFD_CLOEXEC)),
        worker(pool.arena_descriptor(), outbox, pool.rows_event_descriptor(), pool.spec(), pool.plan(),
               test::post_of(pool.plan(), number, life)),
        envs(test::steered_table(), test::steered_configs(worker.first_env(), worker.env_count(), 1),
             worker.first_env()),
        shared(pool) {
    worker.announce();
    pool.admit(number, life, getpid(), end, end, outbox, 0);
  }
  ~Hand() {
    ::close(outbox);
    ::close(end);
  }
  bool serve(std::int32_t env) {
    worker.advance(envs, env);
    return worker.publish(env, {});
  }
  // As if the env that runs had begun that long ago.
  void pretend_hours(std::int32_t env, std::int32_t hours) {
    const std::uint64_t ago = monotonic_ns() - std::uint64_t{3'600'000'000'000} * static_cast<std::uint64_t>(hours);
    shared.tables.begun(env) = pack_begun(ago, Activity::kStep);
  }
  void die() {
    const std::uint64_t one = 1;
    (void)!write(end, &one, sizeof one);
  }

  const int outbox, end;
  ProcessWorker worker;
  EnvSet envs;
  test::SharedTables shared;
};

TEST(the_env_that_used_least_time_is_next) {
  Processes p(options_of(3, 1, 1), false);
  Hand hand(*p.pool, 0, 1);
  const std::array<std::int32_t, 3> hours{2, 3, 1};  // that each env takes for its first action
  p.send_orders({0, 1, 2}, test::kGoOn);
  for (int i = 0; i < 3; ++i) {
    const std::int32_t env = hand.worker.next();
    hand.pretend_hours(env, hours[static_cast<std::size_t>(env)]);
    CHECK(hand.serve(env) == true);
  }
  CHECK(hand.worker.next() == -1);
  for (int i = 0; i < 3; ++i) p.recv_and_drop();
  p.send_orders({0, 1, 2}, test::kGoOn);
  for (const std::int32_t env : {2, 0, 1}) {
    CHECK(hand.worker.next() == env);
    hand.serve(env);
  }
  for (int i = 0; i < 3; ++i) p.recv_and_drop();
}

// It does not wait behind slower ones that were found before it.
TEST(an_env_that_comes_back_meanwhile_has_its_turn) {
  Processes p(options_of(3, 1, 1), false);
  Hand hand(*p.pool, 0, 1);
  p.send_orders({0, 1, 2}, test::kGoOn);
  for (int i = 0; i < 3; ++i) {
    const std::int32_t env = hand.worker.next();
    if (env != 2) hand.pretend_hours(env, 1);
    hand.serve(env);
  }
  for (int i = 0; i < 3; ++i) p.recv_and_drop();
  p.send_orders({0, 1, 2}, test::kGoOn);
  for (int i = 0; i < 3; ++i) {
    CHECK(hand.worker.next() == 2);
    hand.serve(2);
    p.recv_and_drop();
    p.send_orders({2}, test::kGoOn);
  }
}

TEST(a_life_that_is_gone_has_no_say) {
  Processes p(options_of(2, 2, 1), false);
  Hand old(*p.pool, 0, 1);
  p.send_orders({0, 1}, test::kGoOn);
  const std::int32_t env = old.worker.next();
  old.worker.advance(old.envs, env);
  old.die();
  p.await_loss(0);
  Batch batch = p.recv();  // answered, both of them
  CHECK(p.faults.size() == 2u);
  const std::string shown =
      test::row_bytes(p.pool->spec(), p.options.table(), batch.buffer->columns.c, env);
  CHECK(old.worker.publish(env, {}) == false);
  CHECK(old.worker.next() == -1);
  CHECK(test::row_bytes(p.pool->spec(), p.options.table(), batch.buffer->columns.c, env) == shown);
  Processes::drop(batch);
  CHECK(p.pool->to_restart() == (std::vector<std::pair<std::int32_t, std::uint32_t>>{{0, 2}}));
  p.send_orders({0, 1}, test::kGoOn);
  CHECK(old.worker.next() == -1);  // that is for the life to come
  Hand young(*p.pool, 0, 2);
  for (int i = 0; i < 2; ++i) CHECK(young.serve(young.worker.next()) == true);
  batch = p.recv();
  CHECK(p.faults.empty());
  Processes::drop(batch);
}

TEST(mail_goes_with_one_action) {
  Processes p(options_of(1, 1, 1), false);
  Hand hand(*p.pool, 0, 1);
  const auto next_mail = [&] {
    p.send_orders({0}, test::kGoOn);
    CHECK(hand.worker.next() == 0);
    const std::string mail = test::text_of(hand.worker.mail(0));
    hand.serve(0);
    p.recv_and_drop();
    return mail;
  };
  CHECK(next_mail() == "");
  for (const std::size_t size : {1u, 300u, 100'000u, 5u}) {
    const std::string mail(size, 'm');
    p.pool->set_mail(0, test::bytes_of(mail));
    CHECK((next_mail() == mail) == true);
    CHECK(next_mail() == "");
  }
  p.pool->set_mail(0, {});
  CHECK(next_mail() == "");
}

TEST(mail_that_grows_a_little_each_time_takes_little_memory) {
  Processes p(options_of(1, 1, 1), false);
  const std::size_t before = p.pool->memory();
  for (std::size_t size = 1; size < 20'000; size += 50) p.pool->set_mail(0, test::bytes_of(std::string(size, 'm')));
  CHECK(p.pool->memory() - before < 100'000u);
}

}  // namespace stepmill::process_worker_test
