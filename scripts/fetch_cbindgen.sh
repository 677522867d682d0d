#!/usr/bin/env bash
# Builds cbindgen, which makes the header for C: outside of the checkout, once. Prints the program's path. It is not a
# dependency of a crate, because its licence is not one of those allowed for dependencies.
#
#   scripts/fetch_cbindgen.sh [FOLDER]        default: ${XDG_CACHE_HOME:-$HOME/.cache}/reshard
set -euo pipefail

version=0.29.4
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/reshard}/cbindgen
if [ "$("$folder/bin/cbindgen" --version 2>/dev/null)" != "cbindgen $version" ]; then
    cargo install cbindgen --version "$version" --locked --debug --quiet --root "$folder" >&2
fi
echo "$folder/bin/cbindgen"
