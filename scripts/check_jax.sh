#!/usr/bin/env bash
# Tests `reshard.jax` on virtual CPU devices: compiled HLO at the plans' bounds, gradients, audits, examples of docs/jax.md.
#
#   scripts/check_jax.sh [TOOLS]     TOOLS: the environment of scripts/fetch_jax.sh, which is fetched if not given
#
# RESHARD_JAX_SWEEP=all runs all pairs of a mesh of 2 x 2 x 2, a number from 0 to 7 that eighth of them (0).
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
tools=${1:-$(scripts/fetch_jax.sh)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wheel=$(scripts/build_wheel.sh "$tools/bin/maturin" "$work/wheels")
scripts/install_wheel.sh "$wheel" "$tools" "$work/tested"
cd "$work"
"$work/tested/bin/python" -P -m pytest "$root/python/tests/with_jax" -s -p no:cacheprovider --durations=5
