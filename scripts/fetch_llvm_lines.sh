#!/usr/bin/env bash
# Builds cargo-llvm-lines, which counts the code that the compiler generates for a crate: outside of the checkout, once.
# Prints its folder.
#
#   scripts/fetch_llvm_lines.sh [FOLDER]        default: ${XDG_CACHE_HOME:-$HOME/.cache}/reshard
set -euo pipefail

version=0.4.48
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/reshard}/llvm-lines
if [ ! -x "$folder/bin/cargo-llvm-lines" ] || [ "$(cat "$folder/version" 2>/dev/null)" != "$version" ]; then
    cargo install cargo-llvm-lines --version "$version" --locked --debug --quiet --root "$folder" >&2
    echo "$version" >"$folder/version"
fi
echo "$folder/bin"
