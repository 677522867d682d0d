#!/usr/bin/env bash
# Tests distributed checkpoints in both directions with a real PyTorch: reshard reads PyTorch's checkpoints, and
# torch.distributed.checkpoint.load reads reshard's, whole and by ranks. RESHARD_TORCH names a Python with torch, numpy
# and safetensors. Exit status 3: it is missing, and nothing was tested.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${RESHARD_TORCH:-python3}
if ! "$python" -c 'import torch, numpy, safetensors' 2>/dev/null; then
    echo "nothing was looked at: $python has no torch, numpy and safetensors (RESHARD_TORCH names one that has)" >&2
    exit 3
fi
cargo build --quiet -p reshard-cli
reshard=${CARGO_TARGET_DIR:-target}/debug/reshard
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" scripts/make_dcp_facts.py "$work/made"
cd "$work/made"
[[ $reshard == /* ]] || reshard="$OLDPWD/$reshard"
for input in dcp dcp_files dcp_safetensors state.pt module.pt alone.pt; do
    "$reshard" diff "$input" "${input%.pt}.safetensors"
done
for input in stored.npz packed.npz; do
    "$reshard" diff "$input" arrays.safetensors
done

cd "$work"
# PyTorch's reader of safetensors files does not know float8_e8m0fnu.
"$python" - <<'PYTHON'
import torch
from safetensors.torch import load_file, save_file
for name in ("dcp", "state"):
    tensors = load_file(f"made/{name}.safetensors")
    save_file({name: t for name, t in tensors.items() if t.dtype != torch.float8_e8m0fnu}, f"made/without-{name}.safetensors")
PYTHON
number=0
for asked in 'a=2,b=3 S(0),S(1)' 'a=4 R' 'a=3,b=2 SS(0,2),S(0)' 'a=5 S(0)' 'a=2 Z(0)' 'a=2,b=2 R,S(1)'; do
    number=$((number + 1))
    for input in dcp.safetensors state.safetensors; do
        for format in dcp dcp-safetensors; do
            [[ $format == dcp ]] || input=without-$input
            "$reshard" run "made/$input" --mesh "${asked% *}" --to "${asked#* }" --format "$format" --out "written-$number-${input%.safetensors}_$format" >/dev/null
        done
    done
done
"$python" - <<'PYTHON'
"""Every checkpoint that was written, as PyTorch loads it: whole, and as the shards of four ranks."""
import io, json, os, pickle, sys, traceback, warnings, zipfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader, HuggingFaceStorageReader
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

warnings.filterwarnings("ignore")


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.zeros(0)


def in_safetensors(folder):
    """Whether it is of the other layout."""
    return folder.name.endswith("safetensors")


def load(state, folder):
    """By the reader of its layout."""
    dcp.load(state, storage_reader=(HuggingFaceStorageReader if in_safetensors(folder) else FileSystemReader)(str(folder)))


def same(one, two):
    return (one.dtype, one.shape) == (two.dtype, two.shape) and torch.equal(raw(one), raw(two))


folders = sorted(Path(".").glob("written-*"))
truths = {folder: load_file(f"made/{folder.name.split('-', 2)[2].split('_')[0]}.safetensors") for folder in folders}
assert len(folders) == 24
tensors = chunks = 0
for folder, truth in truths.items():
    state = {name: torch.zeros_like(tensor) for name, tensor in truth.items()}
    load(state, folder)
    wrong = [name for name in truth if not same(state[name], truth[name])]
    assert not wrong, f"{folder}: {wrong} differ"
    tensors += len(truth)
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            info = json.loads(opened.metadata()["DCP_SHARDING_INFO"])
            for name in opened.keys():
                part, offsets = opened.get_tensor(name), info[name]["saved_offsets"]
                box = tuple(slice(start, start + count) for start, count in zip(offsets, part.shape))
                assert same(part, truth[name][box]), f"{file}: {name}"
                chunks += 1
    if in_safetensors(folder):
        continue
    # Check each archive separately: by zip's checksums, and by the tensor of torch.load.
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for index, info in metadata.storage_data.items():
        bytes = (folder / info.relative_path).read_bytes()[info.offset:info.offset + info.length]
        assert zipfile.ZipFile(io.BytesIO(bytes)).testzip() is None
        part = torch.load(io.BytesIO(bytes), weights_only=True)
        box = tuple(slice(start, start + count) for start, count in zip(index.offset, part.shape))
        assert same(part, truth[index.fqn][box]), f"{folder}: {index}"
        chunks += 1


def by_ranks(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for folder, truth in truths.items():
        state = {}
        for name, tensor in truth.items():
            if tensor.dim() == 2 and tensor.dtype in (torch.float32, torch.bfloat16):
                state[name] = distribute_tensor(torch.zeros_like(tensor), mesh, [Shard(1), Shard(0)], src_data_rank=None)
        load(state, folder)
        for name, tensor in state.items():
            wanted = distribute_tensor(truth[name], mesh, [Shard(1), Shard(0)], src_data_rank=None)
            assert same(tensor.to_local(), wanted.to_local()), f"{folder}: {name} on rank {rank}"


os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
children = []
for rank in range(4):
    if (child := os.fork()) == 0:
        status = 1
        try:
            dist.init_process_group("gloo", rank=rank, world_size=4)
            by_ranks(rank)
            dist.barrier()
            dist.destroy_process_group()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    children.append(child)
if not all(os.waitpid(child, 0)[1] == 0 for child in children):
    sys.exit("a rank did not load what was written")
print(f"PyTorch {torch.__version__}: {tensors} tensors in {chunks} chunks of {len(folders)} checkpoints loaded and equal, whole and by 4 ranks")
PYTHON
