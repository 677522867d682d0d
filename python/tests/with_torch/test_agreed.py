"""An error of one rank is raised on all, and none waits; rank 0 writes tensors of which it has no part."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

import reshard
from definition import R, device_mesh, dtensor, shard, whole_of
from ranks import Ranks
from reshard import ReshardError
from reshard.torch import load, redistribute_state, save
from reshard.torch import checkpoint


def refusal(call: Callable[[], Any], kind: str, *texts: str) -> None:
    with pytest.raises(ReshardError) as error:
        call()
    assert error.value.kind == kind, error.value
    assert all(text in str(error.value) for text in texts), error.value


def freed(tensor: DTensor) -> DTensor:
    tensor._local_tensor.untyped_storage().resize_(0)
    return tensor


def raises(name: str, tensor: DTensor) -> Any:
    raise KeyError(name)


def one_refuses(rank: int, folder: str) -> None:
    mesh = device_mesh((2, 2), ("x", "y"))
    path = f"{folder}/w.safetensors"

    def good(seed: int = 1) -> DTensor:
        return dtensor(whole_of((8, 4), seed=seed), [Shard(0), R], mesh)

    save(path, {"w": good(), "b": good(2)})
    other = f"{folder}/other.safetensors"
    held: dict[str, Any] = {}
    held["again"] = held
    meta = DTensor.from_local(torch.empty(4, 4, device="meta"), mesh, [Shard(0), R], run_check=False)
    # The faulty states of single ranks; all other ranks have a valid state.
    bad: list[tuple[Callable[[], Any], str, str]] = [
        (lambda: {"w": freed(good()), "b": good(2)}, "storage", "w cannot be"),
        (lambda: {"w": meta, "b": good(2)}, "device", "w cannot be"),
        (lambda: {"w": good(), "b": good(2), "step": 3}, "object", "step"),
        (lambda: {}, "no_tensor", "no tensor"),
        (lambda: held, "names", "nested more than"),
        (lambda: [1], "raised", "TypeError: a state must be a dict"),
    ]
    for at, (make, kind, text) in enumerate(bad):
        for which in ({at % 4}, {1, 3}):
            # A rank without a DTensor loads independently of the others.
            calls = ((lambda state: save(other, state), kind), (lambda state: load(path, state), "no_such_object" if kind == "object" else kind))
            for call, expected in calls[: 2 if at < 3 else 1]:
                state = make() if rank in which else {"w": good(), "b": good(2)}
                if kind == "raised" and rank == min(which):
                    with pytest.raises(TypeError, match="a state must be a dict"):
                        call(state)
                else:
                    refusal(lambda state=state, call=call: call(state), expected, f"rank {min(which)}: ", text)
    assert not pathlib.Path(other).exists()
    # And its error stays on that rank.
    for make, kind, text in bad[3:] if rank == 1 else []:
        with pytest.raises(TypeError if kind == "raised" else ReshardError, match=text.removeprefix("TypeError: ")):
            load(path, make())

    # Tensors on several device meshes: each rank knows other ranks.
    def on_both(x: list[Any] = [Shard(0)]) -> dict[str, Any]:
        return {"w": dtensor(torch.zeros(8, 4), x, mesh["x"]), "b": dtensor(torch.zeros(8, 4), [Shard(1)], mesh["y"])}

    both = on_both()
    load(path, both)
    assert torch.equal(both["w"].to_local(), shard(whole_of((8, 4), seed=1), [Shard(0)], mesh["x"]))
    assert torch.equal(both["b"].to_local(), shard(whole_of((8, 4), seed=2), [Shard(1)], mesh["y"]))
    moved = redistribute_state(both, [R])
    assert torch.equal(moved["b"].to_local(), whole_of((8, 4), seed=2))
    # Ranks 0 and 1 are along y and agree first; then 0 and 2, and 1 and 3, along x, and 2 and 3.
    def one_freed(which: int) -> dict[str, Any]:
        state = on_both()
        if rank == which:
            freed(state["w"])
        return state

    refusal(lambda: load(path, one_freed(0)), "storage", "rank 0: w cannot be")
    refusal(lambda: redistribute_state(one_freed(0), [R]), "storage", "rank 0: w: ")

    refusal(lambda: load(path if rank != 2 else f"{folder}/nowhere", {"w": good()}), "input", "rank 2: ")
    refusal(lambda: load(path, {"w": good()} if rank != 3 else {"nothing": good()}), "no_such_tensor", "rank 3: ", "nothing")
    zeros = dtensor(torch.zeros(8, 4), [Shard(0), R], mesh)
    others = [{"b": zeros, "w": good()}, {"w": zeros}, {"w": dtensor(whole_of((8, 4)), [R, Shard(0)], mesh), "b": zeros}]
    for differs in others:
        state = differs if rank == 1 else {"w": zeros, "b": zeros}
        refusal(lambda state=state: load(path, state), "disagrees", "rank 1 has other DTensors than rank 0")
        refusal(lambda state=state: save(other, state), "disagrees", "rank 1 has other DTensors than rank 0")
        refusal(lambda state=state: redistribute_state(state, [R, R]), "disagrees", "rank 1 has other DTensors than rank 0")
    assert not zeros.to_local().any()

    two = {"w": good(), "b": good(2)}
    refusal(lambda: redistribute_state({"w": freed(good())} if rank == 3 else {"w": good()}, [R, R]), "storage", "rank 3: w: its shard")
    refusal(lambda: redistribute_state({"w": meta} if rank == 3 else {"w": good()}, [R, R]), "device", "rank 3: w: its shard")
    refusal(lambda: redistribute_state(two, [R, R] if rank else [R]), "placement_count", "rank 0: w: the device mesh has 2 dims, but got 1 placement")
    refusal(lambda: redistribute_state(two, [R, R], max_bytes=rank - 2), "max_bytes", "rank 0: max_bytes must be at least 1, not -2")
    with pytest.raises(KeyError if rank == 2 else ReshardError, match="w"):
        redistribute_state(two, raises if rank == 2 else [R, R])
    short = DTensor.from_local(torch.zeros(3, 4), mesh, [Shard(0), R], run_check=False, shape=torch.Size((8, 4)), stride=(4, 1))
    refusal(lambda: redistribute_state({"w": short if rank == 1 else good()}, [R, R]), "refused", "rank 1: w: ", "12 elements")

    # An error during a read is raised on all ranks too, and no rank waits for one that cannot read.
    opened = Unreadable(reshard.open_checkpoint(path)) if rank == 1 else reshard.open_checkpoint(path)
    known, checkpoint.Checkpoint = checkpoint.Checkpoint, (Unreadable, reshard.checkpoint.Checkpoint)  # type: ignore[misc, assignment]
    try:
        refusal(lambda: load(opened, {"w": dtensor(torch.zeros(8, 4), [R, R], mesh), "b": zeros}), "input", "rank 1: planted")  # type: ignore[arg-type]
    finally:
        checkpoint.Checkpoint = known  # type: ignore[misc]

    # All ranks can continue.
    load(path, two)
    made = redistribute_state(two, [R, R])
    assert torch.equal(made["w"].to_local(), whole_of((8, 4), seed=1))
    # A plain tensor concerns one rank only, which may fill it alone.
    if rank == 2:
        alone = {"w": torch.zeros(8, 4)}
        load(path, alone)
        assert torch.equal(alone["w"], whole_of((8, 4), seed=1))
        refusal(lambda: load(path, {"w": torch.zeros(4)}), "shape", "w is [4]")


class Unreadable:
    """A checkpoint whose shards cannot be read."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def __contains__(self, name: str) -> bool:
        return name in self._opened

    def __getitem__(self, name: str) -> Any:
        return self._opened[name]

    def shard(self, *_: Any) -> Any:
        error = ReshardError("planted")
        error.kind = "input"
        raise error


def test_what_one_rank_refuses_all_raise(four: Ranks, tmp_path: pathlib.Path) -> None:
    four.run(one_refuses, str(tmp_path), seconds=120)


def on_a_part(rank: int, folder: str) -> None:
    mesh = DeviceMesh("cpu", torch.tensor([1, 3]))
    path, wholes = f"{folder}/w.safetensors", {"w": whole_of((5, 3)), "s": torch.tensor(3.0), "h": whole_of((4, 2), torch.bfloat16), "e": torch.zeros(0, 2)}
    on_all = device_mesh((2, 2), ("x", "y"))

    def held(name: str, placements: list[Any]) -> DTensor:
        """Returns a DTensor; ranks outside of the device mesh know only PyTorch's metadata of it."""
        whole = wholes[name]
        if rank in (1, 3):
            return dtensor(whole, placements, mesh)
        return DTensor.from_local(torch.empty((0,) * whole.dim(), dtype=whole.dtype), mesh, placements, run_check=False)

    state: dict[str, Any] = {"all": dtensor(whole_of((4, 4)), [Shard(0), R], on_all), "w": held("w", [Shard(0)]), "s": held("s", [R])}
    state |= {"h": held("h", [Shard(1)]), "e": held("e", [R]), "p": distribute_tensor(wholes["w"], mesh, [Shard(1)]), "plain": torch.ones(2)}
    state["t"] = held("w", [Partial()])
    save(path, state)
    if rank == 0:
        read = reshard.open_checkpoint(path)
        for name, whole in (wholes | {"p": wholes["w"], "t": wholes["w"], "all": whole_of((4, 4)), "plain": torch.ones(2)}).items():
            assert tuple(read[name].shape) == tuple(whole.shape), name
            assert np.asarray(read.read(name)).tobytes() == whole.contiguous().view(-1).view(torch.uint8).numpy().tobytes(), name
    dist.barrier()

    # Only the ranks of the device mesh agree, and read.
    if rank in (1, 3):
        target = {"w": dtensor(torch.zeros(5, 3), [Shard(1)], mesh)}
        load(path, target)
        assert torch.equal(target["w"].to_local(), shard(wholes["w"], [Shard(1)], mesh))
        refusal(lambda: load(path, target if rank == 1 else {"v": target["w"]}), "no_such_tensor", "rank 3: ")
        refusal(lambda: redistribute_state(target if rank == 3 else {"w": freed(target["w"])}, [R]), "storage", "rank 1: ")
    dist.barrier()
    # With two device meshes, all ranks of either one.
    first, second = DeviceMesh("cpu", torch.tensor([0, 1])), DeviceMesh("cpu", torch.tensor([1, 2]))
    if rank < 3:
        local = shard(wholes["w"], [Shard(0)], first) if rank < 2 else torch.empty(0)
        x = DTensor.from_local(local, first, [Shard(0)], run_check=False, shape=torch.Size((5, 3)), stride=(3, 1))
        made = redistribute_state({"w": x}, [Shard(1)], second)["w"]
        assert rank == 0 or torch.equal(made.to_local(), shard(wholes["w"], [Shard(1)], second))
        refusal(lambda: redistribute_state({"w": x}, [Shard(1 + rank)], second), "placement", "rank 1: w: ")
    dist.barrier()


def test_ranks_of_a_part_agree_and_rank_0_writes_what_it_has_no_part_of(four: Ranks, tmp_path: pathlib.Path) -> None:
    four.run(on_a_part, str(tmp_path), seconds=120)
