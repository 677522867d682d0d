#!/usr/bin/env bash
# Tests the package with a real PyTorch: its tests on 4 and 8 ranks over gloo, the examples of docs/torch.md.
# check_python.sh checks its types.
#
#   scripts/check_torch.sh [TOOLS]     TOOLS: the environment of scripts/fetch_torch.sh, which is fetched if not given
#
# RESHARD_TORCH_SWEEP: all for every pair of the sweeps, or the number of the eighth to run.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
tools=${1:-$(scripts/fetch_torch.sh)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheel=$(scripts/build_wheel.sh "$tools/bin/maturin" "$work/wheels")

step() {
    printf -- '-- %s (%s s)\n' "$1" "$SECONDS"
}

step "an environment that has the wheel and PyTorch"
scripts/install_wheel.sh "$wheel" "$tools" "$work/tested"
cd "$work"

step "tests"
"$work/tested/bin/python" -P -m pytest "$root/python/tests/with_torch" -p no:cacheprovider --durations=5 -s

step "done"
