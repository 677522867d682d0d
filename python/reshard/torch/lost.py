"""Detection of failed ranks after a failed group call; all other ranks raise an error that names them."""

import time
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from reshard import EngineError

# The time in which ranks whose calls have failed wait for each other's reports.
WAIT_SECONDS = 3.0


def lost(error: RuntimeError, what: str, members: Sequence[int], step: int, store: Any = None, me: int | None = None) -> EngineError:
    """Returns an `EngineError` for a failed call, with the members that did not report its failure.

    Such a member has failed, or made another call. Live ranks fail as well, within the group's timeout: a
    connection closes if its peer dies. It times out if the peer has raised an error, made another call, or
    waits for such a rank. Ranks report their calls to each other by a store, by default that of the default group,
    in which this rank is `me`.
    """
    seconds = _wait_seconds(error) if store is None else WAIT_SECONDS
    missing, calls = _said(what, members, seconds, store, dist.get_rank() if me is None else me)
    first = str(error).splitlines()[0][:300]
    most = max(calls.values(), key=list(calls.values()).count)
    other = [rank for rank, call in calls.items() if call != most]
    kind, named = "lost", missing
    if missing:
        said = f"{named_ranks(missing)} {'have' if len(missing) > 1 else 'has'} failed, or raised an error before"
    elif other and 2 * len(other) < len(calls):
        kind, named = "disagrees", other
        said = f"{named_ranks(other)} made another call, {calls[other[0]]}"
    elif other:
        kind, said = "disagrees", "its members make different calls: " + "; ".join(f"rank {rank} {call}" for rank, call in calls.items())
    else:
        said = "all its members reported it, and were too slow or passed different sizes"
    made = EngineError(f"{what} among {list(members)}: {said} ({first})")
    made.kind, made.rank, made.step, made.group = kind, named[0] if named else None, step, list(members)
    return made


def _wait_seconds(error: RuntimeError) -> float:
    """Returns the time in which others may fail too.

    If this call has not timed out, ranks that wait for other peers than the failed one time out first.
    """
    if "timed out" in str(error).lower():
        return WAIT_SECONDS
    backend = dist.group.WORLD._get_backend(dist.group.WORLD._device_types[0])
    timeout = getattr(getattr(backend, "options", None), "_timeout", None)
    return WAIT_SECONDS + (0.0 if timeout is None else float(timeout.total_seconds()))


def named_ranks(ranks: Sequence[int]) -> str:
    """Returns ranks as a text, in the singular for one."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _said(what: str, members: Sequence[int], seconds: float, store: Any, me: int) -> tuple[list[int], dict[int, str]]:
    """Returns the members that do not report within a time, and the calls that the others report.

    Rank 0 is missing if its store has failed with it.
    """
    calls = {me: what}
    try:
        store = dist.distributed_c10d._get_default_store() if store is None else store
        store.set(f"reshard/failed/{me}", what)
        end = time.monotonic() + seconds
        while True:
            for rank in members:
                if rank not in calls and store.check([f"reshard/failed/{rank}"]):
                    calls[rank] = store.get(f"reshard/failed/{rank}").decode()
            left = [rank for rank in members if rank not in calls]
            if not left or time.monotonic() > end:
                return left, calls
            time.sleep(0.05)
    except RuntimeError:
        return ([0] if me != 0 else []), calls
