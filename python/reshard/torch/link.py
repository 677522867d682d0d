"""The ranks of both sides of a weight transfer: a group of c10d, or a store that two worlds share."""

import datetime
import pickle
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from reshard import EngineError
from reshard._refusals import refused

from reshard.torch.lost import lost


class Link(Protocol):
    """The calls of a transfer on its ranks: objects of all, one exchange, and the least of numbers."""

    rank: int
    ranks: list[int]
    device: torch.device

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all ranks, in the order of `ranks`."""

    def exchange(self, into: torch.Tensor, out: torch.Tensor, receives: list[int], sends: list[int]) -> Any:
        """Begins to send bytes to each rank, and to receive from each; returns a handle with `wait`."""

    def least(self, numbers: torch.Tensor) -> None:
        """Replaces numbers by the least of all ranks."""

    def failed(self, error: RuntimeError, what: str) -> EngineError:
        """Returns the error for a failed call, with the ranks that have gone."""


class GroupLink:
    """The ranks of a group of c10d; ranks are those of the default group."""

    def __init__(self, group: Any) -> None:
        self._group = dist.group.WORLD if group is None else group
        self.rank, self.ranks = dist.get_rank(), dist.get_process_group_ranks(self._group) if self._is_member() else []
        if self.rank not in self.ranks:
            raise refused("group", f"rank {self.rank} is not in the group; only its ranks take part")
        on_device = dist.get_backend(self._group) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_device else torch.device("cpu")

    def _is_member(self) -> bool:
        return self._group is not dist.GroupMember.NON_GROUP_MEMBER

    def gather(self, value: Any) -> list[Any]:
        of_all: list[Any] = [None] * len(self.ranks)
        dist.all_gather_object(of_all, value, group=self._group)
        return of_all

    def exchange(self, into: torch.Tensor, out: torch.Tensor, receives: list[int], sends: list[int]) -> Any:
        return dist.all_to_all_single(into, out, receives, sends, group=self._group, async_op=True)

    def least(self, numbers: torch.Tensor) -> None:
        dist.all_reduce(numbers, dist.ReduceOp.MIN, group=self._group)

    def failed(self, error: RuntimeError, what: str) -> EngineError:
        return lost(error, what, self.ranks, 0)


class StoreLink:
    """Ranks of two worlds that share a store: rank `rank` of `size`; bytes go over gloo."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> None:
        self.rank, self.ranks, self.device = rank, list(range(size)), torch.device("cpu")
        # Each object has separate keys: all ranks make them in one order.
        number = store.add(f"reshard/weights/{rank}", 1)
        self._store, self._calls = dist.PrefixStore(f"reshard/weights/{number}", store), 0
        try:
            self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", self._store), rank, size, timeout)
        except RuntimeError as error:
            raise self.failed(error, "connecting by the store") from error

    def gather(self, value: Any) -> list[Any]:
        self._calls += 1
        self._store.set(f"{self._calls}/{self.rank}", pickle.dumps(value))
        return [pickle.loads(self._store.get(f"{self._calls}/{rank}")) for rank in self.ranks]

    def exchange(self, into: torch.Tensor, out: torch.Tensor, receives: list[int], sends: list[int]) -> Any:
        return self._gloo.alltoall_base(into, out, receives, sends, dist.AllToAllOptions())

    def least(self, numbers: torch.Tensor) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MIN
        self._gloo.allreduce([numbers], options).wait()

    def failed(self, error: RuntimeError, what: str) -> EngineError:
        return lost(error, what, self.ranks, 0, self._store, self.rank)


def all_of(link: Link, refusal: Exception | None, value: Any, what: str) -> list[Any]:
    """Returns the values of all ranks, or raises the error of one rank on all ranks."""
    own = None if refusal is None else (str(getattr(refusal, "kind", "raised")), str(refusal))
    try:
        answers = link.gather((own, value))
    except RuntimeError as error:
        raise refusal or link.failed(error, what) from error
    if refusal is not None:
        raise refusal
    raise_first(link.ranks, [refused_by for refused_by, _ in answers])
    return [value for _, value in answers]


def raise_first(ranks: Sequence[int], refusals: Sequence[tuple[str, str] | None]) -> None:
    """Raises the error of the lowest rank that has one."""
    for rank, said in sorted(zip(ranks, refusals, strict=True), key=lambda pair: pair[0]):
        if said is not None:
            raise refused(said[0], f"rank {rank}: {said[1]}")
