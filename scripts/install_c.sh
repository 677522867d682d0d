#!/usr/bin/env bash
# Installs the library for C into a folder: the header, both libraries, and the files for pkg-config and CMake.
#
#   scripts/install_c.sh PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${1:?"install_c: where to? scripts/install_c.sh PREFIX"}
cargo build -p reshard-c --release --locked
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
built=${CARGO_TARGET_DIR:-target}/release
shared=libreshard_c.so
[ -f "$built/$shared" ] || shared=libreshard_c.dylib
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
major=${version%%.*}
minor=${version#*.}
minor=${minor%%.*}

install -d "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/reshard"
install -m 644 c/include/reshard.h "$prefix/include/"
install -m 755 "$built/$shared" "$prefix/lib/"
install -m 644 "$built/libreshard_c.a" "$prefix/lib/"
# filled TEMPLATE TARGET
filled() {
    sed -e "s|@PREFIX@|$prefix|; s|@VERSION@|$version|; s|@MAJOR@|$major|; s|@MINOR@|$minor|" \
        -e "s|@SHARED_LIBRARY@|$shared|; s|@STATIC_LIBS@|-lpthread -ldl -lm|" "$1" >"$2"
    chmod 644 "$2"
}
filled c/reshard.pc.in "$prefix/lib/pkgconfig/reshard.pc"
filled c/cmake/reshard-config.cmake.in "$prefix/lib/cmake/reshard/reshard-config.cmake"
filled c/cmake/reshard-config-version.cmake.in "$prefix/lib/cmake/reshard/reshard-config-version.cmake"
echo "reshard $version is in $prefix"
