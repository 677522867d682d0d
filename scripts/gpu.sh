#!/usr/bin/env bash
# Runs everything that needs a GPU, in two halves: built on a machine with Rust, run on one with a GPU, without Rust there.
#
#   scripts/gpu.sh build               binaries into target/gpu, less than 64 MiB in all
#   scripts/gpu.sh run [STAGE ..]      all stages, or these, each for at most GPU_LIMIT seconds (540); then the report
#   scripts/gpu.sh report              target/gpu/report.md from the stages that have run, in one or in several commands
#   scripts/gpu.sh stages              the names of the stages
#
# GPU_MIB is the size of the timed tensors (1024), GPU_REPORT the path of the report. The GPU machine needs this script,
# target/gpu and benches/peers. A stage that fails, skips something or lacks a command becomes a row of the report with the
# reason, and the script fails.
set -euo pipefail
cd "$(dirname "$0")/.."

stages=(kernels engines memcheck racecheck copies packs plans graphs torch nccl c10d run)
folder=target/gpu
report=${GPU_REPORT:-$folder}
limit=${GPU_LIMIT:-540}
mib=${GPU_MIB:-1024}
most=$((64 << 20))

build() {
    command -v python3 >/dev/null || { echo "gpu.sh: python3 is not there, which picks the binaries" >&2; exit 1; }
    rm -rf "$folder" && mkdir -p "$folder"
    {
        cargo test --release --no-run --message-format=json -p reshard-cuda -p reshard-device \
            --features reshard-device/cuda --test on_device --test contract --test fused
        cargo test --release --no-run --message-format=json -p reshard-nccl --features nccl --test nccl_on_device
        cargo test --release --no-run --message-format=json -p reshard-cli --features cuda,nccl --test gpu_run
        cargo build --release --message-format=json -p reshard-device --features cuda --example device_speed
        cargo build --release --message-format=json -p reshard-cli --features cuda,nccl --bin reshard
    } | python3 -c '
import json, shutil, sys
wanted = {"on_device", "contract", "fused", "nccl_on_device", "gpu_run", "device_speed", "reshard"}
for line in sys.stdin:
    message = json.loads(line) if line.startswith("{") else {}
    name = message.get("target", {}).get("name")
    if message.get("reason") == "compiler-artifact" and message.get("executable") and name in wanted:
        shutil.copy(message["executable"], sys.argv[1] + "/" + name)
missing = sorted(wanted - set(__import__("os").listdir(sys.argv[1])))
sys.exit("gpu.sh: not built: " + ", ".join(missing) if missing else 0)
' "$folder"
    # The Python package, for PyTorch's NCCL groups, and its tests' definition of shards.
    cp python/tests/with_torch/definition.py "$folder/"
    scripts/build_wheel.sh "$(scripts/fetch_python.sh)/bin/maturin" "$PWD/$folder/wheel" >/dev/null
    find "$folder" -type f -executable -exec strip {} +
    git rev-parse --short HEAD >"$folder/revision" 2>/dev/null || echo unknown >"$folder/revision"
    ls -l "$folder"
    local bytes
    bytes=$(du -sb "$folder" | cut -f1)
    if [ "$bytes" -ge "$most" ]; then
        echo "gpu.sh: target/gpu has $bytes bytes, and at most $most travel" >&2
        exit 1
    fi
}

# Finds CUDA in Python packages and in the system, and makes links with the expected names.
find_cuda() {
    local site name f d
    links=$(mktemp -d)
    trap 'rm -rf "$links"' EXIT
    site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null || true)
    for d in "${site:-/nowhere}"/nvidia/*/lib /usr/local/cuda/lib64; do
        [ -d "$d" ] || continue
        LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$d"
        for name in nvrtc nccl; do
            for f in "$d/lib$name".so.*; do
                [ -e "$f" ] && ln -sf "$f" "$links/lib$name.so"
            done
        done
    done
    f=$(ldconfig -p 2>/dev/null | awk '/libcuda\.so\.1 / { print $NF; exit }' || true)
    [ -n "$f" ] && ln -sf "$f" "$links/libcuda.so"
    export LD_LIBRARY_PATH="$links${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    [ -d /usr/local/cuda/bin ] && PATH="$PATH:/usr/local/cuda/bin"
    return 0
}

row() {
    printf '| %s | %s | %s |\n' "$1" "$2" "$3" >>"$parts/$stage.rows"
}

# Runs a command under the limit, with its output in the stage's part of the report; its status is in $status.
into() {
    status=0
    echo '    $' "$@" >>"$parts/$stage.md"
    RESHARD_NEED_DEVICE=1 timeout --kill-after=10 "$limit" "$@" >"$parts/$stage.log" 2>&1 || status=$?
    sed 's/^/    /' "$parts/$stage.log" >>"$parts/$stage.md"
}

# Runs a test binary, or a command that runs one: the promise holds if it succeeds and skips nothing.
tested() {
    local what=$1 promised=$2 passed
    shift 2
    if ! command -v "$1" >/dev/null; then
        row "$what" "$promised" "NOT RUN: there is no $1"
        return
    fi
    into "$@"
    passed=$(awk '/^test result: ok/ { n += $4 } END { print n + 0 }' "$parts/$stage.log")
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        row "$what" "$promised" "FAILED: not done in $limit s"
    elif [ "$status" != 0 ]; then
        row "$what" "$promised" "FAILED with status $status"
    elif grep -q SKIPPED "$parts/$stage.log"; then
        row "$what" "$promised" "NOT RUN: $(grep -m1 -o 'SKIPPED.*' "$parts/$stage.log")"
    elif [ "$passed" = 0 ]; then
        row "$what" "$promised" "NOT RUN: no test passed"
    else
        row "$what" "$promised" "kept, $passed tests"
    fi
}

# Runs a command that prints tables, and rows of the report after ROW.
measured() {
    local what=$1
    shift
    into "$@"
    # Tables are copied into the report as they are.
    { grep -v '^ROW ' "$parts/$stage.log" || true; } >"$parts/$stage.md"
    sed -n 's/^ROW | /| /p' "$parts/$stage.log" >>"$parts/$stage.rows"
    if [ "$status" != 0 ]; then
        row "$what" "all of the above" "FAILED with status $status: $(tail -n1 "$parts/$stage.log" | tr '|' '/')"
    elif [ ! -s "$parts/$stage.rows" ]; then
        row "$what" "a table" "FAILED: no row was printed"
    fi
}

has_torch() {
    python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null
}

run_stage() {
    stage=$1
    rm -f "$parts/$stage".*
    : >"$parts/$stage.md"
    : >"$parts/$stage.rows"
    case $stage in
        kernels) tested "every kernel against the definition on random nests, batches, and all dtypes" "equal, to the bit" "$folder/on_device" ;;
        engines)
            tested "the engine contract on one device at 1, 2, 3, 5 and 8 ranks" kept "$folder/contract"
            tested "plans fused over all ranks" kept "$folder/fused"
            ;;
        memcheck | racecheck)
            tested "compute-sanitizer, $stage" clean compute-sanitizer --tool "$stage" --error-exitcode 99 "$folder/on_device"
            ;;
        copies | packs | plans | graphs) measured "$stage" "$folder/device_speed" "$stage" "$mib" ;;
        torch)
            if has_torch; then
                measured torch python3 benches/peers/device_torch.py "$mib" "$parts/copies.md"
            else
                row "compared with torch's permute().contiguous()" "never slower by more than 5 %" "NOT RUN: no torch with CUDA"
            fi
            ;;
        # One rank, then two processes on this GPU: for correctness only, not timed.
        nccl) tested "NCCL: the contract and a captured plan, one rank and two processes on one GPU" "kept; not timed" "$folder/nccl_on_device" --nocapture --test-threads 1 ;;
        c10d)
            if has_torch; then
                python3 -m zipfile -e "$folder"/wheel/*.whl "$links/python"
                PYTHONPATH=$links/python:$folder measured c10d python3 benches/peers/device_c10d.py
            else
                row "reshard.torch over PyTorch's NCCL groups" "every shard equal" "NOT RUN: no torch with CUDA"
            fi
            ;;
        run) RESHARD_PROGRAM=$PWD/$folder/reshard tested "\`reshard run\` with --engine cuda and nccl: the files of --engine threads" "equal, to the bit" "$folder/gpu_run" --nocapture --test-threads 1 ;;
    esac
}

write_report() {
    local gpu stage
    gpu=$(cat "$parts/gpu" 2>/dev/null || echo "no GPU was asked")
    {
        echo "# On a GPU, $(date +%F)"
        echo
        echo "$gpu; revision $(cat "$folder/revision" 2>/dev/null || echo unknown); tensors of $mib MiB."
        echo
        echo "| what | promised | found |"
        echo "|---|---|---|"
        for stage in "${stages[@]}"; do
            if [ -s "$parts/$stage.rows" ]; then cat "$parts/$stage.rows"; else echo "| stage $stage | | not run yet |"; fi
        done
        for stage in "${stages[@]}"; do
            if [ -s "$parts/$stage.md" ]; then
                echo && echo "## $stage" && echo && cat "$parts/$stage.md"
            fi
        done
    } >"$report/report.md"
    echo "gpu.sh: $report/report.md"
}

run() {
    local wanted=("$@") one bad=0
    [ $# -gt 0 ] || wanted=("${stages[@]}")
    for one in "${wanted[@]}"; do
        # Do not pipe into `grep -q`, which may exit before everything is written.
        if [[ " ${stages[*]} " != *" $one "* ]]; then
            echo "gpu.sh: there is no stage $one: ${stages[*]}" >&2
            exit 2
        fi
    done
    if [ ! -e "$folder/revision" ]; then
        echo "gpu.sh: target/gpu is not there: run scripts/gpu.sh build where Rust is" >&2
        exit 1
    fi
    if ! nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >"$parts/gpu"; then
        echo "gpu.sh: nvidia-smi does not answer: there is no GPU, or no driver" >&2
        exit 1
    fi
    find_cuda
    for one in "${wanted[@]}"; do
        echo "gpu.sh: $one ($SECONDS s)"
        run_stage "$one"
        cat "$parts/$one.rows"
        if grep -qE 'FAILED|NOT RUN' "$parts/$one.rows"; then bad=1; fi
    done
    write_report
    return $bad
}

parts=$report/stages
case ${1:-} in
    build) build ;;
    run) mkdir -p "$parts" && shift && run "$@" ;;
    report) mkdir -p "$parts" && write_report ;;
    stages) printf '%s\n' "${stages[@]}" ;;
    *) sed -n '4,11p' "$0" >&2 && exit 2 ;;
esac
