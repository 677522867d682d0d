"""Bytes of collectives with parts of different sizes, in both directions, counted by hand."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from ranks import Ranks
from reshard.torch import audit
from reshard.torch.traffic import traffic

F32 = 4


def splits(rank: int) -> tuple[list[int], list[int]]:
    """Returns the rows that a rank sends to each, and those that it receives."""
    return [(rank + 1) * at for at in range(4)], [(at + 1) * rank for at in range(4)]


def recorded(program: Callable[[], object]) -> tuple[int, int]:
    with audit() as seen:
        program()
    (row,) = seen.moved
    assert row.bound_bytes == row.received_bytes
    return row.received_bytes, row.sent_bytes


def all_bytes(rank: int) -> dict[str, tuple[int, int]]:
    sends, receives = splits(rank)
    x, y = torch.ones(sum(sends), 3), torch.empty(sum(receives), 3)
    lists = [torch.empty(n) for n in receives], [torch.ones(n) for n in sends]
    one, four = torch.ones(6), [torch.ones(6) for _ in range(4)]
    parts = [torch.empty(5 * at) for at in range(4)]
    return {
        "all_to_all_single": recorded(lambda: dist.all_to_all_single(y, x, receives, sends)),
        "functional all_to_all_single": recorded(lambda: funcol.all_to_all_single(x, receives, sends, dist.group.WORLD).sum()),
        "all_to_all": described(torch.ops.c10d.alltoall_.default, *lists),
        "all_gather": described(torch.ops.c10d.allgather_.default, [parts], [parts[rank]]),
        "reduce_scatter": described(torch.ops.c10d.reduce_scatter_.default, [parts[rank]], [parts]),
        "equal all_to_all_single": recorded(lambda: dist.all_to_all_single(torch.empty(8), torch.ones(8))),
        "broadcast": recorded(lambda: dist.broadcast(one, 1)),
        "reduce": recorded(lambda: dist.reduce(torch.ones(8), 1)),
        "gather": recorded(lambda: dist.gather(one, four if rank == 1 else None, 1)),
        "scatter": recorded(lambda: dist.scatter(torch.empty(6), four if rank == 1 else None, 1)),
        "message": recorded(lambda: dist.send(one, rank + 2) if rank < 2 else dist.recv(one, rank - 2)),
    }


def described(function: Any, outputs: Any, inputs: Any) -> tuple[int, int]:
    """Returns the bytes of a call that is not run: gloo has no lists of different sizes for it."""
    made = traffic(function, (outputs, inputs, dist.group.WORLD.boxed()), {}, None)
    return made.received_bytes, made.sent_bytes


def test_parts_of_different_sizes_are_counted_by_their_sizes(four: Ranks) -> None:
    found = four.run(all_bytes)
    for rank, of_rank in enumerate(found):
        sends, receives = splits(rank)
        received, sent = sum(receives) - receives[rank], sum(sends) - sends[rank]
        is_root = rank == 1
        assert of_rank == {
            "all_to_all_single": (received * 3 * F32, sent * 3 * F32),
            "functional all_to_all_single": (received * 3 * F32, sent * 3 * F32),
            "all_to_all": (received * F32, sent * F32),
            # Parts of 0, 5, 10 and 15: this rank sends its part to three, or each part but its own to one.
            "all_gather": ((30 - 5 * rank) * F32, 3 * 5 * rank * F32),
            "reduce_scatter": (3 * 5 * rank * F32, (30 - 5 * rank) * F32),
            "equal all_to_all_single": (6 * F32, 6 * F32),
            "broadcast": (0, 18 * F32) if is_root else (6 * F32, 0),
            # Each rank reduces a quarter of 8, for which it receives three; the root then receives three.
            "reduce": (12 * F32, 6 * F32) if is_root else (6 * F32, 8 * F32),
            "gather": (18 * F32, 0) if is_root else (0, 6 * F32),
            "scatter": (0, 18 * F32) if is_root else (6 * F32, 0),
            "message": (0, 6 * F32) if rank < 2 else (6 * F32, 0),
        }, rank
    for name in found[0]:
        assert sum(one[name][0] for one in found) == sum(one[name][1] for one in found), name
