#!/usr/bin/env bash
# Plans judged by the clock: python/benches/plan_bench.py in an environment with the wheel and PyTorch, and its tables.
#
#   scripts/plan_bench.sh [OPTIONS]     OPTIONS of plan_bench.py, such as --layouts 2x2
#
# Needs root and network namespaces; without them it says so and fails. RESHARD_WRITE=1 writes benches/results.
# RESHARD_TORCH: a Python that has this package and PyTorch; without it the wheel is built.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
    echo "plan_bench: limited links need root and iproute2 (ip, tc): nothing was measured" >&2
    exit 1
fi
python=${RESHARD_TORCH:-}
if [ -z "$python" ]; then
    tools=$(scripts/fetch_torch.sh)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    scripts/install_wheel.sh "$(scripts/build_wheel.sh "$tools/bin/maturin" "$work/wheels")" "$tools" "$work/measured"
    python=$work/measured/bin/python
fi
"$python" -P python/benches/plan_bench.py "$@"
