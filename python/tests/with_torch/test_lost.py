"""A rank that dies or raises is named on all others, in time."""

import os
import time

import pytest
from torch.distributed.tensor import Shard

from definition import R, device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard import EngineError
from reshard.torch import planned

TIMEOUT = 10.0


def one_goes(rank: int, how: str) -> tuple[str, int | None, float]:
    """What rank 2 does is not what the others do: the kind of error that they get, whom it names, and after how long."""
    mesh = device_mesh((4,))
    given = dtensor(whole_of((8, 8)), [Shard(0)], mesh)
    with planned(strict=True):
        given.redistribute(placements=[R])  # all are there
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
            assert named == 2 and "rank 2 has gone, or raised before" in text, text
            assert "all_to_all" in text and seconds < 6 * TIMEOUT
    finally:
        ranks.close()
