"""All pairs of plain placements: correct, and not worse than DTensor's own redistribution.

`RESHARD_TORCH_SWEEP=all` tests all pairs. A number selects a part of them, another part for another number.
"""

import itertools
import os
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Partial, Placement, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from definition import Counted, R, device_mesh, dtensor, shard, whole_of
from ranks import Ranks
from reshard import Planner
from reshard.torch import planned

PLAIN = [R, Shard(0), Shard(1)]
STRIDED = [*PLAIN, _StridedShard(0, split_factor=2)]


def pairs(axes: int, plain: list[Placement]) -> list[tuple[tuple[Placement, ...], tuple[Placement, ...]]]:
    """Returns every source placement, including partial ones, with every other non-partial target."""
    sources = itertools.product([*plain, Partial()], repeat=axes)
    return [(before, after) for before in sources for after in itertools.product(plain, repeat=axes) if before != after]


def sampled(all_pairs: list[Any], parts: int) -> list[Any]:
    """Returns all pairs, or every `parts`th from an offset that the environment specifies."""
    part = os.environ.get("RESHARD_TORCH_SWEEP", "0")
    return all_pairs if part == "all" else all_pairs[int(part) % parts :: parts]


def moved(rank: int, mesh_shape: tuple[int, ...], shape: tuple[int, ...], asked: list[Any], objective: str | None) -> list[Any]:
    """Returns for each pair its correctness, calls and received bytes; None for a pair that is rejected."""
    mesh = device_mesh(mesh_shape, ("a", "b", "c")[: len(mesh_shape)])
    whole = whole_of(shape)
    plans = planned(Planner(objective=objective, arithmetic="framework"), strict=True) if objective else None
    answers: list[Any] = []
    for before, after in asked:
        given = dtensor(whole, before, mesh)
        counted = Counted()
        try:
            if plans is None:
                with counted:
                    made = given.redistribute(placements=after)
            else:
                with plans, counted:
                    made = given.redistribute(placements=after)
        except (RuntimeError, NotImplementedError, ValueError, AssertionError, IndexError) as error:
            assert plans is None, f"{before} -> {after}: {error}"
            answers.append(None)
            continue
        local = made.to_local()
        truth = shard(whole, after, mesh)
        is_right = local.shape == truth.shape and torch.equal(local, truth)
        assert is_right or plans is None, f"{before} -> {after} on rank {rank}"
        answers.append((is_right, len(counted.calls), counted.bytes))
    return answers


def gathered(ranks: Ranks, *arguments: Any) -> list[Any]:
    """Returns for each pair whether all ranks are correct, and the calls and bytes of the worst rank."""
    # All pairs take minutes, and more on a shared machine.
    answers = ranks.run(moved, *arguments, seconds=3600)
    of_pairs = []
    for of_pair in zip(*answers, strict=True):
        if any(answer is None for answer in of_pair):
            of_pairs.append(None)
        else:
            of_pairs.append((all(a[0] for a in of_pair), max(a[1] for a in of_pair), max(a[2] for a in of_pair)))
    return of_pairs


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_all_pairs_on_three_axes(eight: Ranks, objective: str) -> None:
    asked = sampled(pairs(3, PLAIN), 8)
    ours = gathered(eight, (2, 2, 2), (16, 8), asked, objective)
    theirs = gathered(eight, (2, 2, 2), (16, 8), asked, None)
    compared(f"2x2x2 (16, 8), objective {objective}", asked, ours, theirs, objective)


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_all_pairs_uneven_and_strided(eight: Ranks, objective: str) -> None:
    for shape in [(16, 8), (13, 7)]:
        asked = sampled(pairs(2, STRIDED), 8)
        ours = gathered(eight, (2, 4), shape, asked, objective)
        theirs = gathered(eight, (2, 4), shape, asked, None)
        compared(f"2x4 {shape}, objective {objective}", asked, ours, theirs, objective)


def compared(title: str, asked: list[Any], ours: list[Any], theirs: list[Any], objective: str) -> None:
    """Asserts that all plans are correct, and not worse than PyTorch's redistributions if those are correct.

    For the fewest bytes, plans receive no more bytes, and at equal bytes take no more calls. For the least
    time, which at these sizes is the time to start collectives, they take no more calls.
    """
    assert all(ours_is[0] for ours_is in ours)
    both = [(pair, mine, other) for pair, mine, other in zip(asked, ours, theirs, strict=True) if other is not None and other[0]]
    total = [sum(line[at][k] for line in both) for at in (2, 1) for k in (1, 2)]
    print(f"{title}: {len(asked)} pairs, PyTorch right in {len(both)}: {total[0]} calls, {total[1]} B; ours {total[2]} calls, {total[3]} B")

    def is_worse(mine: Any, other: Any) -> bool:
        return bool((mine[2], mine[1]) > (other[2], other[1]) if objective == "bytes" else mine[1] > other[1])

    worse = [f"{pair}: {mine[1:]}, PyTorch {other[1:]}" for pair, mine, other in both if is_worse(mine, other)]
    print(f"worse in {len(worse)}:", *worse[:12], sep="\n  ")
    assert not worse
