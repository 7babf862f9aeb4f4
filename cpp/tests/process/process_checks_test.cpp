#include "core/process/process_checks.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/obedient_env.h"
#include "tests/process/process_driver.h"
#include "tests/process/sleeping_caller.h"

namespace stepmill::process_checks_test {

using test::ProcessDriverOptions;
using test::Processes;

constexpr std::int32_t kEnvs = 4, kBatch = 2;

// The tables of a pool in ordinary memory, as if one side had laid them out.
struct Memory {
  explicit Memory(sm_autoreset autoreset = SM_NEXT_STEP)
      : spec(test::obedient_spec()),
        tables(spec, {kEnvs, 0, autoreset, false, false}, kBatch, {2, false}),
        bytes(tables.bytes() + 256),
        ring((tables.attach(base()), tables.slot_ring()), kEnvs, kBatch),
        checks(kEnvs, tables, ring) {}

  std::byte* base() {
    return reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::size_t>(bytes.data()), 2 * kCacheLine));
  }
  void set_word(std::uint32_t epoch, std::uint32_t incarnation, int stage) {
    tables.word(1) = EnvWord{epoch, incarnation, static_cast<Stage>(stage)}.pack();
  }

  const EnvSpec spec;
  ProcessTables tables;
  std::vector<std::byte> bytes;
  SlotRing ring;
  const ProcessChecks checks;
};

Asked asked_for(std::uint32_t epoch, std::uint32_t incarnation) {
  Asked asked;
  asked.epoch = epoch;
  asked.incarnation = incarnation;
  return asked;
}

TEST(a_word_is_believed_where_it_follows_from_what_was_asked) {
  Memory m;
  const Asked asked = asked_for(7, 3);
  for (const Stage stage : {Stage::kRest, Stage::kQueued, Stage::kRunning, Stage::kWriting, Stage::kDone}) {
    m.set_word(7, 3, static_cast<int>(stage));
    CHECK(m.checks.word(1, asked)->stage == stage);
    CHECK(m.checks.is_idle(1, asked) == (stage == Stage::kRest || stage == Stage::kDone));
  }
  for (const auto& [epoch, incarnation, stage] : {std::tuple{6u, 3u, 0}, {8u, 3u, 0}, {7u, 2u, 0}, {7u, 3u, 6}, {7u, 3u, 255}}) {
    m.set_word(epoch, incarnation, stage);
    CHECK(m.checks.word(1, asked).has_value() == false);
    CHECK(m.checks.is_idle(1, asked) == false);
  }
}

// Only the pool declares faults.
TEST(a_fault_that_the_pool_has_not_declared_is_none) {
  Memory m;
  Asked asked = asked_for(7, 3);
  m.set_word(7, 3, static_cast<int>(Stage::kFault));
  CHECK(m.checks.word(1, asked).has_value() == false);
  asked.given_up = true;
  CHECK(m.checks.word(1, asked).has_value() == true);
}

TEST(an_env_began_after_it_was_asked_and_before_now) {
  Memory m(SM_SAME_STEP);
  Asked asked = asked_for(1, 1);
  asked.at = monotonic_ns();
  const std::uint64_t now = monotonic_ns();
  const auto began = [&](std::uint64_t at, Activity activity) {
    m.tables.begun(1) = pack_begun(at, activity);
    return m.checks.run(1, asked);
  };
  CHECK(began(now, Activity::kStep)->since == now);
  CHECK(began(now, Activity::kResetAfterEnd)->activity == Activity::kResetAfterEnd);
  CHECK(began(asked.at - 1, Activity::kStep).has_value() == false);
  CHECK(began(now + 3'600'000'000'000, Activity::kStep).has_value() == false);
  CHECK(began(0, Activity::kStep).has_value() == false);
}

// There is no row of an ending step to be read in other modes.
TEST(a_reset_follows_an_end_in_same_step_only) {
  Memory m;
  m.tables.begun(1) = pack_begun(monotonic_ns(), Activity::kResetAfterEnd);
  CHECK(m.checks.activity(1) == Activity::kReset);
  CHECK(m.checks.run(1, asked_for(1, 1))->activity == Activity::kReset);
}

TEST(a_report_is_of_the_action_whose_row_it_is) {
  Memory m;
  Report& report = m.tables.report(1);
  report.epoch = 5;
  for (const std::int32_t phase : {-1, int{SM_IN_RESET}, int{SM_IN_STEP}, int{SM_IN_OBSERVE}}) {
    report.fault_phase = phase;
    CHECK(*m.checks.fault_phase(1, 5) == phase);
    CHECK(m.checks.fault_phase(1, 4).has_value() == false);
  }
  for (const std::int32_t phase : {-2, int{SM_IN_CONSTRUCTOR}, 5, 1 << 30, -(1 << 30)}) {
    report.fault_phase = phase;
    CHECK(m.checks.fault_phase(1, 5).has_value() == false);
  }
}

TEST(a_slot_is_free_sealed_somebodys_or_broken) {
  using Slot = ProcessChecks::Slot;
  Memory m;
  m.ring.open(9, 64);
  CHECK(m.checks.slot(9, 0).kind == Slot::kFree);
  CHECK(m.checks.slot(8, 0).kind != Slot::kFree);
  const auto taken = m.ring.claim_between(9, 10, 3, 77);
  CHECK(taken->number == 9u);
  CHECK(taken->row == 0u);
  CHECK(m.checks.slot(9, 0).kind == Slot::kTaken);
  CHECK(m.checks.slot(9, 0).env == 3);
  CHECK(m.checks.slot(9, 0).epoch == 77u);
  CHECK(m.ring.seal(9) == 1u);
  CHECK(m.checks.slot(9, 1).kind == Slot::kSealed);
  CHECK(m.ring.claim_between(9, 10, 2, 5).has_value() == false);  // it has ended
  m.ring.open(10, 128);
  m.ring.claim_between(10, 11, kEnvs, 5);  // an env that does not exist
  CHECK(m.checks.slot(10, 0).kind == Slot::kBroken);
}

TEST(claims_that_cannot_come_to_an_end_end) {
  Memory m;
  m.ring.set_hint(0);
  m.ring.open(0, 64);
  CHECK(m.ring.hint_is_good(0, 1) == true);
  CHECK(m.ring.claim(1, 1).offset == 64u);
  m.ring.set_hint(1u << 20);  // where nothing was ever opened
  CHECK(m.ring.hint_is_good(0, 1) == false);
  CHECK_THROWS(m.ring.claim(2, 1), std::runtime_error);
  m.ring.set_hint(0);
  CHECK(m.ring.claim(2, 1).row == 1u);
}

TEST(a_seal_shows_every_change) {
  std::mt19937_64 random(1);
  for (const std::size_t size : {0, 1, 7, 8, 31, 32, 33, 100, 1000}) {
    std::vector<std::byte> bytes(size);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random());
    const std::uint64_t seal = seal_of(bytes, 3, 9);
    CHECK(seal_of(bytes, 3, 9) == seal);
    CHECK(seal_of(bytes, 4, 9) != seal);
    CHECK(seal_of(bytes, 3, 10) != seal);
    for (int i = 0; i < 50 && size > 0; ++i) {
      std::byte& one = bytes[random() % size];
      const std::byte before = one;
      one ^= static_cast<std::byte>(1u << random() % 8);
      CHECK(seal_of(bytes, 3, 9) != seal);
      one = before;
    }
    bytes.push_back(std::byte{0});
    CHECK(seal_of(bytes, 3, 9) != seal);
  }
}

TEST(an_order_shows_every_change) {
  Order order;
  order.buffer = 4096;
  order.row = 3;
  order.mail = 640;
  order.mail_bytes = 11;
  order.mail_seal = 12345;
  const auto seal = [&] {
    return Order::seal_for(order.buffer, order.row, order.kind, order.is_reset, order.mail, order.mail_bytes,
                           order.mail_seal, 2, 8);
  };
  order.seal = seal();
  CHECK(order.is_whole(2, 8) == true);
  CHECK(order.is_whole(1, 8) == false);
  CHECK(order.is_whole(2, 7) == false);
  for (std::size_t at = 0; at < offsetof(Order, seal) + sizeof order.seal; ++at) {
    Order changed = order;
    reinterpret_cast<unsigned char*>(&changed)[at] ^= 1;
    CHECK(changed.is_whole(2, 8) == false);
  }
}

// ---- a ring that does not say whose its slots are ------------------------------------------------

void overwrite_ring(const Processes& p) {
  std::memset(test::SharedTables(*p.pool).tables.slot_ring(), 0x5a, SlotRing::bytes(kEnvs, kBatch));
}

// Nobody knows whose the rows are: the pool says so, each time, and can be destroyed.
TEST(an_overwritten_ring_is_an_error_that_stays) {
  Processes p(test::options_of(kEnvs, kBatch, 2));
  p.send_orders(test::all_of(kEnvs), test::kGoOn);
  test::await_word("all rows are written", p.board().published, kEnvs);
  overwrite_ring(p);
  CHECK_THROWS(p.wait(), BrokenMemory);
  CHECK_THROWS(p.pool->ready(), BrokenMemory);
  CHECK_THROWS(p.pool->check_whole(), BrokenMemory);
  CHECK_THROWS(p.pool->at_rest(0), BrokenMemory);
  p.pool->wait_stopped(test::kLongEnough);
  CHECK(p.pool->to_restart().empty());
}

// But who needs no slot is not concerned.
TEST(a_ring_that_nobody_uses_may_be_overwritten) {
  Processes p(test::options_of(kEnvs, kEnvs, 2));
  for (int round = 0; round < 3; ++round) {
    p.send_orders(test::all_of(kEnvs), test::kGoOn);
    overwrite_ring(p);
    p.recv_and_drop();
    CHECK(p.faults.empty());
  }
}

// The monitor finds that no slot is left for a row, while the caller sleeps.
TEST(a_broken_ring_wakes_the_caller) {
  ProcessDriverOptions options = test::options_of(2, 1, 2);
  options.before_announce = [](std::int32_t, std::uint32_t) {
    for (;;) pause();  // so that actions stay queued
  };
  Processes p(options);
  p.send_orders({0}, test::kGoOn);
  const test::SharedTables shared(*p.pool);
  SlotRing ring(shared.tables.slot_ring(), 2, 1);
  while (ring.claim_between(0, 8, 1, 99)) continue;  // all that are open, for an action that nobody sent
  test::SleepingCaller caller([&] { CHECK_THROWS(p.wait(), BrokenMemory); });
  caller.await_sleep();
  p.signal(0, SIGKILL);
  caller.join();
}

}  // namespace stepmill::process_checks_test
