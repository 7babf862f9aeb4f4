#!/usr/bin/env bash
# Builds the C++ tests under the thread and the address sanitizer (the latter with undefined
# behaviour checked too) and runs them. From the repository's root, by `make sanitize`.
#
#   PYTHON   the interpreter whose numpy is built against (.venv/bin/python)
#   BUILD    where the builds go (build)
set -euo pipefail
cd "$(dirname "$0")/../.."

python=${PYTHON:-.venv/bin/python}
build=${BUILD:-build}

# Some kernels place memory where the thread sanitizer does not expect it ("unexpected memory
# mapping"); without address randomisation they do not.
steady=()
if setarch "$(uname -m)" -R true 2>/dev/null; then steady=(setarch "$(uname -m)" -R); fi

# A report fails the test in which it happens.
export TSAN_OPTIONS="halt_on_error=0 exitcode=66 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_stack_use_after_return=1 ${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1 ${UBSAN_OPTIONS:-}"

for sanitizer in thread address,undefined; do
  folder=$build/sanitize-${sanitizer%%,*}
  cmake -S . -B "$folder" -DSTEPMILL_TESTS=ON -DSTEPMILL_PYTHON=OFF \
    -DSTEPMILL_SANITIZE="$sanitizer" -DPython_EXECUTABLE="$(command -v "$python")"
  cmake --build "$folder" -j2 --target cpp_tests
  "${steady[@]}" ctest --test-dir "$folder" --output-on-failure --timeout 300
done
