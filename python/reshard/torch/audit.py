"""An audit of the communication of any PyTorch code, compared with lower bounds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from reshard import Plan, ReshardError

from reshard.torch.execute import default_planner
from reshard.torch.hook import Hook
from reshard.torch.specs import sharding
from reshard.torch.version import DTensorSpec, TorchDispatchMode

# The minimum that a rank receives by a collective of `n` members: `size` is its input and `made` its result.
_LEAST: dict[str, Callable[[int, int, int], int]] = {
    "all_gather": lambda size, made, n: made // n * (n - 1),
    "reduce_scatter": lambda size, made, n: size // n * (n - 1),
    "all_reduce": lambda size, made, n: 2 * (size // n * (n - 1)),
    "all_to_all": lambda size, made, n: made // n * (n - 1),
    "broadcast": lambda size, made, n: made,
    "messages": lambda size, made, n: made,
}
_KINDS = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "allreduce_": "all_reduce",
    "all_to_all_single": "all_to_all",
    "alltoall_base_": "all_to_all",
    "alltoall_": "all_to_all",
    "shard_dim_alltoall": "all_to_all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
    "recv_": "messages",
}


def least_bytes(kind: str, given: int, made: int, members: int) -> int:
    """Returns the minimum bytes that a rank receives by a collective, given its input and output bytes."""
    return _LEAST[kind](given, made, members)


@dataclass
class Collective:
    """A recorded collective: its kind, its members, and the minimum bytes that this rank receives."""

    kind: str
    members: int
    received_bytes: int


@dataclass
class Moved:
    """The collectives of one DTensor redistribution, with the plan between its specs; or one collective."""

    title: str
    calls: list[Collective] = field(default_factory=list)
    plan: Plan | None = None
    times: int = 1

    @property
    def received_bytes(self) -> int:
        """The bytes that this rank received."""
        return sum(call.received_bytes for call in self.calls)

    @property
    def bound_bytes(self) -> int:
        """The lower bound of bytes for the busiest rank and this result; for one collective, its bytes."""
        if self.plan is None:
            return self.received_bytes
        bound = self.plan.lower_bound_bytes
        return self.plan.received_bytes if bound is None else bound

    @property
    def better(self) -> Plan | None:
        """The plan, if it receives less or has fewer calls."""
        if self.plan is None:
            return None
        calls = self.plan.communicating_steps
        less = self.plan.received_bytes < self.received_bytes
        return self.plan if (less and calls <= len(self.calls)) or (calls < len(self.calls) and self.plan.received_bytes <= self.received_bytes) else None


class Audit(TorchDispatchMode):
    """The recorded collectives; `str` is a table."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[Moved] = []
        self._open: Moved | None = None
        self._hook = Hook(self._redistribute, watches=True)

    def __enter__(self) -> "Audit":
        self._hook.enter()
        try:
            super().__enter__()
        except BaseException:
            self._hook.leave()
            raise
        return self

    def __exit__(self, *args: Any) -> None:
        try:
            super().__exit__(*args)
        finally:
            self._hook.leave()

    @property
    def received_bytes(self) -> int:
        """The bytes that this rank received."""
        return sum(one.received_bytes * one.times for one in self.moved)

    @property
    def bound_bytes(self) -> int:
        """The minimum bytes that had to be received for the same results."""
        return sum(one.bound_bytes * one.times for one in self.moved)

    def _redistribute(self, original: Callable[..., torch.Tensor], local: torch.Tensor, current: DTensorSpec, target: DTensorSpec, **options: Any) -> torch.Tensor:
        if self._open is not None:
            return original(local, current, target, **options)
        before, after = (DTensorSpec.format_shard_order_str(spec.placements, spec.shard_order) for spec in (current, target))
        moved = Moved(f"{list(current.shape)} on {tuple(current.mesh.shape)}: {before} -> {after}")
        self._open = moved
        try:
            made = original(local, current, target, **options)
        finally:
            self._open = None
        if moved.calls:
            try:
                moved.plan = default_planner().plan(sharding(current), sharding(target), local.dtype)
            except ReshardError:
                pass  # no plan to compare with: the collectives are reported alone
            self._add(moved)
        return made

    def _add(self, moved: Moved) -> None:
        for one in self.moved:
            if (one.title, one.calls) == (moved.title, moved.calls):
                one.times += 1
                return
        self.moved.append(moved)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(one, DTensor) for one in types):
            # A mode runs before DTensor, and sees DTensor's inner calls only if it lets DTensor go first.
            return NotImplemented
        made = function(*args, **(kwargs or {}))
        if function.namespace in ("_c10d_functional", "c10d", "_dtensor"):
            name = function._schema.name.partition("::")[2]
            kind = _KINDS.get(name)
            if kind is not None:
                self._record(kind, name, args, made)
        return made

    def _record(self, kind: str, name: str, args: Any, made: Any) -> None:
        members = _members(args)
        given, received = _sizes(name, args, made)
        call = Collective(kind, members, least_bytes(kind, given, received, members))
        if self._open is not None:
            self._open.calls.append(call)
        elif members > 1:
            self._add(Moved(f"{kind} among {members}", [call]))

    def __str__(self) -> str:
        rows = [("times", "bytes", "bound", "what", "calls", "a better plan")]
        for one in self.moved:
            better = one.better
            steps = "" if better is None else ", ".join(step.op for step in better.steps if step.communicates) + f": {better.received_bytes} B"
            rows.append((str(one.times), str(one.received_bytes), str(one.bound_bytes), one.title, ", ".join(call.kind for call in one.calls), steps))
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = ["  ".join(cell.rjust(w) if i < 3 else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
        lines.append(f"{self.received_bytes} B received, bound {self.bound_bytes} B")
        return "\n".join(lines)


def audit() -> Audit:
    """Returns a context that records collectives: DTensor's, FSDP2's, and those of `torch.distributed`.

    Each has the bytes that this rank received and the lower bound for the same result. A redistribution of a
    DTensor also has the plan that would do better, if one does.

    >>> with audit() as seen:
    ...     model(batch).sum().backward()
    >>> print(seen)
    """
    return Audit()


def _members(args: Any) -> int:
    """Returns the number of ranks of a collective, whose group is given by name or as an object."""
    for one in args:
        if isinstance(one, dist.ProcessGroup):
            return one.size()
        if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
            return dist.ProcessGroup.unbox(one).size()
    for one in reversed(args):
        if isinstance(one, str) and one not in ("sum", "avg", "min", "max", "product"):
            return dist.distributed_c10d._resolve_process_group(one).size()
    return dist.get_world_size()


def _bytes(of: Any) -> int:
    if isinstance(of, torch.Tensor):
        return of.numel() * of.itemsize
    if isinstance(of, list | tuple):
        return sum(_bytes(one) for one in of)
    return 0


def _sizes(name: str, args: Any, made: Any) -> tuple[int, int]:
    """Returns the input and output bytes of a collective."""
    if name in ("_allgather_base_", "_reduce_scatter_base_", "alltoall_base_", "allgather_", "reduce_scatter_", "alltoall_"):
        return _bytes(args[1]), _bytes(args[0])
    return _bytes(args[0]), _bytes(args[0] if name.endswith("_") else made)
