#!/usr/bin/env bash
# Measures `reshard run --through-engine` on the real checkpoint, with verification and writing, as a multiple of `cp` plus
# `cmp` of the same bytes. Everything is in the page cache. Compares the best of several tries of each, taken in turns, and
# fails above the promised ratio. With RESHARD_WRITE=1 it writes benches/results/run_speed.jsonl.
#
#   scripts/check_run_speed.sh [RATIO] [TRIES]      default: 3 and 9
set -euo pipefail
cd "$(dirname "$0")/.."
most=${1:-3}
tries=${2:-9}

file=${RESHARD_MINILM:-$(scripts/fetch_minilm.sh)}
cargo build --release --quiet -p reshard-cli
program=${CARGO_TARGET_DIR:-target}/release/reshard
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 - "$program" "$file" "$work" "$most" "$tries" <<'PYTHON'
import os, shutil, subprocess, sys, time
sys.path.insert(0, "python/benches")
from results import header, measured, write
program, file, work, most, tries = sys.argv[1:]

def timed(*commands):
    start = time.perf_counter()
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start

out, copy = os.path.join(work, "out"), os.path.join(work, "copy")
run = [program, "run", file, "--mesh", "dp=2,tp=4", "--to", "S(0),S(1)", "--through-engine", "--out", out]
began = header("run_speed", "scripts/check_run_speed.sh", "files.md")
runs, copies = [], []
for _ in range(int(tries)):
    runs.append(timed(run))
    shutil.rmtree(out)
    copies.append(timed(["cp", file, copy], ["cmp", file, copy]))
    os.remove(copy)
ratio = min(runs) / min(copies)
print(f"run {min(runs) * 1e3:.0f} ms, cp and cmp {min(copies) * 1e3:.0f} ms: {ratio:.2f} times, promised {most}")
what = "`reshard run --through-engine` of 90.9 MB, least"
peer = ("`cp` and `cmp`", min(copies) * 1e3)
write(began, [measured(what, min(runs) * 1e3, "ms", peer, limit=f"ratio <= {most}")])
sys.exit(ratio > float(most))
PYTHON
