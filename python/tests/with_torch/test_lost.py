"""If a rank dies or raises an error, all other ranks name it, in time."""

import os
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

import reshard
from definition import R, device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard import EngineError
from reshard.torch import Runner, planned, redistribute, redistribute_state

TIMEOUT = 10.0


def one_goes(rank: int, how: str) -> tuple[str, int | None, float]:
    """Rank 2 fails or diverges; returns the others' error kind, the rank that it names, and the delay."""
    mesh = device_mesh((4,))
    given = dtensor(whole_of((8, 8)), [Shard(0)], mesh)
    with planned(strict=True):
        given.redistribute(placements=[R])  # all ranks are alive
        if rank == 2 and how == "dies":
            os._exit(3)
        if rank == 2 and how == "raises":
            raise ZeroDivisionError("on purpose")
        start = time.monotonic()
        with pytest.raises(EngineError) as error:
            given.redistribute(placements=[Shard(1)])
    return str(error.value), getattr(error.value, "rank", None), time.monotonic() - start


@pytest.mark.parametrize("how", ["dies", "raises"])
def test_a_rank_that_has_gone_is_named_on_all_others(how: str) -> None:
    ranks = Ranks(4, timeout_seconds=TIMEOUT)
    try:
        with pytest.raises(AssertionError, match="ranks \\[2\\] failed"):
            ranks.run(one_goes, how, seconds=90)
        for rank in (0, 1, 3):
            text, named, seconds = ranks.answers[rank][1]
            assert named == 2 and "rank 2 has failed, or raised an error before" in text, text
            assert "all_to_all" in text and seconds < 6 * TIMEOUT
    finally:
        ranks.close()


def to_another_mesh(given: DTensor) -> None:
    """Messages, some of them from every rank."""
    columns = DeviceMesh("cpu", torch.tensor([3, 2, 1, 0]))
    redistribute(given, columns, [Shard(1)])


def of_a_state(given: DTensor) -> None:
    redistribute_state({"a": given, "b": given}, [Shard(1)])


def backward(given: DTensor) -> None:
    """Nothing is sent forward; the gradient is redistributed."""
    leaf = DTensor.from_local(given.to_local().clone().requires_grad_(), given.device_mesh, [R], run_check=False)
    made = redistribute(leaf, placements=[Shard(0)])
    made.to_local().sum().backward()


def step_of_a_program(given: DTensor) -> None:
    """All ranks agree on the program, and one fails before its step."""
    _runner({"x": given.to_local()})


CALLS: dict[str, tuple[Callable[[DTensor], None], str]] = {
    "messages": (to_another_mesh, "S(0)"),
    "state": (of_a_state, "agreeing on redistributing a state"),
    "backward": (backward, "S(0)"),
    "program": (step_of_a_program, "x"),
}


def one_goes_before(rank: int, what: str, how: str) -> tuple[str, str, int | None, float]:
    """Rank 2 fails or diverges in a call other than those of `planned`."""
    global _runner
    mesh = device_mesh((4,))
    given = dtensor(whole_of((8, 8)), [R if what == "backward" else Shard(0)], mesh)
    call, _ = CALLS[what]
    if what == "program":
        _runner = Runner(reshard.program("mesh d=4\nx: f32[8,8] S(0)\ny: R = x\nz = exp(y)\n"))
    call(given)  # all ranks are alive
    dist.barrier()
    if rank == 2 and how == "dies":
        os._exit(3)
    if rank == 2 and how == "raises":
        raise ZeroDivisionError("on purpose")
    start = time.monotonic()
    with pytest.raises(EngineError) as error:
        call(given)
    return str(error.value), error.value.kind, error.value.rank, time.monotonic() - start


@pytest.mark.parametrize("how", ["dies", "raises"])
@pytest.mark.parametrize("what", list(CALLS))
def test_whatever_is_called_a_rank_that_has_gone_is_named(what: str, how: str) -> None:
    ranks = Ranks(4, timeout_seconds=TIMEOUT)
    try:
        with pytest.raises(AssertionError, match="ranks \\[2\\] failed"):
            ranks.run(one_goes_before, what, how, seconds=90)
        for rank in (0, 1, 3):
            text, kind, named, seconds = ranks.answers[rank][1]
            assert (kind, named) == ("lost", 2) and "rank 2 has failed, or raised an error before" in text, text
            assert CALLS[what][1] in text and seconds < 3 * TIMEOUT, (text, seconds)
    finally:
        ranks.close()


def one_disagrees(rank: int) -> tuple[str, str, int | None, float]:
    """Rank 2 requests another sharding than the others do."""
    mesh = device_mesh((4,))
    given = dtensor(whole_of((8, 8)), [Shard(0)], mesh)
    start = time.monotonic()
    with planned(strict=True), pytest.raises(EngineError) as error:
        given.redistribute(placements=[R if rank == 2 else Shard(1)])
    return str(error.value), error.value.kind, error.value.rank, time.monotonic() - start


def test_a_rank_that_makes_another_call_is_named_on_all_others() -> None:
    ranks = Ranks(4, timeout_seconds=TIMEOUT)
    try:
        answers = ranks.run(one_disagrees, seconds=90)
        for text, kind, named, seconds in answers:
            assert (kind, named) == ("disagrees", 2), text
            assert "rank 2 made another call, all_gather of S(0) -> R" in text and seconds < 3 * TIMEOUT, text
    finally:
        ranks.close()
