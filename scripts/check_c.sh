#!/usr/bin/env bash
# Tests the C library as its users get it, under the address and the undefined behaviour sanitizer. The header must
# equal the one made from the source, and compile without a warning as C99 and C++11. Every function is called with
# invalid arguments, and the examples transfer bytes between processes.
#
#   scripts/check_c.sh [CBINDGEN]      CBINDGEN: the program of scripts/fetch_cbindgen.sh, which is fetched if not given; none: not compared
#   RESHARD_WRITE=1 scripts/check_c.sh       writes the header
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
cbindgen=${1:-$(scripts/fetch_cbindgen.sh)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() {
    printf -- '-- %s (%s s)\n' "$1" "$SECONDS"
}

if [ "$cbindgen" != none ]; then
    step "the header is that of the source"
    "$cbindgen" --quiet --config c/cbindgen.toml --output "$work/made.h" c
    # Rust's safety requirements of callers are at the beginning of the header, once.
    python3 -c 'import re, sys; print(re.sub(r"\n\n # Safety\n\n.*?\n \*/", "\n */", sys.stdin.read(), flags=re.S), end="")' \
        <"$work/made.h" >"$work/reshard.h"
    if [ "${RESHARD_WRITE:-}" = 1 ]; then
        mkdir -p c/include
        cp "$work/reshard.h" c/include/reshard.h
    fi
    diff -u c/include/reshard.h "$work/reshard.h" || {
        echo "check_c: c/include/reshard.h is of another source: RESHARD_WRITE=1 scripts/check_c.sh writes it" >&2
        exit 1
    }
fi

step "the library, installed"
scripts/install_c.sh "$work/prefix"
export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig" LD_LIBRARY_PATH="$work/prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
read -ra flags <<<"$(pkg-config --cflags reshard)"
read -ra libs <<<"$(pkg-config --libs reshard)"
read -ra static_libs <<<"$(sed -n 's/^Libs.private: //p' "$work/prefix/lib/pkgconfig/reshard.pc")"

step "no symbol but those of the header"
exported=$(nm -D --defined-only "$work"/prefix/lib/libreshard_c.so | sed -n 's/.* T //p' | sort)
declared=$(grep -oE '\breshard_[a-z0-9_]+\(' c/include/reshard.h | tr -d '(' | sort -u)
[ "$exported" = "$declared" ] || {
    diff <(echo "$exported") <(echo "$declared") >&2
    exit 1
}

strict=(-Wall -Wextra -pedantic -Werror -Wconversion -Wno-sign-conversion)
sanitized=(-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
cc=(gcc) cxx=(g++)
! command -v clang >/dev/null || { cc+=(clang); cxx+=(clang++); }
python3 c/tests/make_bad.py c/include/reshard.h >"$work/bad.c"
python3 c/tests/make_docs.py docs/c.md "$work/docs.c" "$work/expected.txt"
echo '#include <reshard.h>' >"$work/alone.c"

for compiler in "${cc[@]}"; do
    step "$compiler: C99"
    "$compiler" -std=c99 "${strict[@]}" "${flags[@]}" -fsyntax-only "$work/alone.c"
    for program in c/examples/processes.c c/tests/values.c "$work/bad.c" "$work/docs.c"; do
        posix=(-D_POSIX_C_SOURCE=200809L)
        "$compiler" -std=c99 "${strict[@]}" "${posix[@]}" "${sanitized[@]}" "${flags[@]}" "$program" "${libs[@]}" -lpthread \
            -o "$work/$(basename "$program" .c)"
    done
    "$work/bad" "$work/bad.safetensors"
    "$work/values" "$work/values.safetensors"
    "$work/docs" | diff "$work/expected.txt" -
    for pair in 'S(0),S(1) S(1),S(0)' 'S(0),S(0) S(1),S(1)' 'R,S(0) S(1),R' 'S(1),SS(0,2) R,R' 'S(0),R S(0),S(0)'; do
        # shellcheck disable=SC2086
        "$work/processes" $pair
    done
done
for compiler in "${cxx[@]}"; do
    step "$compiler: C++11"
    "$compiler" -std=c++11 "${strict[@]}" "${flags[@]}" -x c++ -fsyntax-only "$work/alone.c"
    "$compiler" -std=c++11 "${strict[@]}" "${sanitized[@]}" "${flags[@]}" c/examples/shared.cpp "${libs[@]}" -o "$work/shared"
    "$work/shared"
done
step "the static library"
"${cc[0]}" -std=c99 "${flags[@]}" "$work/docs.c" "$work/prefix/lib/libreshard_c.a" "${static_libs[@]}" -o "$work/docs_static"
env -u LD_LIBRARY_PATH "$work/docs_static" | diff "$work/expected.txt" -
if command -v cmake >/dev/null; then
    step "CMake"
    mkdir "$work/cmake"
    cat >"$work/cmake/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(uses_reshard C)
find_package(reshard 0.1 REQUIRED)
add_executable(docs $work/docs.c)
target_link_libraries(docs reshard::reshard)
add_executable(docs_static $work/docs.c)
target_link_libraries(docs_static reshard::static)
CMAKE
    cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
    cmake --build "$work/cmake/build" >/dev/null
    "$work/cmake/build/docs" | diff "$work/expected.txt" -
    "$work/cmake/build/docs_static" | diff "$work/expected.txt" -
else
    echo "CMake is not here: its files were not tried"
fi
step "done"
