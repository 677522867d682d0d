#!/usr/bin/env bash
# `reshard.jax` on virtual devices of the CPU: plans at their bound by compiled HLO, gradients, audits, and the examples of docs/jax.md.
#
#   scripts/check_jax.sh [TOOLS]     TOOLS: the environment of scripts/fetch_jax.sh, which is fetched if not given
#
# RESHARD_JAX_SWEEP=all runs all pairs of a mesh of 2 x 2 x 2, a number from 0 to 7 that eighth of them (0).
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
tools=${1:-$(scripts/fetch_jax.sh)}
target=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The package beside the tools, from the checkout: nothing of it is installed.
cargo build -p reshard-python --features extension --locked
cp -r "$root/python/reshard" "$work/reshard"
cp "$target/debug/lib_reshard.so" "$work/reshard/_reshard.abi3.so"
PYTHONPATH=$work "$tools/bin/python" -P -m pytest "$root/python/tests/jax" -s -p no:cacheprovider --durations=5
