#!/usr/bin/env bash
# Compares the time of PyTorch and `reshard run` for the same work: a distributed checkpoint of 604 MB in 9 tensors, of 8
# ranks on dp=2,tp=4 as S(0),S(1), becomes one of 6 on cp=3,tp=2. PyTorch loads and saves with six processes, in one of the
# job's worlds, and is timed between barriers, without its start; `reshard run` is timed whole, and so are `cp` and `sync`.
# Medians, in turns, from the page cache; ratios over PyTorch. With RESHARD_WRITE=1 it writes benches/results/dcp_speed.jsonl.
#
#   scripts/check_dcp_speed.sh [TRIES] [FOLDER]      default: 7, and a new one in TMPDIR
#
# RESHARD_TORCH names a Python with torch, numpy and safetensors; exit status 3: it is missing. RESHARD_PROGRAM: an existing
# build of the program.
set -euo pipefail
cd "$(dirname "$0")/.."
tries=${1:-7}
python=${RESHARD_TORCH:-python3}
if ! "$python" -c 'import torch, numpy, safetensors' 2>/dev/null; then
    echo "nothing was looked at: $python has no torch, numpy and safetensors (RESHARD_TORCH names one that has)" >&2
    exit 3
fi
program=${RESHARD_PROGRAM:-}
if [[ -z $program ]]; then
    cargo build --release --quiet -p reshard-cli
    program=${CARGO_TARGET_DIR:-target}/release/reshard
fi
work=$(mktemp -d -p "${2:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$work"' EXIT

"$python" - "$program" "$work" "$tries" <<'PYTHON'
import os, shutil, statistics, subprocess, sys, time, traceback, warnings
sys.path.insert(0, "python/benches")
import results
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

warnings.filterwarnings("ignore")
program, work, tries = sys.argv[1], sys.argv[2], int(sys.argv[3])
path = lambda name: os.path.join(work, name)
torch.manual_seed(1)
torch.set_num_threads(1)
names, size = [f"layer.{i}.weight" for i in range(9)], 4096
save_file({name: torch.randn(size, size) for name in names}, path("whole.safetensors"))
subprocess.run([program, "run", path("whole.safetensors"), "--mesh", "dp=2,tp=4", "--to", "S(0),S(1)", "--format", "dcp", "--out", path("eight")],
               check=True, stdout=subprocess.DEVNULL)
os.remove(path("whole.safetensors"))


def timed(*command):
    subprocess.run(["sync"], check=True)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


run = [program, "run", path("eight"), "--mesh", "cp=3,tp=2", "--to", "S(0),S(1)", "--format", "dcp", "--out"]


def others():
    """`cp` with `sync`, and `reshard run` in its two ways, each into a folder of its own."""
    seconds = {}
    for way, command in {"cp and sync": ["sh", "-c", f"cp -r {path('eight')} {path('out')} && sync"], "run": [*run, path("out")],
                         "run --no-verify": [*run, path("out"), "--no-verify"]}.items():
        seconds[way] = timed(*command)
        shutil.rmtree(path("out"))
    return seconds


def rank_of_six(rank):
    mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("cp", "tp"))
    times = []
    for number in range(tries):
        # Memory for the shards is already allocated, as in a process that has a model.
        state = {}
        for name in names:
            rows = [size // 3 + (size % 3 > 0)] * 2 + [size - 2 * (size // 3 + (size % 3 > 0))]
            local = torch.zeros(rows[rank // 2], size // 2)
            state[name] = DTensor.from_local(local, mesh, [Shard(0), Shard(1)], run_check=False, shape=torch.Size((size, size)), stride=(size, 1))
        dist.barrier()
        seconds = others() if rank == 0 else None
        dist.barrier()
        if rank == 0:
            subprocess.run(["sync"], check=True)
        dist.barrier()
        start = time.perf_counter()
        dcp.load(state, checkpoint_id=path("eight"))
        loaded = time.perf_counter()
        dcp.save(state, checkpoint_id=path("saved"))
        dist.barrier()
        if rank == 0:
            end = time.perf_counter()
            seconds.update({"PyTorch load and save": end - start, "of that load": loaded - start})
            times.append(seconds)
            if number == 0:
                # Check that both results have equal tensors.
                subprocess.run([*run, path("out")], check=True, stdout=subprocess.DEVNULL)
                subprocess.run([program, "diff", path("out"), path("saved")], check=True)
                shutil.rmtree(path("out"))
            shutil.rmtree(path("saved"))
        dist.barrier()
    if rank == 0:
        lines = []
        base = statistics.median(one["PyTorch load and save"] for one in times)
        for way in times[0]:
            middle = statistics.median(one[way] for one in times)
            print(f"{way:22} {middle:6.2f} s  {middle / base:5.2f}", flush=True)
            if way.startswith("run"):
                what = f"604 MB of a distributed checkpoint, 8 ranks to 6, `{way}`"
                lines.append(results.measured(what, middle, "s", ("PyTorch's load and save", base)))
        results.write(began, lines)


os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
began = results.header("dcp_speed", "scripts/check_dcp_speed.sh", "files.md", PyTorch=torch.__version__)
children = []
for rank in range(6):
    if (child := os.fork()) == 0:
        status = 1
        try:
            dist.init_process_group("gloo", rank=rank, world_size=6)
            rank_of_six(rank)
            dist.barrier()
            dist.destroy_process_group()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status)
    children.append(child)
if not all(os.waitpid(child, 0)[1] == 0 for child in children):
    sys.exit("a rank failed")
PYTHON
