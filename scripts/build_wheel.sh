#!/usr/bin/env bash
# Builds the wheel of the Python package, without paths of this machine in its files. Prints the wheel's path.
#
#   scripts/build_wheel.sh MATURIN FOLDER     with this maturin, into this folder
set -euo pipefail
cd "$(dirname "$0")/.."

maturin=$1 folder=$2
RUSTFLAGS="$(scripts/remap_paths.sh)" "$maturin" build --manifest-path python/Cargo.toml --release --locked --out "$folder" >&2
wheels=("$folder"/*.whl)
[ ${#wheels[@]} = 1 ] || { echo "build_wheel: one wheel was expected, there are ${wheels[*]}" >&2; exit 1; }
echo "${wheels[0]}"
