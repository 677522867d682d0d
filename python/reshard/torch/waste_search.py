"""The search for findings among recorded calls: each call is explained by one detector."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from reshard import Mesh, Planner, ReshardError, Sharding
from reshard._finding import Finding

from reshard.torch.flow import Flow, Product
from reshard.torch.traffic import CollectiveKind
from reshard.torch.waste import Exchange, Found, Trace, Traced
from reshard.torch.waste_gathers import better_plans, regathered, repeated, sliced
from reshard.torch.waste_reductions import axis_by_axis, before_added, small
from reshard.torch.waste_work import late, replicated, unbalanced
from reshard.torch.where import Axes, Where

# In this order: a call is explained by the first detector that finds it.
_DETECTORS: list[Callable[[Trace], Iterator[Found]]] = [repeated, regathered, better_plans, before_added, axis_by_axis, sliced, small, late, unbalanced]


def find(calls: Sequence[Traced], flow: Flow, work: Sequence[tuple[Product, Where]], axes: Axes, planner: Planner) -> tuple[Finding, ...]:
    """Returns the findings among calls, and marks the bytes that their rows do not need."""
    trace = Trace(calls, flow, axes, set())
    found: list[tuple[int, Finding]] = []
    for detector in _DETECTORS:
        for one in detector(trace):
            # A call is explained once, so that savings add up.
            if any(id(call) in trace.claimed for call in one.calls):
                continue
            trace.claimed.update(id(call) for call in one.calls)
            for call, saved in zip(one.calls, one.saved, strict=True):
                if call.row is not None:
                    call.row.unneeded_bytes += saved
            found.append((one.calls[0].call.time, _finding(one, planner)))
    found += replicated(work, axes)
    return tuple(_merged([finding for _, finding in sorted(found, key=lambda one: one[0])]))


def _finding(one: Found, planner: Planner) -> Finding:
    modules = dict.fromkeys(call.where.module for call in one.calls if call.where.module)
    return Finding(one.kind, one.message, one.code, sum(one.saved), _saved_us(one, planner), 0, ", ".join(modules) or None, one.calls[0].where.line)


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Adds up equal findings of one line, such as those of a loop."""
    made: dict[object, Finding] = {}
    for one in findings:
        key = (one.kind, one.module, one.line, one.message, one.code)
        old = made.get(key)
        if old is None:
            made[key] = one
            continue
        us = None if old.saved_us is None or one.saved_us is None else old.saved_us + one.saved_us
        made[key] = replace(
            old, saved_bytes=old.saved_bytes + one.saved_bytes, saved_us=us, saved_operations=old.saved_operations + one.saved_operations, times=old.times + 1
        )
    return list(made.values())


# The shardings between which a plan runs a collective over one axis.
_BETWEEN = {
    CollectiveKind.ALL_GATHER: ("S(0)", "R"),
    CollectiveKind.REDUCE_SCATTER: ("P(sum)", "S(0)"),
    CollectiveKind.ALL_REDUCE: ("P(sum)", "R"),
}


def _saved_us(one: Found, planner: Planner) -> float | None:
    costs = [[_cost_us(part, planner) for part in side] for side in (one.before, one.after)]
    if not one.before or any(cost is None for side in costs for cost in side):
        return None
    return max(sum(cost or 0.0 for cost in costs[0]) - sum(cost or 0.0 for cost in costs[1]), 0.0)


def _cost_us(of: Exchange, planner: Planner) -> float | None:
    """Returns the planner's cost of a collective; None for kinds that plans do not call, and unknown ranks."""
    n = len(of.members)
    try:
        mesh = Mesh.from_ranks([("group", n)], list(of.members))
        if of.kind is CollectiveKind.ALL_TO_ALL:
            shape, between = [n, max(of.whole_bytes // 4, n)], ("S(0)", "S(1)")
        elif of.kind in _BETWEEN:
            shape, between = [max(of.whole_bytes // 4, 1)], _BETWEEN[of.kind]
        else:
            return None
        before, after = (Sharding(mesh, shape, text) for text in between)
        return planner.cost_us(before, after, "f32")
    except ReshardError:
        return None
