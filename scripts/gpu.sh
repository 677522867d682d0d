#!/usr/bin/env bash
# Everything that needs a GPU, in two halves: built where Rust is, run where a GPU is.
#
#   scripts/gpu.sh build           test binaries and benchmarks into target/gpu
#   scripts/gpu.sh run [MIB]       runs them; needs a driver, NVRTC and NCCL, no Rust; writes target/gpu/report.md
set -euo pipefail
cd "$(dirname "$0")/.."
folder=target/gpu

build() {
    rm -rf "$folder" && mkdir -p "$folder"
    local list
    list=$(
        cargo test --release --no-run --message-format=json -p reshard-cuda -p reshard-device \
            --features reshard-device/cuda --test on_device --test contract --test fused
        cargo test --release --no-run --message-format=json -p reshard-nccl --features nccl --test nccl_on_device
        cargo build --release --message-format=json -p reshard-device --features cuda --example device_speed
    )
    printf '%s\n' "$list" | python3 -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line) if line.startswith("{") else {}
    if message.get("reason") == "compiler-artifact" and message.get("executable"):
        if message["target"]["kind"] in (["test"], ["example"]):
            shutil.copy(message["executable"], sys.argv[1] + "/" + message["target"]["name"])
' "$folder"
    strip "$folder"/*
    ls -l "$folder"
}

# Where Python packages have CUDA: links of the names that are looked for.
find_cuda() {
    local site links
    site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null || true)
    links=$(mktemp -d)
    for d in "$site"/nvidia/*/lib /usr/local/cuda/lib64; do
        [ -d "$d" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$d"
        for name in nvrtc nccl; do
            for f in "$d/lib$name".so.*; do
                [ -e "$f" ] && ln -sf "$f" "$links/lib$name.so"
            done
        done
    done
    export LD_LIBRARY_PATH="$links:${LD_LIBRARY_PATH:-}"
}

run() {
    find_cuda
    local report=$folder/report.md
    {
        echo "# On a GPU, $(date +%F)"
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || true
        for test in on_device contract fused; do
            echo && echo "## $test" && echo
            RESHARD_NEED_DEVICE=1 "$folder/$test" 2>&1 | sed 's/^/    /'
        done
        if command -v compute-sanitizer >/dev/null; then
            for tool in memcheck racecheck; do
                echo && echo "## compute-sanitizer, $tool" && echo
                RESHARD_NEED_DEVICE=1 compute-sanitizer --tool "$tool" "$folder/on_device" 2>&1 | tail -5 | sed 's/^/    /'
            done
        else
            echo && echo "SKIPPED: no compute-sanitizer"
        fi
        echo && echo "## speed" && echo
        "$folder/device_speed" "${1:-1024}"
        echo && echo "## torch" && echo
        python3 benches/peers/device_torch.py "${1:-1024}" || echo "SKIPPED: no torch with CUDA"
        # One rank, then two processes on this GPU: for correctness, not to be timed.
        echo && echo "## nccl_on_device" && echo
        RESHARD_NEED_DEVICE=1 "$folder/nccl_on_device" --nocapture --test-threads 1 2>&1 | sed 's/^/    /'
    } 2>&1 | tee "$report"
}

case ${1:-} in
    build) build ;;
    run) shift && run "$@" ;;
    *) sed -n '2,6p' "$0" >&2 && exit 2 ;;
esac
