#!/bin/sh
# `make test-dist`: the tests on a wheel, in an empty environment on a machine without a compiler:
# scripts/test_wheel.sh FOLDER VERSION [ARGUMENTS OF PYTEST]. The wheel is the one in FOLDER for that version of Python.
# WITH is one more requirement of the environment, such as "numpy<2".
set -eu
wheel=$(ls "$1"/*-cp"$(echo "$2" | tr -d .)"-*.whl)
python=$(scripts/find_python.sh "$2")
environment=$PWD/build/dist/environment-$2
shift 2
# All programs of this machine but those that build.
programs=$PWD/build/dist/programs
rm -rf "$programs" "$environment"
mkdir -p "$programs"
for program in /bin/* /usr/bin/*; do
  case ${program##*/} in
    *gcc* | *g++* | *clang* | cc | c++ | c89* | c99* | cpp* | ld | ld.* | *-ld | *-ld.* | as | *-as | tcc | \
      cmake | ninja | make | gmake | ccache | *-linux-gnu-* | zig) ;;
    *) ln -sf "$program" "$programs/${program##*/}" ;;
  esac
done
"$python" -m venv "$environment"
export PATH="$environment/bin:$programs"
unset CC CXX CMAKE_CXX_COMPILER_LAUNCHER
for compiler in c++ g++ gcc cc cmake; do
  if command -v $compiler; then echo "a compiler is left in PATH" >&2; exit 1; fi
done
echo "==> $(basename "$wheel"), in an empty environment without a compiler"
pip install --quiet --disable-pip-version-check --only-binary :all: "$wheel[test,lint,cli]" ${WITH:+"$WITH"}
# Away from the sources: what is tested is what was installed.
STEPMILL_WHEEL=$wheel python -m pytest tests "$@"
