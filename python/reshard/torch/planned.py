"""DTensor redistributions by this library's plans: forward, backward, twice, and under torch.compile."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial

from reshard import Planner, ReshardError

from reshard.torch import fsdp, runs
from reshard.torch.compiled import note_compiled, warn_of_compiled
from reshard.torch.dtensor_calls import dtensor_calls
from reshard.torch.execute import Executor, default_planner, is_for_all_ranks
from reshard.torch.groups import groups_of, plan_within
from reshard.torch.hook import Hook
from reshard.torch.norms import NormExecutor, as_powers, norm_reduced
from reshard.torch.report import RedistributionRow, Report, innermost, pop, push
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


@dataclass(frozen=True)
class _Fallback:
    reason: str
    detail: str


# The executor or the fallback of a pair of specs, with the name and the row of its line in the report.
_Known = tuple[Executor | _Fallback, str, RedistributionRow]


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
        self._known: dict[tuple[DTensorSpec, DTensorSpec], _Known] = {}
        self._stamp: object = None
        self._hook = Hook(self._redistribute)

    def report(self) -> Report:
        """Returns the redistributions and FSDP2's calls that ran while this object was the innermost entered one."""
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
            warn_of_compiled()
            self._report.fsdp_unknown = problem(Part.FSDP)
            runs.bind()
            fsdp.bind()
            push(self._report)
        else:
            self._report.unsupported = problem()
        return self

    def disable(self) -> None:
        """Leaves it; the last one to leave restores PyTorch's functions."""
        if pop(self._report):
            note_compiled()
        if innermost() is None:
            runs.unbind()
            fsdp.unbind()
        self._hook.leave()

    def __enter__(self) -> "planned":
        return self.enable()

    def __exit__(self, *_: object) -> None:
        self.disable()

    def _redistribute(self, own: Callable[..., torch.Tensor], local: torch.Tensor, current: DTensorSpec, target: DTensorSpec, **options: Any) -> torch.Tensor:
        found, name, line = self._found(local, current, target)
        if isinstance(found, Executor) and found.dtype != local.dtype:
            # The spec has the type of the whole tensor, and this shard has been cast.
            found, name, line = self._line(local, current, target, self._prepare(local, current, target))
        if isinstance(found, _Fallback) and self._strict and found.reason != "outside":
            raise FallbackError(found.reason, f"{_between(current, target)}: {found.detail}")
        if runs.is_traced(local):
            with runs.marked(name, line):
                return self._run(found, own, local, current, target, options)
        line.calls += 1
        return self._run(found, own, local, current, target, options)

    @staticmethod
    def _run(
        found: Executor | _Fallback, own: Callable[..., torch.Tensor], local: torch.Tensor, current: DTensorSpec, target: DTensorSpec, options: dict[str, Any]
    ) -> torch.Tensor:
        if isinstance(found, _Fallback):
            return own(local, current, target, **options)
        debug = get_active_debug_mode()
        if debug is None:
            return found(local, async_op=options.get("async_op", False))
        with debug.record_redistribute_calls(
            local, current.placements, target.placements, f"{found.plan.from_}->{found.plan.to}", is_explicit=options.get("is_explicit", False)
        ):
            return found(local, async_op=options.get("async_op", False))

    def _found(self, local: torch.Tensor, current: DTensorSpec, target: DTensorSpec) -> _Known:
        if local_tensor_mode() is not None:
            return self._line(local, current, target, _Fallback("local tensor", "a LocalTensorMode is active"))
        if is_for_all_ranks():
            return self._line(local, current, target, _Fallback("one rank", "a graph is traced that all ranks will run"))
        if not all(type(extent) is int for extent in current.shape):
            return self._line(local, current, target, _Fallback("symbolic", f"shape {tuple(current.shape)}"))
        stamp = (id(dist.group.WORLD), len(current.mesh._get_root_mesh()._flatten_mapping))
        if stamp != self._stamp:
            self._known.clear()
            self._stamp = stamp
        known = self._known.get((current, target))
        if known is None:
            known = self._known[(current, target)] = self._line(local, current, target, self._prepare(local, current, target))
        return known

    def _line(self, local: torch.Tensor, current: DTensorSpec, target: DTensorSpec, found: Executor | _Fallback) -> _Known:
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
        return found, name, line

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
