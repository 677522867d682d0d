"""An audit of the communication of any PyTorch code: where it runs, its bounds, and its findings."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from reshard import Plan, Planner, ReshardError
from reshard._finding import Finding
from reshard._refusals import counted

from reshard.torch.execute import default_planner
from reshard.torch.flow import Flow, Product, region_of
from reshard.torch.hook import Hook
from reshard.torch.specs import sharding
from reshard.torch.traffic import CollectiveKind, Traffic, inner, is_collective, tensors, traffic
from reshard.torch.version import Part, require, DTensorSpec, FakeTensor, TorchDispatchMode, _disable_current_modes, is_traceable_wrapper_subclass_type
from reshard.torch.waste import Redistribution, Traced
from reshard.torch.waste_search import find
from reshard.torch.where import Axes, Modules, Where

@dataclass
class Collective:
    """A recorded collective: its kind, the number of members, and the minimum bytes that this rank receives and sends."""

    kind: CollectiveKind
    members: int
    received_bytes: int
    sent_bytes: int


@dataclass
class Moved:
    """The collectives of one DTensor redistribution, with the plan between its specs; or one collective."""

    title: str
    calls: list[Collective] = field(default_factory=list)
    plan: Plan | None = None
    times: int = 1
    where: Where = field(default_factory=Where)
    """The module, the line, the pass, the mesh axis and the stream of the calls."""
    unneeded_bytes: int = 0
    """The received bytes that findings would save, in all runs."""

    @property
    def received_bytes(self) -> int:
        """The bytes that this rank received."""
        return sum(call.received_bytes for call in self.calls)

    @property
    def sent_bytes(self) -> int:
        """The bytes that this rank sent."""
        return sum(call.sent_bytes for call in self.calls)

    @property
    def needed_bytes(self) -> int:
        """The bytes that all runs had to receive: the bound, without what findings would save."""
        return min(self.bound_bytes * self.times, self.received_bytes * self.times - self.unneeded_bytes)

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
    """The recorded collectives and the findings; `str` is a table of both."""

    def __init__(self, planner: Planner | None = None) -> None:
        super().__init__()
        self.moved: list[Moved] = []
        self._planner = planner or default_planner()
        self._open: _Open | None = None
        self._hook = Hook(self._redistribute, watches=True)
        self._modules, self._axes, self._flow = Modules(), Axes(), Flow()
        self._traced: list[Traced] = []
        self._work: list[tuple[Product, Where]] = []
        self._findings: tuple[Finding, ...] | None = None

    def __enter__(self) -> "Audit":
        require(Part.AUDIT)
        self._hook.enter()
        try:
            super().__enter__()
        except BaseException:
            self._hook.leave()
            raise
        self._findings = None
        return self

    def __exit__(self, *args: Any) -> None:
        try:
            super().__exit__(*args)
        finally:
            self._hook.leave()
        # Now: later, tensors that the program can still read have gone.
        self._findings = self._find()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The communication and the work that this rank could save, in the order of the calls."""
        return self._find() if self._findings is None else self._findings

    @property
    def received_bytes(self) -> int:
        """The bytes that this rank received."""
        return sum(one.received_bytes * one.times for one in self.moved)

    @property
    def sent_bytes(self) -> int:
        """The bytes that this rank sent."""
        return sum(one.sent_bytes * one.times for one in self.moved)

    @property
    def bound_bytes(self) -> int:
        """The minimum bytes that had to be received for the same results, without what findings would save."""
        self.findings  # noqa: B018  they set the rows' unneeded bytes
        return sum(one.needed_bytes for one in self.moved)

    def _find(self) -> tuple[Finding, ...]:
        for one in self.moved:
            one.unneeded_bytes = 0
        with _disable_current_modes():
            return find(self._traced, self._flow, self._work, self._axes, self._planner)

    def _redistribute(
        self, original: Callable[..., torch.Tensor], local: torch.Tensor, current: DTensorSpec, target: DTensorSpec, **options: Any
    ) -> torch.Tensor:
        if self._open is not None:
            return original(local, current, target, **options)
        self._axes.learn(current.mesh)
        before, after = (DTensorSpec.format_shard_order_str(spec.placements, spec.shard_order) for spec in (current, target))
        moved = Moved(f"{list(current.shape)} on {tuple(current.mesh.shape)}: {before} -> {after}")
        opened = _Open(moved, Redistribution())
        self._open = opened
        try:
            made = original(local, current, target, **options)
        finally:
            self._open = None
        if moved.calls:
            try:
                moved.plan = self._planner.plan(sharding(current), sharding(target), local.dtype)
            except ReshardError:
                pass  # no plan to compare with: the collectives are reported alone
            result = inner(made)
            opened.redistribution.better = moved.better
            opened.redistribution.result = (self._flow.content(result), region_of(result))
            axes = dict.fromkeys(one.where.axis for one in opened.traced if one.where.axis is not None)
            moved.where = replace(opened.traced[0].where, axis=", ".join(axes) or None)
            self._add(moved, opened.traced)
        return made

    def _add(self, moved: Moved, traced: list[Traced]) -> None:
        row = next((one for one in self.moved if (one.title, one.calls, one.where) == (moved.title, moved.calls, moved.where)), None)
        if row is None:
            self.moved.append(moved)
        else:
            row.times += 1
        for one in traced:
            one.row = row or moved
            self._traced.append(one)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_traceable_wrapper_subclass_type(one) for one in types):
            # A mode runs before DTensor and other wrappers, and sees inner calls only if it lets them go first.
            self._note_placements(args)
            return NotImplemented
        made = function(*args, **(kwargs or {}))
        if function.namespace == "profiler" or any(issubclass(one, FakeTensor) for one in types) or not _is_real(made) or not _is_real(args):
            return made
        if is_collective(function):
            self._record(traffic(function, args, kwargs or {}, made))
            return made
        self._modules.note_op()
        product = self._flow.op(function, args, kwargs or {}, made)
        if product is not None:
            self._work.append((product, self._modules.where()[0]))
        return made

    def _note_placements(self, args: Any) -> None:
        """Notes which ranks have the same shards: those along the axes of replicas."""
        for tensor in tensors(args):
            if isinstance(tensor, DTensor) and _is_real(local := inner(tensor._local_tensor)):
                mesh = tensor.device_mesh
                self._axes.learn(mesh)
                groups = [self._axes.members(mesh, dim) for dim, one in enumerate(tensor.placements) if one.is_replicate() and mesh.size(dim) > 1]
                self._flow.mark_replicated(local, [members for members in groups if members])

    def _record(self, made: Traffic) -> None:
        call = self._flow.call(made)
        if len(made.members) == 1 and self._open is None:
            return
        where, caller = self._modules.where()
        first = next(iter((*made.inputs, *made.outputs)))
        stream = torch.cuda.current_stream(first.device).stream_id if first.is_cuda else None
        axis = self._axes.of(made)
        traced = Traced(call, replace(where, axis=axis, stream=stream), caller, None if self._open is None else self._open.redistribution)
        collective = Collective(made.kind, len(made.members), made.received_bytes, made.sent_bytes)
        if self._open is not None:
            self._open.moved.calls.append(collective)
            self._open.traced.append(traced)
            return
        self._add(Moved(f"{made.kind} among {len(made.members)}", [collective], where=traced.where), [traced])

    def __str__(self) -> str:
        findings = self.findings
        rows = [("times", "bytes", "bound", "pass", "axis", "module", "line", "what", "calls")]
        for one in self.moved:
            where = one.where
            line = "" if where.line is None else f"{os.path.basename(where.line[0])}:{where.line[1]}"
            calls = ", ".join(call.kind for call in one.calls)
            total = one.received_bytes * one.times
            module = "-" if where.module is None else where.module or "(root)"
            rows.append((str(one.times), str(total), str(one.needed_bytes), where.during.value, where.axis or "-", module, line, one.title, calls))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.rjust(w) if i < 3 else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
        lines.append(f"{self.received_bytes} B received, {self.sent_bytes} B sent, bound {self.bound_bytes} B, {counted(len(findings), 'finding')}")
        return "\n".join([*lines, *map(str, findings)])


@dataclass
class _Open:
    """The redistribution that runs now: its row, and its calls."""

    moved: Moved
    redistribution: Redistribution
    traced: list[Traced] = field(default_factory=list)


def audit(planner: Planner | None = None) -> Audit:
    """Returns a context that records collectives: DTensor's, FSDP2's, and those of `torch.distributed`.

    Each has the bytes that this rank received and sent, with its module, line, pass and mesh axis. `findings`
    are the bytes and the work that this rank could save, with the code to write; their times are those of the
    planner's topology.

    >>> with audit() as seen:
    ...     model(batch).sum().backward()
    >>> print(seen)
    """
    return Audit(planner)


def _is_real(of: Any) -> bool:
    """Returns True if tensors have strided memory, by which their values can be followed."""
    return all(tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_meta or isinstance(tensor, FakeTensor)) for tensor in tensors([of]))
