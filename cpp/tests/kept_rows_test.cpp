// Rows that are kept, and given out in an order that the caller chooses.
#include "core/kept_rows.h"

#include "tests/check.h"
#include "tests/pool_driver.h"

namespace stepmill::kept_rows_test {

using test::async_of;
using test::Driver;
using test::Ids;
using test::steps_of;

TEST(kept_rows_stay_in_flight_until_they_are_taken_in_any_order) {
  for (const Arena::Kind arena : {Arena::Kind::kPrivate, Arena::Kind::kShared}) {
    auto options = async_of(4, 2, 0);
    options.arena = arena;
    Driver d(options);
    KeptRows kept(d.pool);
    d.send({0, 1, 2, 3}, test::kGoOn);
    d.drop(d.recv());
    d.drop(d.recv());
    d.send({1, 0, 3}, test::kGoOn);  // the steps of env 2 are fewer
    d.drop(d.recv());
    d.drop(d.recv());
    d.send({2, 0, 3, 1}, test::kGoOn);
    kept.keep(d.recv());
    kept.keep(d.recv());
    CHECK(d.pool.in_flight_count() == 4);
    for (std::int32_t env = 0; env < 4; ++env) {
      CHECK(kept.has(env));
      CHECK(d.pool.in_flight(env));
    }

    const Ids wanted{3, 2};
    const Batch first = kept.take(wanted);
    CHECK(d.ids(first) == wanted);
    CHECK(steps_of(first, 0) == 2.0);
    CHECK(steps_of(first, 1) == 1.0);
    CHECK(d.pool.in_flight_count() == 2);
    CHECK(!d.pool.in_flight(3));
    CHECK(!kept.has(2));
    CHECK(kept.has(0));
    d.send({3}, test::kGoOn);  // beside those that are kept
    kept.keep(d.recv());
    const Ids others{1, 3};
    const Batch second = kept.take(others);
    CHECK(d.ids(second) == others);
    CHECK(steps_of(second, 0) == 2.0);
    CHECK(steps_of(second, 1) == 3.0);
    CHECK(steps_of(first, 0) == 2.0);  // what was taken stays as it was
    kept.drop();
    CHECK(d.pool.in_flight_count() == 0);
    CHECK(!d.pool.in_flight(0));
    d.drop(first);
    d.drop(second);
  }
}

}  // namespace stepmill::kept_rows_test
