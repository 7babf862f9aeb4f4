#include "core/process/wait_pace.h"

#include "tests/check.h"

namespace stepmill::wait_pace_test {

constexpr std::chrono::nanoseconds kHour = std::chrono::hours(1);

// Out of line: where it sees through all of these, GCC 12 takes the start of a wait that has none for uninitialized.
[[gnu::noinline]] void end(WaitPace& pace) { pace.end(); }

TEST(without_a_spare_core_the_caller_sleeps) {
  WaitPace pace(false);
  for (int i = 0; i < 3; ++i) {
    CHECK((pace.sleep_for(kHour) == kHour) == true);
    CHECK((pace.sleep_for(kHour) == kHour) == true);
    end(pace);
  }
}

TEST(with_a_spare_core_it_is_awake_once_for_each_batch) {
  WaitPace pace(true);
  for (int i = 0; i < 3; ++i) {
    int awake = 0;
    for (int look = 0; look < 1000; ++look) {
      const auto sleep = pace.sleep_for(kHour);
      if (!sleep) ++awake;
      if (awake != 0 && sleep) CHECK((*sleep == kHour) == true);
      // Until it is time to be awake, never longer than batches took so far.
      if (awake == 0) look = 0;
    }
    CHECK(awake == 1);
    end(pace);
  }
}

TEST(a_wait_of_no_time_is_no_time_to_be_awake) {
  WaitPace pace(false);
  CHECK((pace.sleep_for(std::chrono::nanoseconds(0)) == std::chrono::nanoseconds(0)) == true);
}

}  // namespace stepmill::wait_pace_test
