"""DTensor redistributions by this library's plans: forward, backward, twice, and under torch.compile."""

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial

from reshard import Planner, ReshardError
from reshard._refusals import counted

from reshard.torch.compiled import entered, left
from reshard.torch.dtensor_calls import dtensor_calls
from reshard.torch.execute import Executor, default_planner, is_for_all_ranks
from reshard.torch.groups import groups_of, plan_within
from reshard.torch.hook import Hook
from reshard.torch.norms import NormExecutor, as_powers, norm_reduced
from reshard.torch.specs import placement, sharding
from reshard.torch.version import DTensorSpec, Part, _disable_current_modes, again, get_active_debug_mode, local_tensor_mode, problem, usable

# The reasons why a redistribution is left to PyTorch, each with its text in a report.
FALLBACKS = {
    "into terms": "R or S becomes P: PyTorch divides or pads, plans use one copy; the global tensor is the same",
    "terms": "P(a) becomes P(b), or dims have partial values of different ops: PyTorch raises its errors",
    "placement": "a subclass of a placement, masked partial values, a bitwise op, or a norm of another exponent: it has a state, or there is no notation",
    "dtype": "the elements have no such arithmetic here, or no type",
    "symbolic": "a symbolic shape: plans need sizes",
    "local tensor": "LocalTensor: calls differ by rank",
    "one rank": "compile_on_one_rank: the graph is every rank's, and a plan's calls are one rank's",
    "groups": "no group contains the members of the plan's calls, and none is made",
    "meshes": "two device meshes: PyTorch raises its error; use reshard.torch.redistribute between them",
    "outside": "this rank is not in the device mesh and has no data",
}


class FallbackError(RuntimeError):
    """Raised under `strict` for a redistribution left to PyTorch; `reason` is a key of `FALLBACKS`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"not by a plan ({reason}): {detail}: {FALLBACKS[reason]}")
        self.reason = reason


@dataclass
class RedistributionRow:
    """The count of redistributions between two specs, and how they were done.

    `pytorch_kinds` and `pytorch_bytes` are the collectives of PyTorch's own redistribution and the minimum
    bytes that a rank receives by them; None if they are not known.
    """

    calls: int = 0
    received_bytes: int = 0
    kinds: tuple[str, ...] = ()
    fallback: str | None = None
    pytorch_kinds: tuple[str, ...] | None = None
    pytorch_bytes: int | None = None


@dataclass
class Report:
    """The redistributions that were done, by a plan or by PyTorch; `str` is a table.

    `unsupported` is the reason why nothing was replaced, if the installed PyTorch is not supported.
    """

    lines: dict[str, RedistributionRow] = field(default_factory=dict)
    unsupported: str | None = None

    @property
    def plans(self) -> int:
        """The number of redistributions by a plan."""
        return sum(line.calls for line in self.lines.values() if line.fallback is None)

    @property
    def collectives(self) -> int:
        """The number of collective calls that this rank made for them."""
        return sum(line.calls * len(line.kinds) for line in self.lines.values() if line.fallback is None)

    @property
    def received_bytes(self) -> int:
        """The bytes that this rank received by them."""
        return sum(line.calls * line.received_bytes for line in self.lines.values() if line.fallback is None)

    @property
    def pytorch_collectives(self) -> int:
        """The number of collective calls by which PyTorch would have done what plans did."""
        return sum(line.calls * len(line.pytorch_kinds or ()) for line in self.lines.values() if line.fallback is None)

    @property
    def pytorch_bytes(self) -> int:
        """The bytes that a rank would have received by those calls."""
        return sum(line.calls * (line.pytorch_bytes or 0) for line in self.lines.values() if line.fallback is None)

    @property
    def fallbacks(self) -> dict[str, int]:
        """The number of redistributions that were left to PyTorch, by reason."""
        counted: Counter[str] = Counter()
        for line in self.lines.values():
            if line.fallback is not None:
                counted[line.fallback] += line.calls
        return dict(counted)

    def __str__(self) -> str:
        rows = [("times", "bytes each", "redistribution", "by", "PyTorch", "bytes each")]
        for name, line in self.lines.items():
            how = ", ".join(line.kinds) or "no call" if line.fallback is None else f"PyTorch: {line.fallback}"
            theirs = ("?", "") if line.pytorch_kinds is None else (counted(len(line.pytorch_kinds), "call"), str(line.pytorch_bytes))
            rows.append((str(line.calls), str(line.received_bytes) if line.fallback is None else "", name, how, *theirs))
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        made = ["  ".join(c.ljust(w) if at in (2, 3) else c.rjust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
        unknown = any(line.fallback is None and line.pytorch_kinds is None for line in self.lines.values())
        made.append(f"{self.plans} by plans, {counted(self.collectives, 'call')}, {self.received_bytes} B received; by PyTorch: {sum(self.fallbacks.values())}")
        made.append(f"PyTorch instead of plans: {counted(self.pytorch_collectives, 'call')}, {self.pytorch_bytes} B" + (", without rows of ?" if unknown else ""))
        if self.unsupported is not None:
            made.append(f"nothing was replaced: {self.unsupported}")
        return "\n".join(made)


@dataclass(frozen=True)
class _Fallback:
    reason: str
    detail: str


class planned(contextlib.ContextDecorator):
    """Makes DTensor redistribute by plans: explicitly, between ops, and in backward passes.

    Under `torch.compile` the graphs contain the plan's calls. It is a context manager and a decorator;
    `enable` and `disable` are its two ends. The innermost one counts. With `strict`, a redistribution that
    would be left to PyTorch raises `Unplanned`. No group is made: a plan uses existing ones. `report` lists
    the redistributions.

    >>> with planned() as plans:
    ...     y = x.redistribute(placements=[Shard(1), Shard(0)])
    >>> print(plans.report())
    """

    def __init__(self, planner: Planner | None = None, *, strict: bool = False) -> None:
        self._planner = planner or default_planner()
        self._strict = strict
        self._report = Report()
        self._known: dict[tuple[DTensorSpec, DTensorSpec], tuple[Executor | _Fallback, RedistributionRow]] = {}
        self._stamp: object = None
        self._hook = Hook(self._redistribute)

    def report(self) -> Report:
        """Returns the redistributions since this object was made."""
        return self._report

    def enable(self) -> "planned":
        """Enters it, until `disable`.

        If a private name that it needs is missing in the installed PyTorch or takes other arguments, nothing
        is replaced, and a warning reports it once. Another warning lists the functions that were compiled before:
        PyTorch's calls stay in their graphs.

        Errors: under `strict`, RuntimeError instead of that warning.
        """
        again()
        if self._strict or usable():
            self._hook.enter()
            entered(self)
        else:
            self._report.unsupported = problem()
        return self

    def disable(self) -> None:
        """Leaves it; the last one to leave restores PyTorch's function."""
        left(self)
        self._hook.leave()

    def __enter__(self) -> "planned":
        return self.enable()

    def __exit__(self, *_: object) -> None:
        self.disable()

    def _redistribute(self, own: Callable[..., torch.Tensor], local: torch.Tensor, current: DTensorSpec, target: DTensorSpec, **options: Any) -> torch.Tensor:
        mode = local_tensor_mode()
        found: Executor | _Fallback
        if mode is not None:
            found, line = self._line(local, current, target, _Fallback("local tensor", "a LocalTensorMode is active"))
        elif is_for_all_ranks():
            found, line = self._line(local, current, target, _Fallback("one rank", "a graph is traced that all ranks will run"))
        elif not all(type(extent) is int for extent in current.shape):
            found, line = self._line(local, current, target, _Fallback("symbolic", f"shape {tuple(current.shape)}"))
        else:
            stamp = (id(dist.group.WORLD), len(current.mesh._get_root_mesh()._flatten_mapping))
            if stamp != self._stamp:
                self._known.clear()
                self._stamp = stamp
            known = self._known.get((current, target))
            if known is None:
                known = self._line(local, current, target, self._prepare(local, current, target))
                self._known[(current, target)] = known
            found, line = known
        if isinstance(found, _Fallback):
            if self._strict and found.reason != "outside":
                raise FallbackError(found.reason, f"{_between(current, target)}: {found.detail}")
            line.calls += 1
            return own(local, current, target, **options)
        if found.dtype != local.dtype:
            # The spec has the type of the whole tensor, and this shard has been cast.
            found, line = self._line(local, current, target, self._prepare(local, current, target))
            if isinstance(found, _Fallback):
                return own(local, current, target, **options)
        line.calls += 1
        debug = get_active_debug_mode()
        if debug is None:
            return found(local, async_op=options.get("async_op", False))
        with debug.record_redistribute_calls(
            local, current.placements, target.placements, f"{found.plan.from_}->{found.plan.to}", is_explicit=options.get("is_explicit", False)
        ):
            return found(local, async_op=options.get("async_op", False))

    def _line(self, local: torch.Tensor, current: DTensorSpec, target: DTensorSpec, found: Executor | _Fallback) -> tuple[Executor | _Fallback, RedistributionRow]:
        name = _between(current, target)
        if isinstance(found, _Fallback):
            name += f" ({found.reason})"
        line = self._report.lines.get(name)
        if line is None:
            theirs = _by_pytorch(current, target, local.itemsize) if not isinstance(found, _Fallback) or found.reason in _DONE else None
            if isinstance(found, _Fallback):
                line = RedistributionRow(fallback=found.reason)
            else:
                line = RedistributionRow(kinds=tuple(found.kinds), received_bytes=found.received_bytes)
            if theirs is not None:
                line.pytorch_kinds, line.pytorch_bytes = theirs
            self._report.lines[name] = line
        return found, line

    def _prepare(self, local: torch.Tensor, current: DTensorSpec, target: DTensorSpec) -> Executor | _Fallback:
        reason = why_not(current, target)
        if reason is not None:
            return _Fallback(*reason)
        if any(one.is_partial("avg") for one in current.placements) and not local.dtype.is_floating_point:
            return _Fallback("dtype", f"an average of {local.dtype}")
        try:
            before, after = sharding(current), sharding(target)
        except ReshardError as error:
            return _Fallback("placement", str(error))
        try:
            groups = groups_of(current.mesh)
            norm = norm_reduced(current, target)
            if norm is not None:
                if not local.dtype.is_floating_point:
                    return _Fallback("dtype", f"a norm of {local.dtype}")
                before, after = as_powers(before, norm), as_powers(after, norm)
            plan = plan_within(groups, self._planner, before, after, local.dtype)
            if plan is None:
                return _Fallback("groups", f"groups {groups}")
            if norm is not None:
                return NormExecutor(plan, dist.get_rank(), groups, local.dtype, norm)
            return Executor(plan, dist.get_rank(), groups, local.dtype)
        except ReshardError as error:
            return _Fallback("dtype", str(error))


def why_not(current: DTensorSpec, target: DTensorSpec) -> tuple[str, str] | None:
    """Returns the reason why a redistribution is left to PyTorch, or None if a plan can do it.

    It depends on the specs alone, which are equal on all ranks.
    """
    if current.mesh != target.mesh:
        return "meshes", f"{current.mesh} and {target.mesh}"
    if not current.mesh._is_current_rank_part_of_mesh():
        return "outside", f"rank {dist.get_rank()} of {current.mesh}"
    for one in (*current.placements, *target.placements):
        try:
            placement(one)
        except ReshardError as error:
            return "placement", str(error)
    terms = [{placement(one) for one in of.placements if isinstance(one, Partial)} for of in (current, target)]
    if any(len(ops) > 1 for ops in terms):
        return "terms", "dims have partial values of different ops"
    for before, after in zip(current.placements, target.placements, strict=True):
        if isinstance(after, Partial) and before != after:
            if isinstance(before, Partial):
                return "terms", f"{before} becomes {after}"
            return "into terms", f"{before} becomes {after}"
    if current.tensor_meta is None:
        return "symbolic", "the spec has no shape"
    return None


# The reasons of fallbacks that PyTorch then does with known sizes; for the others its calls are not known.
_DONE = frozenset({"into terms", "placement", "dtype", "groups"})


def _by_pytorch(current: DTensorSpec, target: DTensorSpec, item: int) -> tuple[tuple[str, ...], int] | None:
    """Returns the collectives of PyTorch's own redistribution and their bytes; None if it has none."""
    # The names that count them are not needed for plans, which run without them.
    if problem(Part.CHECK) is not None:
        return None
    try:
        # A trace would note the positions in the device mesh that are read here as values of its graph.
        with _disable_current_modes():
            return dtensor_calls(current, target, item)
    except Exception:
        # PyTorch has no steps for some pairs that plans have, and raises errors of several types.
        return None


def _between(current: DTensorSpec, target: DTensorSpec) -> str:
    shape = list(current.shape) if current.tensor_meta is not None else "?"
    of = [DTensorSpec.format_shard_order_str(spec.placements, spec.shard_order) for spec in (current, target)]
    return f"{shape} on {tuple(current.mesh.shape)}: {of[0]} -> {of[1]}"
