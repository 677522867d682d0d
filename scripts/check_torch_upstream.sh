#!/usr/bin/env bash
# PyTorch's own tests of DTensor under `planned()`, against the list of what must differ.
#
#   RESHARD_TORCH_TESTS=FOLDER scripts/check_torch_upstream.sh [FILE ..]
#
# FOLDER is `test/distributed/tensor` of a checkout of PyTorch, best of the version of scripts/fetch_torch.sh; the wheel has no tests, and
# they are not in this repository. FILEs are files below it. Each runs twice, and what only counts calls a third time: half a minute to five
# minutes a file.
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
