#!/usr/bin/env bash
# Builds the wheel of the Python package, with no path of this machine in any file of it: neither the checkout nor the registry's
# cache. Prints where it is.
#
#   scripts/build_wheel.sh MATURIN FOLDER     with this maturin, into this folder
set -euo pipefail
cd "$(dirname "$0")/.."

maturin=$1 folder=$2 root=$PWD
sysroot=$(rustc --print sysroot)
RUSTFLAGS="--remap-path-prefix=$root=reshard --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo --remap-path-prefix=$sysroot=rust" \
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/wheel" \
    "$maturin" build --manifest-path python/Cargo.toml --release --locked --out "$folder" >&2
wheels=("$folder"/*.whl)
[ ${#wheels[@]} = 1 ] || { echo "build_wheel: one wheel was expected, there are ${wheels[*]}" >&2; exit 1; }
echo "${wheels[0]}"
