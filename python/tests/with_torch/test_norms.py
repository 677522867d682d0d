"""Partial norms under `planned`: one reduction on all axes, with the norm of the whole tensor as the definition."""

import contextlib
import itertools

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.distributed.tensor._ops._math_ops import _NormPartial

from definition import Counted, R, device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard.torch import FallbackError, planned, redistribute

EXPONENTS = (1, 2, 2.5, 3.0, float("inf"))


def by_one_reduction(rank: int) -> None:
    mesh = device_mesh((2, 2, 2), ("a", "b", "c"))
    whole = (whole_of((16, 8), torch.float64) - 60) / 64
    every = list(itertools.product([R, Shard(0), Shard(1)], repeat=3))
    for exponent, placements in [*((2, one) for one in every), *((of, (Shard(0), Shard(1), Shard(0))) for of in EXPONENTS)]:
        x = dtensor(whole, placements, mesh)
        # Each rank's norm of its shard is its partial value. Signs do not count.
        sign = (-1) ** sum(mesh.get_coordinate()[axis] for axis in range(3) if isinstance(placements[axis], Shard))
        partial = [_NormPartial(exponent) if isinstance(one, Shard) else R for one in placements]
        terms = DTensor.from_local(torch.linalg.vector_norm(x.to_local(), exponent).reshape(1) * sign, mesh, partial, run_check=False)
        with planned(strict=True) as plans, Counted() as counted:
            made = terms.redistribute(placements=[R, R, R]).to_local()
        torch.testing.assert_close(made, torch.linalg.vector_norm(whole, exponent).reshape(1), rtol=1e-13, atol=0)
        assert len(counted.calls) == int(any(isinstance(one, Shard) for one in placements)) == plans.report().collectives, counted.calls
        # By an exchange, in the order of the ranks.
        torch.testing.assert_close(redistribute(terms, placements=[R, R, R]).to_local(), made, rtol=1e-13, atol=0)


def test_a_norm_is_one_reduction_on_all_axes(eight: Ranks) -> None:
    eight.run(by_one_reduction)


def parts_of_a_norm(rank: int) -> None:
    """Partial norms become shards, on some axes; the others stay partial."""
    mesh = device_mesh((2, 4), ("dp", "tp"))
    values = [(whole_of((8, 8), torch.float64) + 7 * of) / 64 for of in range(8)]
    for exponent in EXPONENTS:
        terms = DTensor.from_local(values[rank], mesh, [_NormPartial(exponent)] * 2, run_check=False)
        with planned(strict=True):
            some = terms.redistribute(placements=[Shard(0), _NormPartial(exponent)])
            rows = torch.linalg.vector_norm(torch.stack([values[rank % 4], values[rank % 4 + 4]]), exponent, dim=0).chunk(2)[rank // 4]
            torch.testing.assert_close(some.to_local(), rows, rtol=1e-13, atol=0)
            done = some.redistribute(placements=[Shard(0), Shard(1)]).full_tensor()
        torch.testing.assert_close(done, torch.linalg.vector_norm(torch.stack(values), exponent, dim=0), rtol=1e-12, atol=0)
    for other, dtype in [(Partial(), torch.float64), (_NormPartial(2), torch.int64)]:
        mixed = DTensor.from_local(values[rank].to(dtype), mesh, [_NormPartial(2), other], run_check=False)
        with planned(strict=True), pytest.raises(FallbackError, match="different ops|a norm of torch.int64"):
            mixed.redistribute(placements=[R, R])


def test_a_part_of_a_norm(eight: Ranks) -> None:
    eight.run(parts_of_a_norm)


def clipped(rank: int) -> dict[float, tuple[int, int]]:
    """Gradients on two axes are clipped by the norm of all of them, with fewer reductions than PyTorch's."""
    mesh = device_mesh((2, 4), ("dp", "tp"))
    gradients = [((16, 8), [Shard(0), Shard(1)]), ((8, 8), [Shard(0), Shard(0)]), ((8,), [R, Shard(0)])]
    everything = torch.cat([whole_of(shape, torch.float64).flatten() - 20 for shape, _ in gradients])
    counts = {}
    for exponent, use in itertools.product((1.0, 2.0, 2.5, float("inf")), (False, True)):
        parameters = []
        for shape, placements in gradients:
            parameter = torch.nn.Parameter(dtensor(torch.zeros(shape, dtype=torch.float64), placements, mesh))
            parameter.grad = dtensor(whole_of(shape, torch.float64) - 20, placements, mesh)
            parameters.append(parameter)
        plans = planned()
        with plans if use else contextlib.nullcontext():
            total = torch.nn.utils.clip_grad_norm_(parameters, 1.0, exponent).full_tensor()
        expected = torch.linalg.vector_norm(everything, exponent)
        torch.testing.assert_close(total, expected, rtol=1e-13, atol=0)
        for parameter, (shape, _) in zip(parameters, gradients, strict=True):
            torch.testing.assert_close(parameter.grad.full_tensor(), (whole_of(shape, torch.float64) - 20) / (expected + 1e-6), rtol=1e-9, atol=1e-12)
        if use:
            counts[exponent] = (plans.report().pytorch_collectives, plans.report().collectives)
            # PyTorch divides the norm of the replicated gradient to stack it with partial ones.
            assert set(plans.report().fallbacks) <= {"into terms"}
    return counts


def test_gradients_on_two_axes_are_clipped(eight: Ranks) -> None:
    # PyTorch's norm for infinity has partial maxima, which are replicated twice.
    assert eight.run(clipped)[0] == {1.0: (2, 1), 2.0: (2, 1), 2.5: (2, 1), float("inf"): (4, 2)}
