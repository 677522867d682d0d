"""Redistribution of many DTensors at once, and checkpoints from and into them."""

import itertools
import pathlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Partial, Shard

from definition import Counted, R, device_mesh, dtensor, shard, whole_of
from ranks import Ranks
from reshard import ReshardError
from reshard import save as save_whole
from reshard.torch import Reader, load, redistribute_state, save

SHAPES = [(16, 8), (13, 7), (8, 8), (1, 5), (32, 4), (8,)]
DTYPES = [torch.float32, torch.bfloat16, torch.int64]


def many(rank: int) -> list[int]:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    made_calls = []
    for before, after in [((Shard(0), R), (R, Shard(0))), ((R, Shard(0)), (R, R)), ((Partial(), R), (Shard(0), R)), ((Partial(), Shard(0)), (R, R))]:
        wholes = {f"{shape}.{dtype}": whole_of(shape, dtype, seed=i) for i, (shape, dtype) in enumerate(itertools.product(SHAPES, DTYPES))}
        if Partial() in before:
            wholes = {name: whole for name, whole in wholes.items() if whole.dtype != torch.bfloat16}
        state: dict[str, Any] = {name: dtensor(whole, before, mesh) for name, whole in wholes.items()}
        state["step"] = 7
        counts = []
        for max_bytes in (1, 1 << 10, 256 << 20):
            with Counted() as counted:
                made = redistribute_state(state, after, max_bytes=max_bytes)
            assert list(made) == list(state) and made["step"] == 7
            for name, whole in wholes.items():
                assert tuple(made[name].placements) == after
                assert torch.equal(made[name].to_local(), shard(whole, after, mesh)), (name, before, after)
            counts.append(len(counted.calls))
        assert counts[0] > counts[1] > counts[2], counts
    # Tensors of one type with the same kind of call share one call.
        assert counts[2] <= 6, counts
        made_calls.append(counts[2])
    stays = redistribute_state(state, lambda name, tensor: None)
    assert all(stays[name] is state[name] for name in state)
    with pytest.raises(ReshardError, match="max_bytes must be at least 1, not 0"):
        redistribute_state(state, after, max_bytes=0)
    with pytest.raises(ReshardError, match="bfloat16|int64|float32.*: .* got 1 placement;"):
        redistribute_state(state, [R])
    return made_calls


def test_many_at_once(eight: Ranks) -> None:
    print(eight.run(many)[0])


def onto_another_mesh(rank: int) -> None:
    first, second = device_mesh((2, 4), ("dp", "tp")), device_mesh((4, 2), ("x", "y"))
    wholes = {str(shape): whole_of(shape, seed=i) for i, shape in enumerate(SHAPES[:5])}
    state = {name: dtensor(whole, [Shard(0), Shard(1)], first) for name, whole in wholes.items()}
    made = redistribute_state(state, lambda name, tensor: [Shard(1), R], second)
    for name, whole in wholes.items():
        assert made[name].device_mesh == second
        assert torch.equal(made[name].to_local(), shard(whole, [Shard(1), R], second))


def test_onto_another_mesh(eight: Ranks) -> None:
    eight.run(onto_another_mesh)


def checkpoints(rank: int, folder: str) -> list[int]:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    wholes = {"a.weight": whole_of((16, 8)), "b.weight": whole_of((13, 7), torch.bfloat16), "norm": whole_of((8,)), "scalar": torch.tensor(3.0)}
    path = pathlib.Path(folder) / "model.safetensors"
    if rank == 0:
        save_whole(path, wholes)
    dist.barrier()
    read = []
    for placements in [(R, R), (Shard(0), R), (R, Shard(0)), (Shard(0), Shard(0))]:
        state: dict[str, Any] = {name: dtensor(torch.zeros_like(whole), placements if whole.dim() else [R, R], mesh) for name, whole in wholes.items()}
        read.append(load(path, state))
        for name, whole in wholes.items():
            assert torch.equal(state[name].to_local(), shard(whole, state[name].placements, mesh)), (name, placements)
    plain = {name: torch.zeros_like(whole) for name, whole in wholes.items()}
    load(path, plain)
    assert all(torch.equal(plain[name], whole) for name, whole in wholes.items())

    # PyTorch writes by ranks and this library reads; this library writes and PyTorch reads through the
    # reader.
    state = {name: dtensor(whole, [Shard(0), R], mesh) for name, whole in wholes.items() if whole.dim()}
    dcp.save(state, checkpoint_id=f"{folder}/dcp")
    back: dict[str, Any] = {name: dtensor(torch.zeros_like(whole), [R, Shard(0)], mesh) for name, whole in wholes.items() if whole.dim()}
    load(f"{folder}/dcp", back)
    for name in back:
        assert torch.equal(back[name].to_local(), shard(wholes[name], [R, Shard(0)], mesh))
    save(f"{folder}/out.safetensors", state)
    again = {name: dtensor(torch.zeros_like(wholes[name]), [Shard(0), Shard(0)], mesh) for name in state}
    reader = Reader(f"{folder}/out.safetensors")
    dcp.load(again, storage_reader=reader)
    for name in again:
        assert torch.equal(again[name].to_local(), shard(wholes[name], [Shard(0), Shard(0)], mesh))
    assert 0 < reader.bytes_read < sum(whole.numel() * whole.itemsize for whole in wholes.values())

    for wrong, what in [
        ({"nothing": torch.zeros(3)}, "has no tensor nothing"),
        ({"norm": torch.zeros(9)}, r"norm is \[9\], but \[8\] in the checkpoint"),
        ({"norm": torch.zeros(8, dtype=torch.int64)}, "norm is torch.int64, but f32"),
    ]:
        with pytest.raises(ReshardError, match=what):
            load(path, wrong)
    with pytest.raises(ReshardError, match="already exists"):
        save(f"{folder}/out.safetensors", state)
    return read


def test_checkpoints_into_dtensors_and_out(eight: Ranks, tmp_path: pathlib.Path) -> None:
    read = eight.run(checkpoints, str(tmp_path))
    whole = 16 * 8 * 4 + 13 * 7 * 2 + 8 * 4
    # Every byte is read by one rank, despite replicas; the scalar cannot be sharded, so all ranks read it.
    assert [sum(of_ranks) for of_ranks in zip(*read, strict=True)] == [whole + 8 * 4] * 4
