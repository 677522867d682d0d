"""`redistribute` and `redistribute_local`: between device meshes, with derivatives, on existing groups."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Shard
from torch.distributed.tensor._ops._math_ops import _NormPartial

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


# The ops that reduce partial values: a function of a sharded DTensor that makes them, and of all partial values.
REDUCING: dict[str, tuple[Placement, Callable[[Any], Any] | None, Callable[[torch.Tensor], torch.Tensor]]] = {
    "sum": (Partial("sum"), lambda x: x.sum(0), lambda terms: terms.sum(0)),
    "avg": (Partial("avg"), lambda x: x.mean(0), lambda terms: terms.mean(0)),
    "max": (Partial("max"), lambda x: x.amax(0), lambda terms: terms.amax(0)),
    "min": (Partial("min"), lambda x: x.amin(0), lambda terms: terms.amin(0)),
    "product": (Partial("product"), None, lambda terms: terms.prod(0)),
    "norm2": (_NormPartial(2), lambda x: torch.linalg.vector_norm(x, 2, dim=0), lambda terms: torch.linalg.vector_norm(terms, 2, dim=0)),
    "norm3": (_NormPartial(3), lambda x: torch.linalg.vector_norm(x, 3, dim=0), lambda terms: torch.linalg.vector_norm(terms, 3, dim=0)),
    "norminf": (_NormPartial(float("inf")), lambda x: torch.linalg.vector_norm(x, float("inf"), dim=0), lambda terms: terms.abs().amax(0)),
}


def through_ops(rank: int) -> int:
    """Gradients through partial values of every op that DTensor's ops make are those of one device."""
    mesh, other = device_mesh((2, 2), ("x", "y")), DeviceMesh("cpu", torch.arange(4))
    whole = (whole_of((8, 4), torch.float64) + 3) / 16
    weights = whole_of((4,), torch.float64, seed=1)
    done = 0
    for op, (partial, function, _) in REDUCING.items():
        if function is None:
            continue  # DTensor's prod has no gradient
        alone = whole.clone().requires_grad_()
        made = function(alone)
        (first,) = torch.autograd.grad((made**3 * weights).sum(), alone, create_graph=True)
        # Only these have a second derivative of DTensor.
        twice = op in ("sum", "avg")
        second = torch.autograd.grad((first**2).sum(), alone)[0] if twice else None
        for onto, after in ((mesh, [R, R]), (mesh, [Shard(0), R]), (mesh, [R, Shard(0)]), (other, [Shard(0)]), (other, [R])):
            x = dtensor(whole, [R, Shard(0)], mesh).detach().requires_grad_()
            y = function(x)
            assert any(type(one) is type(partial) for one in y.placements) or op == "norminf", (op, y.placements)
            z = redistribute(y, onto, after)
            loss = (z**3 * dtensor(weights, after, onto)).sum().full_tensor()
            (gradient,) = torch.autograd.grad(loss, x, create_graph=twice)
            torch.testing.assert_close(gradient.full_tensor(), first.detach(), rtol=1e-12, atol=0, msg=op)
            if second is not None:
                (again,) = torch.autograd.grad((gradient**2).sum().full_tensor(), x)
                torch.testing.assert_close(again.full_tensor(), second, rtol=1e-12, atol=0)
            done += 1
    return done


def test_gradients_through_partial_values_of_every_op(four: Ranks) -> None:
    assert four.run(through_ops) == [35] * 4


def of_local_tensors(rank: int) -> dict[str, tuple[bool, bool]]:
    """`from_local` has PyTorch's gradients under `planned`; `redistribute` rejects those that are wrong.

    Returns for each op if PyTorch's gradient is right, and if `redistribute` takes it.
    """
    mesh = device_mesh((4,), ("x",))
    values = (torch.stack([whole_of((8, 4), torch.float64, seed=of) for of in range(4)]) + 8) / 32
    weights = whole_of((8, 4), torch.float64, seed=5)
    found: dict[str, tuple[bool, bool]] = {}
    for op, (partial, _, function) in REDUCING.items():
        terms = values.clone().requires_grad_()
        (expected,) = torch.autograd.grad((function(terms) * weights).sum(), terms)
        for after in (R, Shard(0), Shard(1)):

            def gradient(move: Any, partial: Any = partial, after: Any = after) -> torch.Tensor:
                local = values[rank].clone().requires_grad_()
                made = move(DTensor.from_local(local, mesh, [partial], run_check=False), [after])
                (made * dtensor(weights, [after], mesh)).sum().full_tensor().backward()
                assert local.grad is not None
                return local.grad

            by_pytorch = gradient(lambda x, to: x.redistribute(placements=to))
            with planned(strict=True) as plans:
                assert torch.equal(gradient(lambda x, to: x.redistribute(placements=to)), by_pytorch), op
            assert plans.report().plans >= 1
            is_right = torch.allclose(by_pytorch, expected[rank], rtol=1e-12)
            try:
                is_taken = torch.equal(gradient(lambda x, to: redistribute(x, placements=to)), by_pytorch)
            except ReshardError as error:
                assert error.kind == "no_gradient" and str(partial) in str(error), error
                assert ("use Partial()" if op == "avg" else "detach it") in str(error)
                is_taken = False
            assert found.setdefault(op, (is_right, is_taken)) == (is_right, is_taken)
        # Without gradients every op is taken, and an average as a sum has the right one.
        with torch.no_grad():
            redistribute(DTensor.from_local(values[rank].clone().requires_grad_(), mesh, [partial], run_check=False), placements=[R])
        redistribute(DTensor.from_local(values[rank], mesh, [partial], run_check=False), placements=[R])
        if op == "avg":
            divided = gradient(lambda x, to: redistribute(DTensor.from_local(x.to_local() / 4, mesh, [Partial()], run_check=False), placements=to), R)
            torch.testing.assert_close(divided, expected[rank], rtol=1e-12, atol=0)
    return found


def test_gradients_of_local_partial_values(four: Ranks) -> None:
    for found in four.run(of_local_tensors):
        assert found == {op: (op == "sum", op == "sum") for op in REDUCING}


def of_plain_tensors(rank: int) -> int:
    """The gradients of `redistribute_local` are those of the whole tensor; replicas have partial ones."""
    mesh = device_mesh((2, 2), ("x", "y"))
    groups, none = Groups(mesh), Groups(mesh)
    none.offers = FrameworkGroups()
    whole, weights = (whole_of((6, 5), torch.float64, seed=seed) / 16 for seed in (1, 2))
    each = list(itertools.product(["R", "S(0)", "S(1)", "P"], repeat=2))
    placed = {"R": R, "S(0)": Shard(0), "S(1)": Shard(1), "P": Partial()}
    done = 0
    for before, after in itertools.product(each, repeat=2):
        from_, to = (Sharding("x=2,y=2", (6, 5), ",".join(of)) for of in (before, after))
        # The gradient of a replica is a partial value, and that of a partial value is one of the sum.
        turned = {"R": "P", "P": "R"}
        back, forth = ([placed[turned.get(one, one)] for one in of] for of in (before, after))
        for given in (groups, none):
            x = shard(whole, [placed[one] for one in before], mesh).requires_grad_()
            y = redistribute_local(x, from_, to, groups=given)
            cotangent = shard(weights, forth, mesh).requires_grad_()
            (gradient,) = torch.autograd.grad(y, x, cotangent, create_graph=True)
            (again,) = torch.autograd.grad(gradient, cotangent, x.detach())
            for local, placements, expected in ((gradient.detach(), back, weights), (again, [placed[one] for one in after], whole)):
                made = DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())
                torch.testing.assert_close(redistribute(made, placements=[R, R]).to_local(), expected, rtol=1e-12, atol=1e-12)
            done += 1
    for op in ("max", "min", "prod", "avg", "norm2"):
        from_, to = Sharding("x=2,y=2", (6, 5), f"S(0),P({op})"), Sharding("x=2,y=2", (6, 5), "R,R")
        x = torch.ones(from_.local_shape(rank), dtype=torch.float64, requires_grad=True)
        with pytest.raises(ReshardError, match=rf"P\({op}\) along y, and such partial values have no gradient; reduce them first"):
            redistribute_local(x, from_, to, groups=groups)
        with torch.no_grad():
            assert not redistribute_local(x, from_, to, groups=groups).requires_grad
        assert not redistribute_local(x.detach(), from_, to, groups=groups).requires_grad
    return done


def test_gradients_of_plain_tensors(four: Ranks) -> None:
    assert four.run(of_plain_tensors) == [512] * 4
