"""Who has gone, when a call of a group fails: an exception that names the rank, on all others."""

import time
from collections.abc import Sequence

import torch.distributed as dist

from reshard import EngineError

# How long those whose call has failed wait for each other to say so.
WAIT_SECONDS = 3.0


def lost(error: RuntimeError, what: str, members: Sequence[int], step: int) -> EngineError:
    """An `EngineError` for a call that failed, with the ranks of its members that have not come to say that theirs has failed too.

    Ranks that are there fail as well, within the group's timeout: a connection closes where a peer dies, and times out where it has raised
    or makes another call. They tell each other by the store of the default group.
    """
    missing = _silent(members)
    first = str(error).splitlines()[0][:300]
    if not missing:
        said = "all its members are there, and make different calls or were too slow"
    else:
        said = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} {'have' if len(missing) > 1 else 'has'} gone, or raised before"
    made = EngineError(f"{what} among {list(members)}: {said} ({first})")
    made.kind, made.rank, made.step, made.group = "lost", missing[0] if missing else None, step, list(members)
    return made


def _silent(members: Sequence[int]) -> list[int]:
    """The members that do not say within a time that they are there; rank 0 if the store, which is its, has gone with it."""
    me = dist.get_rank()
    try:
        store = dist.distributed_c10d._get_default_store()
        store.set(f"reshard/failed/{me}", "1")
        end = time.monotonic() + WAIT_SECONDS
        while True:
            left = [rank for rank in members if rank != me and not store.check([f"reshard/failed/{rank}"])]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.05)
    except RuntimeError:
        return [0] if me != 0 else []
