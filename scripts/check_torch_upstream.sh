#!/usr/bin/env bash
# Runs PyTorch's own tests of DTensor under `planned()`, and compares them with the list of expected differences.
#
#   RESHARD_TORCH_TESTS=FOLDER scripts/check_torch_upstream.sh [FILE ..]
#
# FOLDER is `test/distributed/tensor` of a checkout of PyTorch, preferably of the version of scripts/fetch_torch.sh; neither
# the wheel nor this repository has these tests. FILEs are files below it. Each runs twice, and tests that only count calls
# a third time: half a minute to five minutes a file.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
if [ ! -d "${RESHARD_TORCH_TESTS:-}" ]; then
    echo "check_torch_upstream: RESHARD_TORCH_TESTS has to be a folder with PyTorch's tests, test/distributed/tensor of a checkout" >&2
    exit 2
fi
tests=$(realpath "$RESHARD_TORCH_TESTS")
tools=$(scripts/fetch_torch.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheel=$(scripts/build_wheel.sh "$tools/bin/maturin" "$work/wheels")
scripts/install_wheel.sh "$wheel" "$tools" "$work/tested"
cd "$work"
"$work/tested/bin/python" -P "$root/python/tests/torch_upstream/run.py" "$tests" "$root/python/tests/torch_upstream/expected.toml" "$@"
