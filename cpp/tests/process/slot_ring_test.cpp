#include "core/process/slot_ring.h"

#include <array>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/zeroed_memory.h"

namespace stepmill::slot_ring_test {

constexpr std::uint32_t kNobody = 0x80000000;

struct Ring {
  Ring(std::int32_t envs, std::int32_t batch)
      : memory(SlotRing::bytes(envs, batch)),
        ring(memory, envs, batch) {}

  // Where the next free slot is thought to be: the ring's first word.
  std::atomic<std::uint64_t>& hint() { return *reinterpret_cast<std::atomic<std::uint64_t>*>(static_cast<std::byte*>(memory)); }

  test::ZeroedMemory memory;
  SlotRing ring;
};

void check_slot(const SlotRing::Slot& slot, std::uint32_t number, std::uint32_t row, std::uint64_t offset) {
  CHECK(slot.number == number);
  CHECK(slot.row == row);
  CHECK(slot.offset == offset);
}

void check_owner(const SlotRing& ring, std::uint32_t number, std::uint32_t row, std::uint32_t env,
                 std::uint32_t epoch) {
  CHECK(ring.owner(number, row).env == env);
  CHECK(ring.owner(number, row).epoch == epoch);
}

TEST(slots_are_taken_in_order_and_say_who_has_them) {
  Ring r(6, 2);
  r.ring.open(0, 1000);
  r.ring.open(1, 2000);
  CHECK(r.ring.owner(0, 0).env >= kNobody);
  check_slot(r.ring.claim(5, 70), 0, 0, 1000);
  CHECK(r.ring.owner(0, 1).env >= kNobody);
  check_slot(r.ring.claim(3, 80), 0, 1, 1000);
  check_slot(r.ring.claim(0, 90), 1, 0, 2000);
  check_owner(r.ring, 0, 0, 5, 70);
  check_owner(r.ring, 0, 1, 3, 80);
  check_owner(r.ring, 1, 0, 0, 90);
  CHECK(r.ring.owner(1, 1).env >= kNobody);
}

TEST(another_view_of_the_memory_sees_the_same_ring) {
  Ring r(6, 2);
  SlotRing other(r.memory, 6, 2);
  r.ring.open(0, 1000);
  check_slot(other.claim(4, 1), 0, 0, 1000);
  check_slot(r.ring.claim(2, 1), 0, 1, 1000);
  check_owner(r.ring, 0, 0, 4, 1);
  check_owner(other, 0, 1, 2, 1);
}

TEST(a_sealed_batch_takes_no_more_claims) {
  Ring r(6, 4);
  r.ring.open(0, 1000);
  r.ring.open(1, 2000);
  r.ring.claim(0, 1);
  r.ring.claim(1, 1);
  CHECK(r.ring.seal(0) == 2u);
  check_slot(r.ring.claim(2, 1), 1, 0, 2000);
  check_owner(r.ring, 0, 1, 1, 1);
  for (const std::uint32_t row : {2u, 3u}) CHECK(r.ring.owner(0, row).env >= kNobody);
}

TEST(an_empty_batch_can_be_sealed_and_a_full_one_stays_as_it_is) {
  Ring r(6, 2);
  for (std::uint32_t number = 0; number < 3; ++number) r.ring.open(number, 1000 + number);
  CHECK(r.ring.seal(0) == 0u);
  check_slot(r.ring.claim(0, 1), 1, 0, 1001);
  check_slot(r.ring.claim(1, 1), 1, 1, 1001);
  CHECK(r.ring.seal(1) == 2u);
  check_owner(r.ring, 1, 0, 0, 1);
  check_owner(r.ring, 1, 1, 1, 1);
  check_slot(r.ring.claim(2, 1), 2, 0, 1002);
}

// Who dies between taking a slot and moving the hint leaves it behind, by any number of slots.
TEST(a_hint_left_behind_costs_nobody_a_slot) {
  for (int seals = 0; seals < 2; ++seals) {
    Ring r(8, 3);
    for (std::uint32_t number = 0; number < 4; ++number) r.ring.open(number, 1000 + number);
    const std::uint64_t old = r.hint();
    std::uint32_t env = 0;
    for (; env < 2; ++env) r.ring.claim(env, 1);
    if (seals) r.ring.seal(0);
    for (; env < 5; ++env) r.ring.claim(env, 1);
    r.hint() = old;
    if (seals)
      check_slot(r.ring.claim(env, 1), 2, 0, 1002);
    else
      check_slot(r.ring.claim(env, 1), 1, 2, 1001);
    std::set<std::uint32_t> owners;
    int taken = 0;
    for (std::uint32_t number = 0; number < 4; ++number)
      for (std::uint32_t row = 0; row < 3; ++row)
        if (const auto owner = r.ring.owner(number, row); owner.env < kNobody) {
          owners.insert(owner.env);
          ++taken;
        }
    CHECK(taken == 6);
    CHECK(owners.size() == 6u);
  }
}

TEST(places_are_used_again_round_after_round) {
  Ring r(5, 2);
  std::uint32_t epoch = 0;
  for (std::uint32_t number = 0; number < 5 * r.ring.places(); ++number) {
    r.ring.open(number, 64 * number);
    const bool is_short = number % 3 == 0;
    check_slot(r.ring.claim(1, ++epoch), number, 0, 64 * number);
    if (is_short)
      r.ring.seal(number);
    else
      check_slot(r.ring.claim(4, epoch), number, 1, 64 * number);
    check_owner(r.ring, number, 0, 1, epoch);
    CHECK((r.ring.owner(number, 1).env < kNobody) == !is_short);
  }
}

TEST(batch_numbers_wrap) {
  Ring r(4, 2);
  const std::uint32_t last = 0xffffffff;
  r.hint() = std::uint64_t{last} << 32;
  r.ring.open(last, 1000);
  r.ring.open(0, 2000);
  check_slot(r.ring.claim(0, 1), last, 0, 1000);
  r.ring.seal(last);
  check_slot(r.ring.claim(1, 1), 0, 0, 2000);
}

// ---- many threads claim, one opens, seals and receives -------------------------------------------

// What a pool does with a ring: envs come back from threads in any order, each into one slot, and batches are
// received, some of them sealed before they were full. Rows are plain memory: whatever orders them must be
// the ring and the count.
class Mill {
 public:
  Mill(std::int32_t envs, std::int32_t batch, int threads, std::uint32_t seed)
      : envs_(envs), batch_(batch), r_(envs, batch), orders_(static_cast<std::size_t>(envs)), random_(seed) {
    places_ = std::vector<Place>(r_.ring.places());
    for (Place& place : places_) place.rows.resize(static_cast<std::size_t>(batch));
    in_flight_.resize(static_cast<std::size_t>(envs));
    for (int t = 0; t < threads; ++t) threads_.emplace_back([this, t, threads] { serve(t, threads); });
  }
  ~Mill() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
  }

  void run(int batches) {
    for (int i = 0; i < batches && test::failed_checks == 0; ++i) {
      send();
      receive(random_() % 3 == 0);
      test::gets_on(static_cast<std::uint64_t>(i));
    }
    while (count_ != 0 && test::failed_checks == 0) receive(false);
    CHECK(std::uint64_t{received_} == sent_);
  }

 private:
  struct Row {
    std::uint32_t env = 0, epoch = 0;
  };
  struct Place {
    std::atomic<std::uint32_t> done{0};
    std::vector<Row> rows;
    Place() = default;
    Place(const Place&) {}
  };
  struct alignas(kCacheLine) Order {
    std::atomic<std::uint32_t> epoch{0};  // of the action that waits
  };

  // A thread has every n-th env, as a worker has its own.
  void serve(int first, int step) {
    std::vector<std::uint32_t> seen(orders_.size());
    while (!stop_) {
      bool idle = true;
      for (auto env = static_cast<std::size_t>(first); env < orders_.size(); env += static_cast<std::size_t>(step)) {
        const std::uint32_t epoch = orders_[env].epoch.load(std::memory_order_acquire);
        if (epoch == seen[env]) continue;
        seen[env] = epoch;
        idle = false;
        const auto slot = r_.ring.claim(static_cast<std::uint32_t>(env), epoch);
        Place& place = places_[slot.number % places_.size()];
        CHECK(slot.offset == slot.number);
        place.rows[slot.row] = {static_cast<std::uint32_t>(env), epoch};
        place.done.fetch_add(1, std::memory_order_acq_rel);
      }
      if (idle) std::this_thread::yield();
    }
  }

  // One more than needed: the first may be sealed with fewer rows than it has slots.
  void open(std::int32_t count) {
    const auto batches = static_cast<std::uint32_t>((count + batch_ - 1) / batch_ + 1);
    for (; opened_ - head_ < batches; ++opened_) {
      places_[opened_ % places_.size()].done.store(0, std::memory_order_relaxed);
      r_.ring.open(opened_, opened_);
    }
  }

  void send() {
    for (std::int32_t env = 0; env < envs_; ++env) {
      if (in_flight_[static_cast<std::size_t>(env)] || random_() % 4 == 0) continue;
      in_flight_[static_cast<std::size_t>(env)] = 1;
      open(++count_);
      orders_[static_cast<std::size_t>(env)].epoch.fetch_add(1, std::memory_order_acq_rel);
      ++sent_;
    }
  }

  void receive(bool early) {
    if (count_ == 0) return;
    open(count_);
    Place& place = places_[head_ % places_.size()];
    std::uint32_t rows = static_cast<std::uint32_t>(std::min(batch_, count_));
    const auto wait = [&] {
      while (place.done.load(std::memory_order_acquire) < rows) std::this_thread::yield();
    };
    if (early) {
      while (r_.ring.owner(head_, 0).env >= kNobody) std::this_thread::yield();  // no batch is received without a row
      // The claims up to the seal stand; they must be waited for.
      rows = r_.ring.seal(head_);
      wait();
    } else {
      wait();
      r_.ring.seal(head_);
    }
    CHECK(place.done.load() == rows);
    for (std::uint32_t row = 0; row < rows; ++row) {
      const auto owner = r_.ring.owner(head_, row);
      CHECK(owner.env < static_cast<std::uint32_t>(envs_));
      if (owner.env >= static_cast<std::uint32_t>(envs_)) return;
      CHECK(place.rows[row].env == owner.env);
      CHECK(place.rows[row].epoch == owner.epoch);
      CHECK(owner.epoch == orders_[owner.env].epoch.load());
      CHECK(in_flight_[owner.env] == 1);  // each action once
      in_flight_[owner.env] = 0;
    }
    received_ += rows;
    count_ -= static_cast<std::int32_t>(rows);
    head_ += 1;
  }

  const std::int32_t envs_, batch_;
  Ring r_;
  std::vector<Order> orders_;
  std::vector<Place> places_;
  std::vector<std::uint8_t> in_flight_;
  std::mt19937 random_;
  std::uint32_t head_ = 0, opened_ = 0;
  std::int32_t count_ = 0;
  std::uint64_t sent_ = 0, received_ = 0;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST(every_action_has_one_slot_whatever_the_threads) {
  std::uint32_t seed = 0;
  for (const auto& [envs, batch, threads] :
       {std::array{7, 3, 4}, std::array{16, 5, 8}, std::array{3, 1, 3}, std::array{2, 1, 2}, std::array{9, 8, 3}}) {
    Mill mill(envs, batch, threads, ++seed);
    mill.run(test::kSanitized ? 1'000 : 20'000);
  }
}

}  // namespace stepmill::slot_ring_test
