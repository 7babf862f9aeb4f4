#!/bin/sh
# What to link against so that a wheel runs with glibc 2.27, however new this machine's is: scripts/old_glibc.sh FOLDER
# fills the folder and prints the linker's flags. It needs zig (PyPI: ziglang) in the Python in PATH, and a C compiler.
# zig knows which function has which version in every glibc, and makes libraries of it that are empty but for the names.
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
echo 'int main(void) { return 0; }' >"$folder/empty.c"
ZIG_GLOBAL_CACHE_DIR=$folder/zig ZIG_LOCAL_CACHE_DIR=$folder/zig python -m ziglang build-exe \
  -target "$(uname -m)-linux-gnu.2.27" -lc -fPIE -fno-compiler-rt -fno-ubsan-rt \
  -femit-bin="$folder/empty" "$folder/empty.c" >&2
for name in libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 libld.so.2 libc_nonshared.a Scrt1.o; do
  cp "$(find "$folder/zig" -name $name)" "$folder"
done
"${CC:-cc}" -O2 -fPIC -c "$(dirname "$0")/old_glibc.c" -o "$folder/old_glibc.o"
ar rcs "$folder/libold_glibc.a" "$folder/old_glibc.o"
# Under the names by which a linker looks for them.
cat >"$folder/libc.so" <<EOF
GROUP ( $folder/libc.so.6 $folder/libold_glibc.a $folder/libc_nonshared.a
        AS_NEEDED ( $folder/libpthread.so.0 $folder/libdl.so.2 $folder/libld.so.2 ) )
EOF
for name in libm.so.6 libpthread.so.0 libdl.so.2; do ln -sf $name "$folder/${name%.*}"; done
echo "-B$folder -L$folder -static-libstdc++ -Wl,--exclude-libs,libstdc++.a"
