#!/bin/sh
# Prints a Python of a version: `scripts/find_python.sh 3.12`. Fails if there is none.
# A `python3.12` in PATH may be a shim without a Python behind it, so each is tried.
for python in "python$1" "$(pyenv root 2>/dev/null)"/versions/"$1"*/bin/python; do
  if "$python" -c "import ensurepip, sys; assert '%d.%d' % sys.version_info[:2] == '$1'" 2>/dev/null; then
    command -v "$python"
    exit
  fi
done
exit 1
