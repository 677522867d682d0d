#!/usr/bin/env bash
# Measures `reshard run` from files to files, 604 MB in 9 tensors, as a multiple of `cp` and `sync` of the same bytes: one
# whole file to 8 ranks, those to 6, those to one whole file. Everything is in the page cache; medians, in turns. With
# RESHARD_WRITE=1 it writes benches/results/files_speed.jsonl.
#
#   scripts/check_files_speed.sh [TRIES] [FOLDER]      default: 7, and a new one in TMPDIR
set -euo pipefail
cd "$(dirname "$0")/.."
tries=${1:-7}
cargo build --release --quiet -p reshard-cli
program=${CARGO_TARGET_DIR:-target}/release/reshard
work=$(mktemp -d -p "${2:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$work"' EXIT

python3 - "$program" "$work" "$tries" <<'PYTHON'
import json, os, shutil, statistics, struct, subprocess, sys, time
sys.path.insert(0, "python/benches")
from results import header, measured, write
program, work, tries = sys.argv[1], sys.argv[2], int(sys.argv[3])
began, lines = header("files_speed", "scripts/check_files_speed.sh", "files.md"), []
path = lambda name: os.path.join(work, name)

names, size = [f"layer.{i}.weight" for i in range(9)], 4096 * 4096 * 4
header = {n: {"dtype": "F32", "shape": [4096, 4096], "data_offsets": [i * size, (i + 1) * size]} for i, n in enumerate(names)}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(path("whole.safetensors"), "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for _ in names:
        file.write(os.urandom(size))

def timed(*commands):
    subprocess.run(["sync"], check=True)
    start = time.perf_counter()
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start

def removed(name):
    shutil.rmtree(path(name)) if os.path.isdir(path(name)) else os.remove(path(name))

eight, six = ["--mesh", "dp=2,tp=4", "--to", "S(0),S(1)"], ["--mesh", "cp=3,tp=2", "--to", "S(0),S(1)"]
timed([program, "run", path("whole.safetensors"), *eight, "--out", path("eight")])
timed([program, "run", path("eight"), *six, "--out", path("six")])
for said, source, flags in [
    ("whole to 8", "whole.safetensors", [*eight, "--out"]),
    ("8 to 6", "eight", [*six, "--out"]),
    ("6 to whole", "six", ["--gather"]),
]:
    run = [program, "run", path(source), *flags, path("out")]
    ways = {
        "cp and sync": [["cp", "-r", path(source), path("out")], ["sync"]],
        "run": [run],
        "--no-verify": [[*run, "--no-verify"]],
        "--through-engine": [[*run, "--through-engine"]],
    }
    times = {way: [] for way in ways}
    for _ in range(tries):
        for way, commands in ways.items():
            times[way].append(timed(*commands))
            removed("out")
    base = statistics.median(times["cp and sync"])
    for way in list(ways)[1:]:
        what = f"`reshard run{'' if way == 'run' else ' ' + way}` of 604 MB, {said}"
        lines.append(measured(what, statistics.median(times[way]), "s", ("`cp` and `sync`", base)))
    print(f"{said:10}", "  ".join(f"{way} {statistics.median(t):.2f} s ({statistics.median(t) / base:.2f})" for way, t in times.items()), flush=True)
write(began, lines)
PYTHON
