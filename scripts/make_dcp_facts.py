#!/usr/bin/env python3
"""Writes small files by PyTorch and NumPy, each with a safetensors file of the same contents.

    scripts/make_dcp_facts.py checkpoint/tests/data

It needs PyTorch, NumPy and safetensors, and no GPU. The tests read its output, and so need none of them.
Every rank has a separate part of numbers that are all different, so a misplaced part never equals the right
one.
"""
import argparse, collections, math, os, shutil, sys, traceback, warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed._shard.sharded_tensor import Shard as LocalShard, init_from_local_shards
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

warnings.filterwarnings("ignore")


def numbers(dtype, *shape):
    """Returns numbers that are all different, as far as the type can represent them."""
    count = math.prod(shape)
    if dtype == torch.bool:
        return (torch.arange(count) * 5 % 3 == 1).reshape(shape)
    if dtype.is_complex:
        return torch.complex(torch.arange(count) * 1.5, torch.arange(count) - 0.25).reshape(shape).to(dtype)
    if dtype.is_floating_point:
        return (torch.arange(count, dtype=torch.float32) * 0.75 - 3).reshape(shape).to(dtype)
    return (torch.arange(count) * 3 + 1).reshape(shape).to(dtype)


KINDS = [torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64,
         torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.float8_e4m3fn,
         torch.float8_e5m2, torch.float8_e8m0fnu]

F32, BF16 = torch.float32, torch.bfloat16

# Over a mesh of 2 by 2: even and uneven, on one axis and on both, with replicas, with empty shards.
SHARDED = {
    "vector": (numbers(F32, 8), [Shard(0), Shard(0)]),
    "uneven": (numbers(F32, 7), [Shard(0), Shard(0)]),
    "matrix": (numbers(BF16, 7, 5), [Shard(0), Shard(1)]),
    "cube": (numbers(torch.float16, 3, 4, 5), [Shard(2), Shard(0)]),
    "strided": (numbers(torch.float64, 8, 3), [_StridedShard(0, split_factor=2), Shard(0)]),
    "halves": (numbers(torch.int32, 3, 6), [Replicate(), Shard(1)]),
    "rows": (numbers(F32, 5, 2), [Shard(0), Replicate()]),
    "replicated": (numbers(F32, 2, 3), [Replicate(), Replicate()]),
    "few": (numbers(torch.int64, 3), [Shard(0), Shard(0)]),
    "one": (numbers(F32, 1, 4), [Shard(0), Shard(0)]),
    "none": (numbers(F32, 0, 4), [Shard(0), Shard(1)]),
    "scalar": (numbers(F32), [Replicate(), Replicate()]),
}

# Boxes that do not form a grid, one for each rank.
BOXES = [((0, 0), (2, 4)), ((0, 4), (3, 2)), ((2, 0), (3, 4)), ((3, 4), (2, 2))]


def shard(whole, mesh, placements):
    """Shards like `distribute_tensor`; also by strided placements, which that function does not support."""
    if not any(isinstance(placement, _StridedShard) for placement in placements):
        return distribute_tensor(whole, mesh, placements, src_data_rank=None)
    shape, offset = compute_local_shape_and_global_offset(whole.shape, mesh, placements)
    local = whole[tuple(slice(start, start + count) for start, count in zip(offset, shape))].clone()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


def on_ranks(world, work):
    """Runs the work in `world` processes, each with its rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                dist.init_process_group("gloo", rank=rank, world_size=world)
                work(rank)
                dist.barrier()
                dist.destroy_process_group()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush(), sys.stderr.flush()
                os._exit(status)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


def truth(path, tensors):
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path)


def distributed(to):
    """Writes layout 1, with one file and with several per rank; and layout 2, safetensors."""
    def dtensors():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        return {name: shard(whole, mesh, placements) for name, (whole, placements) in SHARDED.items()}

    box = numbers(F32, 5, 6)

    def first(rank):
        (row, column), (rows, columns) = BOXES[rank]
        local = LocalShard.from_tensor_and_offsets(
            box[row:row + rows, column:column + columns].clone(), [row, column], rank)
        state = {
            "model": dtensors(),
            "boxes": init_from_local_shards([local], [5, 6]),
            "turned": numbers(F32, 3, 4).t(),
            "optimizer": {"state": [{"step": torch.tensor(7.0), "name": "adam"}], "groups": {"lr": 0.5}},
            "step": 12,
        }
        state |= {f"kinds.{str(kind).split('.')[1]}": numbers(kind, 3) for kind in KINDS}
        dcp.save(state, checkpoint_id=to / "dcp")

    def several(rank):
        state = {name: value for name, value in dtensors().items() if name in ("matrix", "strided")}
        writer = dcp.FileSystemWriter(to / "dcp_files", single_file_per_rank=False)
        dcp.save(state, storage_writer=writer)

    def second(rank):
        names = ("uneven", "matrix", "cube", "strided", "halves", "replicated", "scalar")
        state = {name: value for name, value in dtensors().items() if name in names}
        dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(str(to / "dcp_safetensors"), save_distributed=True))

    wholes = {name: whole for name, (whole, _) in SHARDED.items()}
    on_ranks(4, first)
    truth(to / "dcp.safetensors", {
        **{f"model.{name}": whole for name, whole in wholes.items()},
        "boxes": box,
        "turned": numbers(F32, 3, 4).t(),
        "optimizer.state.0.step": torch.tensor(7.0),
        **{f"kinds.{str(kind).split('.')[1]}": numbers(kind, 3) for kind in KINDS},
    })
    on_ranks(4, several)
    truth(to / "dcp_files.safetensors", {name: wholes[name] for name in ("matrix", "strided")})
    on_ranks(4, second)
    names = ("uneven", "matrix", "cube", "strided", "halves", "replicated", "scalar")
    truth(to / "dcp_safetensors.safetensors", {name: wholes[name] for name in names})


def by_rank(to):
    """Writes files of ranks by torch.save, as trainers with FSDP do: DTensors, replicas, and states of a rank."""
    rows, replica = numbers(F32, 5, 4), numbers(BF16, 3)
    linear = torch.nn.Linear(4, 6, bias=False)
    linear.weight.data.copy_(numbers(F32, 6, 4))
    whole = linear.weight.detach().clone()

    def write(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        # FSDP over tensor parallelism: strided shards that stand for an order of mesh dims.
        parallelize_module(linear, mesh["tp"], ColwiseParallel())
        fully_shard(linear, mesh=mesh["dp"])
        state = {name: shard(whole, mesh, placements) for name, (whole, placements) in SHARDED.items()}
        state |= linear.state_dict() | {"rows": shard(rows, mesh["dp"], [Shard(0)]), "replica": replica, "step": 3}
        torch.save(state, to / f"model_world_size_4_rank_{rank}.pt")
        extra = {"rng": {"cpu": torch.tensor([rank, 7]), "python": (3, (rank, 1), None)}, "epoch": 2}
        torch.save(extra, to / f"extra_state_world_size_4_rank_{rank}.pt")

    to.mkdir()
    on_ranks(4, write)
    truth(to.with_suffix(".safetensors"), {
        **{f"model.{name}": tensor for name, (tensor, _) in SHARDED.items()},
        "model.weight": whole, "model.rows": rows, "model.replica": replica,
        **{f"extra_state.rank_{rank}.rng.cpu": torch.tensor([rank, 7]) for rank in range(4)},
    })


class Config:
    """A class that no reader knows."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Stack(list):
    """A list of a class that no reader knows."""


def trainer(to):
    """Writes everything of a training run in one file: with lists, tuples, and objects of unknown classes."""
    weight, moment = numbers(F32, 2, 3), numbers(F32, 3)
    state = {
        "model": {"weight": weight},
        "optimizer": {"state": {0: {"step": torch.tensor(5.0), "exp_avg": moment}},
                      "param_groups": [{"lr": 0.5, "betas": (0.9, 0.95), "params": [0, 1]}]},
        "args": argparse.Namespace(lr=0.5, dtype=torch.bfloat16), "config": Config(dim=3, names=["a"]),
        "around": Config(inner=[Config(weight=weight)]), "stack": Stack([1, 2]), "stacked": Stack([moment]),
        "counts": collections.Counter("aab"), "numpy": np.random.RandomState(0).get_state(), "empty": {}, "numbers": [1, [2, 3]],
        "pair": (weight, 1), "deep": [[[moment]], [4]],
    }
    torch.save(state, to / "trainer.pt")
    truth(to / "trainer.safetensors", {
        "model.weight": weight, "optimizer.state.0.step": torch.tensor(5.0), "optimizer.state.0.exp_avg": moment,
        "pair.0": weight, "deep.0.0.0": moment,
    })


class Pairs(collections.OrderedDict):
    """An ordered dict that is pickled with its pairs, as Python did before 3.5."""

    def __reduce__(self):
        return collections.OrderedDict, (list(self.items()),)


def hidden(to):
    """Writes tensors that are easily overlooked: attributes of a tensor and of a dict, pairs, a quantized tensor."""
    weight = numbers(F32, 2, 3)
    scaled = torch.nn.Parameter(weight)
    scaled.scale, scaled.is_loaded = numbers(F32, 2), True
    counted, around = collections.OrderedDict(a=numbers(F32, 3)), collections.OrderedDict(b=numbers(F32, 4))
    counted.version, around.scale = 3, numbers(F32, 2)
    state = {"scaled": scaled, "counted": counted, "around": around, "pairs": Pairs(x=weight, y=2),
             "quantized": torch.quantize_per_tensor(weight, 0.5, 0, torch.qint8)}
    torch.save(state, to / "hidden.pt")
    truth(to / "hidden.safetensors", {"scaled": weight, "counted.a": counted["a"], "around.b": around["b"], "pairs.x": weight})


def saved(to):
    """Writes by torch.save: parts of one storage, in any order; parameters; types without a typed storage."""
    base = numbers(F32, 4, 6)
    cube = numbers(BF16, 2, 3, 4)
    state = {
        "base": base,
        "turned": base.t(),
        "part": base[1:3, ::2],
        "last": base[3],
        "permuted": cube.permute(2, 0, 1),
        "channels": numbers(F32, 1, 2, 3, 4).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(numbers(F32, 3)),
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "one": base[:1, :1],
        "nested": {"list": [numbers(torch.int64, 2), 5, {"deep": numbers(torch.uint8, 3)}], 7: numbers(F32, 1)},
        "epoch": 3, "name": "a text", "size": torch.Size([1, 2]), "device": torch.device("cpu"),
        "type": torch.float16, "bytes": b"bytes", "set": {1, 2}, "nothing": None,
    }
    state |= {f"kind.{str(kind).split('.')[1]}": numbers(kind, 2) for kind in KINDS}
    torch.save(state, to / "state.pt")
    flat = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    flat |= {"nested.list.0": state["nested"]["list"][0], "nested.list.2.deep": state["nested"]["list"][2]["deep"],
             "nested.7": state["nested"][7]}
    truth(to / "state.safetensors", flat)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    torch.save(module.state_dict(), to / "module.pt")
    truth(to / "module.safetensors", module.state_dict())
    torch.save(base, to / "alone.pt")
    truth(to / "alone.safetensors", {"tensor": base})
    torch.save(base, to / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(1, 1), to / "object.pt")
    torch.save({"z": numbers(torch.complex128, 2)}, to / "complex128.pt")
    torch.save({"z": numbers(torch.complex64, 2).conj()}, to / "conjugated.pt")
    torch.save({"x": torch.ones(1).expand(4)}, to / "expanded.pt")


def numpy(to):
    arrays = {
        "rows": np.arange(12, dtype="<f4").reshape(3, 4),
        "columns": np.asfortranarray(np.arange(24, dtype="<i2").reshape(2, 3, 4)),
        "scalar": np.float64(1.5) * np.ones(()),
        "none": np.zeros((0, 3), "<f4"),
        "bool": np.array([True, False, True]),
        "half": np.arange(5, dtype="<f2"),
        "complex": (np.arange(3) + 1j * np.arange(3)).astype("<c8"),
        **{kind: np.arange(1, 5).astype(kind) for kind in ("u1", "i1", "u2", "u4", "i4", "u8", "i8", "f8")},
    }
    tensors = {name: torch.from_numpy(np.array(array, order="C")) for name, array in arrays.items()}
    np.savez(to / "stored.npz", **arrays)
    np.savez_compressed(to / "packed.npz", **arrays, text=np.array(["a", "b"]), object=np.array([{}, 1], object))
    truth(to / "arrays.safetensors", tensors)
    np.save(to / "rows.npy", arrays["rows"])
    np.save(to / "columns.npy", arrays["columns"])
    np.save(to / "big.npy", np.arange(3, dtype=">f4"))
    np.save(to / "complex128.npy", np.arange(3, dtype="<c16"))
    np.save(to / "object.npy", np.array([{}, 1], object), allow_pickle=True)
    np.save(to / "records.npy", np.zeros(2, [("a", "<f4"), ("b", "<i4", (2,))]))


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    os.chdir(target)
    distributed(Path("."))
    by_rank(Path("ranks"))
    trainer(Path("."))
    hidden(Path("."))
    saved(Path("."))
    numpy(Path("."))
    (target / "made_by").write_text(f"PyTorch {torch.__version__}, NumPy {np.__version__}\n")
