#!/usr/bin/env bash
# scripts/gpu.sh without a GPU: its run half over stand-ins for the binaries, the driver's tools and torch. That every stage
# is a row of the report, that what fails or is not there is said and is a failure, and that no Rust is needed.
# shellcheck disable=SC2016 # what stand-ins expand is in single quotes here
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/scripts" "$work/benches/peers" "$work/target/gpu" "$work/tools" "$work/python/torch"
cp scripts/gpu.sh "$work/scripts/"
cp benches/peers/device_torch.py "$work/benches/peers/"
echo 'print("a table\nROW | reshard.torch over the groups of a stand-in | every shard equal | kept |")' >"$work/benches/peers/device_c10d.py"
cd "$work"

tool() {
    cat >"$1"
    chmod +x "$1"
}

for name in cargo rustc; do
    echo 'echo "$0 was called" >>rust_was_called; exit 1' | tool "tools/$name"
done
echo 'echo "NVIDIA Stand-in, 1.0"' | tool tools/nvidia-smi
printf '#!/usr/bin/env bash\nwhile [ "${1:0:2}" = -- ]; do shift 2; done\nexec "$@"\n' | tool tools/compute-sanitizer
for name in on_device contract fused nccl_on_device gpu_run; do
    printf '#!/usr/bin/env bash\n[ "$RESHARD_NEED_DEVICE" = 1 ] || exit 9\necho "test result: ok. 3 passed; 0 failed"\n' | tool "target/gpu/$name"
done
tool target/gpu/device_speed <<'END'
#!/usr/bin/env bash
echo "stand-in, $2 MiB"
if [ "$1" = copies ]; then
    for item in 4 2; do
        for name in "2-D transpose" "batched transpose" "(0,2,1,3), 128 B inside" "(2,1,0)" "(3,0,1,2)"; do
            echo "| $name | $item | 4 | transpose | 1024 | ${SPEED:-5000000} | 0.95 | 0.90 | |"
        done
    done
fi
echo "ROW | $1 of the stand-in | a promise | kept |"
END
echo stand-in >target/gpu/revision
mkdir target/gpu/wheel && (cd target/gpu/wheel && echo >reshard.py && python3 -m zipfile -c reshard-0-any.whl reshard.py && rm reshard.py)
# Every call takes a millisecond.
cat >python/torch/__init__.py <<'END'
__version__, float32, bfloat16, int64 = "stand-in", "f32", "bf16", "i64"
class Tensor:
    def permute(self, order): return self
    def clone(self): return self
    def copy_(self, other): return self
def empty(extents, dtype, device): return Tensor()
zeros = empty
def amax(tensor): return tensor
class cuda:
    class Event:
        def __init__(self, enable_timing): pass
        def record(self): pass
        def elapsed_time(self, end): return 1.0
    is_available = staticmethod(lambda: True)
    get_device_name = staticmethod(lambda: "stand-in")
    synchronize = staticmethod(lambda: None)
END

fail() {
    echo "check_gpu: $1" >&2
    cat said target/gpu/report.md >&2 || true
    exit 1
}

# gpu STATUS [VARIABLE=VALUE ..] ARGUMENT ..
gpu() {
    local status=$1 got=0
    shift
    env PATH="$work/tools:/usr/bin:/bin" PYTHONPATH="$work/python" "${@:1:$#}" >said 2>&1 || got=$?
    [ "$got" = "$status" ] || fail "status $got, and not $status: $*"
}
run=(bash scripts/gpu.sh run)
has() {
    grep -qF -- "$1" "${2:-target/gpu/report.md}" || fail "no \`$1\`"
}

gpu 0 GPU_MIB=8 "${run[@]}"
[ ! -e rust_was_called ] || fail "$(cat rust_was_called)"
has "NVIDIA Stand-in, 1.0; revision stand-in; tensors of 8 MiB."
has "| every kernel against the definition on random nests, batches, and all dtypes | equal, to the bit | kept, 3 tests |"
has "| compute-sanitizer, racecheck | clean | kept, 3 tests |"
has "| graphs of the stand-in | a promise | kept |"
has "| reshard.torch over the groups of a stand-in | every shard equal | kept |"
has "never slower by more than 5 % | 10 permutations"
if grep -qE 'FAILED|NOT RUN|not run yet' target/gpu/report.md; then fail "something failed"; fi
while read -r stage; do has "## $stage"; done < <(bash scripts/gpu.sh stages)
# What the table of the documentation promises is a row here.
while IFS= read -r line; do
    has "$(cut -d'|' -f2 <<<"$line" | sed 's/^ *//; s/ *$//')" <(cat target/gpu/report.md "$here/collectives/device/examples/device_speed/"*.rs "$here/benches/peers/device_c10d.py")
done < <(sed -n '/^| what | promised | found |$/,/^$/p' "$here/docs/benchmarks.md" | grep '^| ' | grep -v '^| what ')

# Stages one by one, in commands of their own, are one report.
rm -rf target/gpu/stages target/gpu/report.md
gpu 0 "${run[@]}" kernels
has "| stage racecheck | | not run yet |"
gpu 0 "${run[@]}" racecheck copies
has "| compute-sanitizer, racecheck | clean | kept, 3 tests |"
has "| every kernel against the definition"
gpu 0 bash scripts/gpu.sh report
has "| stage torch | | not run yet |"

# What goes wrong is said, and the stages behind it run.
mv target/gpu/fused away
gpu 1 "${run[@]}" engines graphs
has "| plans fused over all ranks | kept | NOT RUN: there is no target/gpu/fused |"
has "| graphs of the stand-in | a promise | kept |"
mv away target/gpu/fused
mv tools/compute-sanitizer away
gpu 1 "${run[@]}" memcheck
has "| compute-sanitizer, memcheck | clean | NOT RUN: there is no compute-sanitizer |"
mv away tools/compute-sanitizer
printf '#!/usr/bin/env bash\necho SKIPPED: no device; echo "test result: ok. 3 passed"\n' | tool target/gpu/contract
gpu 1 "${run[@]}" engines
has "NOT RUN: SKIPPED: no device"
printf '#!/usr/bin/env bash\necho "test result: FAILED. 2 passed"; exit 101\n' | tool target/gpu/contract
gpu 1 "${run[@]}" engines
has "| kept | FAILED with status 101 |"
printf '#!/usr/bin/env bash\nsleep 60\n' | tool target/gpu/contract
gpu 1 GPU_LIMIT=1 "${run[@]}" engines
has "| kept | FAILED: not done in 1 s |"
gpu 1 SPEED=10 "${run[@]}" copies torch
has "FAILED with status 1: a promise was missed"
printf '#!/usr/bin/env bash\nexit 0\n' | tool target/gpu/device_speed
gpu 1 "${run[@]}" plans
has "| plans | a table | FAILED: no row was printed |"
gpu 1 "${run[@]}" copies torch
has "has no row for 2-D transpose of 4 bytes"
rm -r python/torch
gpu 1 "${run[@]}" torch
has "| torch's permute().contiguous() beside them | never slower by more than 5 % | NOT RUN: no torch with CUDA |"
gpu 1 "${run[@]}" c10d
has "| reshard.torch over PyTorch's NCCL groups | every shard equal | NOT RUN: no torch with CUDA |"
gpu 2 "${run[@]}" steam
has "there is no stage steam" said
gpu 2 bash scripts/gpu.sh
printf '#!/usr/bin/env bash\nexit 9\n' | tool tools/nvidia-smi
gpu 1 "${run[@]}" kernels
has "nvidia-smi does not answer" said
rm target/gpu/revision
gpu 1 "${run[@]}"
has "target/gpu is not there" said
echo "the GPU script says what it ran and what it did not"
