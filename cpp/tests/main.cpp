#include "tests/check.h"

int main(int count, char** arguments) { return stepmill::test::run_tests(count > 1 ? arguments[1] : ""); }
