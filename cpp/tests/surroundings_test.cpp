#include "core/surroundings.h"

#include <cfenv>
#include <string>

#include "tests/check.h"

namespace stepmill::surroundings_test {

double third() {
  volatile double one = 1.0, three = 3.0;
  return one / three;
}

TEST(what_was_changed_is_as_it_was_before) {
  const double usual = third();
  const std::string locale = std::setlocale(LC_ALL, nullptr);
  {
    const KeptSurroundings kept;
    CHECK(std::fesetround(FE_UPWARD) == 0);
    CHECK(third() != usual);
    std::setlocale(LC_TIME, "C.UTF-8");
  }
  CHECK(std::fegetround() == FE_TONEAREST);
  CHECK(third() == usual);
  CHECK(locale == std::setlocale(LC_ALL, nullptr));
  const Surroundings before;
  CHECK(std::fesetround(FE_TOWARDZERO) == 0);
  const Surroundings inner;
  before.restore();
  CHECK(std::fegetround() == FE_TONEAREST);
  inner.restore();
  CHECK(std::fegetround() == FE_TOWARDZERO);
  before.restore();
}

}  // namespace stepmill::surroundings_test
