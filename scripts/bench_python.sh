#!/bin/sh
# Prints the Python for the benchmarks: a 3.12 if there is one, which EnvPool's newest needs, else the first argument.
# A `python3.12` in PATH may be a shim without a Python behind it, so each is tried.
for python in python3.12 "$(pyenv root 2>/dev/null)"/versions/3.12*/bin/python; do
  if "$python" -c "import ensurepip" 2>/dev/null; then
    echo "$python"
    exit
  fi
done
echo "$1"
