#!/bin/sh
# Reshards a tensor of 8 GiB, in a sparse file, to 1,024 rank files, under a limit of 512 MiB of address space; prints time
# and peak.
#
#   scripts/check_files_memory.sh [FOLDER]    with space for 9 GiB; GIB=4 for a smaller one, RESHARD for a built program
set -eu
cd "$(dirname "$0")/.."
gib=${GIB:-8}
folder=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/reshard-memory-XXXXXX")
trap 'rm -rf "$folder"' EXIT
program=${RESHARD:-${CARGO_TARGET_DIR:-target}/release/reshard}
[ -n "${RESHARD:-}" ] || cargo build --release -p reshard-cli
python3 - "$folder/w.safetensors" "$gib" <<'PY'
import json, struct, sys
path, gib = sys.argv[1], int(sys.argv[2])
rows, columns = gib << 18, 1024  # f32
header = json.dumps({"w": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, rows * columns * 4]}}).encode()
header += b" " * (-len(header) % 8)
with open(path, "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header)
    for at in range(0, rows * columns * 4, 256 << 20):  # something that is not zero every 256 MiB
        file.seek(8 + len(header) + at)
        file.write(struct.pack("<Q", at + 1))
    file.truncate(8 + len(header) + rows * columns * 4)
PY
(
    ulimit -v 524288
    # shellcheck disable=SC2016
    exec python3 -c '
import os, resource, subprocess, sys, time
begin = time.time()
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"status {status}, {time.time() - begin:.1f} s, peak {peak:.0f} MiB")
sys.exit(status or peak > 256)
' "$program" run "$folder/w.safetensors" --mesh x=1024 --to 'S(0)' --out "$folder/out"
)
"$program" diff "$folder/w.safetensors" "$folder/out"
