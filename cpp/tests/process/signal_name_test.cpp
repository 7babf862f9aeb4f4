#include "core/process/signal_name.h"

#include <cstring>

#include "tests/check.h"

namespace stepmill::signal_name_test {

#if __GLIBC_PREREQ(2, 32)
TEST(signals_have_the_names_that_glibc_gives_them) {
  for (int number = 1; number < 32; ++number) {
    const bool ends = number != SIGCHLD && number != SIGCONT && number != SIGURG && number != SIGWINCH &&
                      number != SIGSTOP && number != SIGTSTP && number != SIGTTIN && number != SIGTTOU;
    CHECK(signal_name(number) == (ends ? "SIG" + std::string(sigabbrev_np(number)) : "signal " + std::to_string(number)));
  }
}
#endif

TEST(signals_without_a_name_have_their_number) { CHECK(signal_name(SIGRTMIN) == "signal " + std::to_string(SIGRTMIN)); }

}  // namespace stepmill::signal_name_test
