"""`redistribute` and `redistribute_local`: between device meshes, with derivatives, on existing groups."""

import contextlib
import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard

from definition import R, device_mesh, dtensor, shard, whole_of
from ranks import Ranks
from reshard import FrameworkGroups, Planner, ReshardError, Sharding
from reshard.torch import Groups, planned, redistribute, redistribute_local, redistribute_state, sharding


def on(ranks: list[int], shape: tuple[int, ...]) -> DeviceMesh:
    return DeviceMesh("cpu", torch.tensor(ranks).reshape(shape))


def held(whole: torch.Tensor, placements: Any, mesh: DeviceMesh) -> DTensor:
    """Returns a DTensor of these shards; an empty one on ranks outside of its device mesh."""
    if mesh.get_coordinate() is None:
        local = torch.empty(0, dtype=whole.dtype)
        return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())
    return dtensor(whole, placements, mesh)


def mesh_to_mesh(rank: int) -> int:
    pairs = [
        (on([0, 1, 2, 3], (2, 2)), on([4, 5, 6, 7], (2, 2))),
        (on(list(range(8)), (2, 4)), on(list(range(8)), (4, 2))),
        (on([0, 1, 2], (3,)), on([3, 4, 5, 6, 7], (5,))),
        (on([0, 1, 2, 3], (4,)), on([2, 3, 4, 5], (4,))),
    ]
    done = 0
    for first, second in pairs:
        for shape in [(16, 8), (13, 7)]:
            whole = whole_of(shape)
            for before in itertools.product([R, Shard(0), Shard(1), Partial()], repeat=first.ndim):
                for after in itertools.product([R, Shard(0), Shard(1)], repeat=second.ndim):
                    made = redistribute(held(whole, before, first), second, after)
                    assert made.device_mesh == second and tuple(made.placements) == after
                    if second.get_coordinate() is not None:
                        assert torch.equal(made.to_local(), shard(whole, after, second)), (before, after)
                    else:
                        assert made.to_local().numel() == 0
                    done += 1
    return done


def test_from_one_device_mesh_to_another(eight: Ranks) -> None:
    assert min(eight.run(mesh_to_mesh)) > 400


def derivatives(rank: int) -> None:
    first, second = device_mesh((2, 4), ("dp", "tp")), device_mesh((4, 2), ("x", "y"))
    whole = whole_of((16, 8), torch.float64) / 128
    for before, after in [((Shard(0), Shard(1)), (Shard(1), R)), ((Partial(), Shard(0)), (Shard(0), Shard(1)))]:
        x = dtensor(whole, before, first, requires_grad=True)
        y = redistribute(x, second, after)
        loss = (y * y * y).sum().full_tensor()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        torch.testing.assert_close(gradient.full_tensor(), 3 * whole**2)
        (second_gradient,) = torch.autograd.grad((gradient * gradient).sum().full_tensor(), x)
        torch.testing.assert_close(second_gradient.full_tensor(), 36 * whole**3)


def test_differentiable_twice(eight: Ranks) -> None:
    eight.run(derivatives)


def local_tensors(rank: int) -> None:
    mesh = device_mesh((2, 2), ("x", "y"))
    before, after = Sharding("x=2,y=2", (6, 4), "S(0),P"), Sharding("x=2,y=2", (6, 4), "R,S(1)")
    whole = whole_of((6, 4))
    mine = shard(whole, [Shard(0), Partial()], mesh)
    groups = Groups(mesh)
    planner = Planner(arithmetic="framework")
    for offered in (groups, groups.make(planner.plan(before, after, "f32"))):
        made = redistribute_local(mine, before, after, groups=offered, planner=planner)
        assert torch.equal(made, shard(whole, [R, Shard(1)], mesh))
        out = torch.empty_like(made)
        assert redistribute_local(mine, before, after, groups=offered, out=out) is out and torch.equal(out, made)
    # Without groups, messages are sent.
    none = Groups(mesh)
    none.offers = FrameworkGroups()
    assert torch.equal(redistribute_local(mine, before, after, groups=none), made)
    with pytest.raises(ReshardError, match="elements, but its shard"):
        redistribute_local(mine[:1], before, after, groups=groups)
    with pytest.raises(ReshardError, match="out is"):
        redistribute_local(mine, before, after, groups=groups, out=torch.empty(3))


def test_local_tensors(four: Ranks) -> None:
    four.run(local_tensors)


def pairs_of_four(rank: int) -> None:
    """Every pair of placements on four ranks, where each type of call has a shard that is compared."""
    mesh = device_mesh((2, 2), ("x", "y"))
    count = len(dist.distributed_c10d._world.pg_map)
    for shape in [(8, 4), (5, 3), (1, 1)]:
        whole = whole_of(shape)
        for before in itertools.product([R, Shard(0), Shard(1), Partial()], repeat=2):
            for after in itertools.product([R, Shard(0), Shard(1), Partial()], repeat=2):
                x = dtensor(whole, before, mesh)
                made = redistribute(x, placements=after)
                assert sharding(made).local_shape(rank) == tuple(made.to_local().shape)
                again = redistribute(made, placements=[R, R])
                assert torch.equal(again.to_local(), whole), (before, after)
    assert len(dist.distributed_c10d._world.pg_map) == count


def test_all_pairs_on_four_ranks(four: Ranks) -> None:
    four.run(pairs_of_four)


def memory_of_its_own(rank: int) -> None:
    """A result shares no memory with the source, whether or not PyTorch tracks views."""
    mesh = device_mesh((2, 2), ("x", "y"))
    befores, afters = (itertools.product([R, Shard(0), Shard(1), *more], repeat=2) for more in ([Partial()], []))
    for before, after in itertools.product(befores, afters):
        if before == after:
            continue
        for mode in (contextlib.nullcontext, torch.no_grad, torch.inference_mode):
            with mode(), planned(strict=True):
                x = dtensor(whole_of((4, 4)), before, mesh)
                # In inference mode, PyTorch does not track views of new tensors.
                mine = x.to_local().clone()
                locally = redistribute_local(mine, sharding(x), sharding(x.redistribute(placements=after)), groups=Groups(mesh))
                of_state = redistribute_state({"x": x, "y": x}, after).values()
                made = [x.redistribute(placements=after).to_local(), *(one.to_local() for one in of_state)]
            sources = [x.to_local()] * len(made)
            for one, source in zip([locally, *made], [mine, *sources], strict=True):
                assert one.untyped_storage().data_ptr() != source.untyped_storage().data_ptr(), (before, after, mode)


def test_memory_of_its_own(four: Ranks) -> None:
    four.run(memory_of_its_own)


def refusals(rank: int) -> None:
    mesh = device_mesh((2, 2), ("x", "y"))
    x = dtensor(whole_of((4, 4)), [R, R], mesh)
    with pytest.raises(TypeError, match="expected a DTensor, found Tensor"):
        redistribute(torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ReshardError, match="the device mesh has 2 dims, but got 1 placement;"):
        redistribute(x, placements=[R])
    with pytest.raises(ReshardError, match="outside a tensor of 2 dims"):
        redistribute(x, placements=[Shard(2), R])
    assert tuple(redistribute(x, placements=[Shard(-1), R]).placements) == (Shard(1), R)


def test_refusals(four: Ranks) -> None:
    four.run(refusals)
