"""Findings about reductions: results that are only added, one after another over axes, and small ones."""

from collections.abc import Iterator

from reshard._finding import FindingKind

from reshard.torch.flow import Content, Flow, Read, ReadKind
from reshard.torch.traffic import CollectiveKind
from reshard.torch.waste import Exchange, Found, Trace, Traced, exchange, size_of_regions
from reshard.torch.waste_gathers import input_code
from reshard.torch.where import Caller

# Below this a reduction costs its latency, on any network of today.
SMALL_BYTES = 64 << 10


def _sums(trace: Trace) -> Iterator[Traced]:
    """Yields the open calls that add one tensor over ranks."""
    for one in trace.open():
        made = one.call.traffic
        if one.kind is CollectiveKind.ALL_REDUCE and made.is_sum and len(one.call.outputs) == 1 and one.received_bytes and one.caller is not Caller.FSDP:
            yield one


def before_added(trace: Trace) -> Iterator[Found]:
    """Finds all_reduces whose results have one use: an addition to each other's."""
    by: dict[object, list[Traced]] = {}
    for one in _sums(trace):
        content, region = one.call.outputs[0]
        total = _sum_of(trace.flow, content) if content.is_whole(region) else None
        if total is not None:
            by.setdefault((id(total), one.call.traffic.group, region.numel, region.itemsize), []).append(one)
    for calls in by.values():
        if len(calls) < 2:
            continue
        if calls[0].redistribution is None:
            code = "total = a + b  # first, and then\ndist.all_reduce(total, group=group)"
        else:
            code = input_code(calls, "Replicate()")
        yield Found(
            FindingKind.REDUCED_BEFORE_ADDED,
            f"{len(calls)} all_reduces over {trace.over(calls[0])} of {size_of_regions(calls[0].call.inputs):,} B each are only added: add first, reduce once",
            code,
            calls,
            [*(one.received_bytes for one in calls[1:]), 0][::-1],
            [exchange(one) for one in calls],
            [exchange(calls[0])],
        )


def _only_read(flow: Flow, content: Content) -> Read | None:
    """Returns the only read of a content, if it reads all of it and no tensor of it is left."""
    if len(content.reads) != 1 or flow.held(content) or not content.is_whole(content.reads[0].region):
        return None
    return content.reads[0]


def _sum_of(flow: Flow, content: Content) -> Content | None:
    """Returns the last sum that a content is only a summand of, through copies; None if it is not added."""
    total = None
    while (read := _only_read(flow, content)) is not None and read.kind in (ReadKind.ADD, ReadKind.COPY) and len(read.made) == 1:
        content = read.made[0]
        total = content if read.kind is ReadKind.ADD else total
    return total


def axis_by_axis(trace: Trace) -> Iterator[Found]:
    """Finds all_reduces whose operand is the result of another, over other ranks, with no other use."""
    results: dict[int, Traced] = {}
    for one in _sums(trace):
        content, region = one.call.inputs[0]
        first = results.get(content.number)
        out, into = one.call.outputs[0]
        if out.is_whole(into):
            results[out.number] = one
        if first is None or not content.is_whole(region) or id(first) in trace.claimed:
            continue
        inner, outer = first.call.traffic, one.call.traffic
        if len(set(inner.members) & set(outer.members)) != 1 or not _leads_to(trace.flow, first.call.outputs[0][0], one):
            continue
        n = len(inner.members) * len(outer.members)
        whole = region.numel * region.itemsize
        saved = first.received_bytes + one.received_bytes - 2 * (whole // n * (n - 1))
        if saved <= 0:
            continue
        over = f"{trace.over(first)} and {trace.over(one)}"
        yield Found(
            FindingKind.REDUCED_AXIS_BY_AXIS,
            f"{whole:,} B reduced over {over} by two all_reduces: one over both is enough",
            f'both = mesh["{trace.over(first)}", "{trace.over(one)}"]._flatten()\ndist.all_reduce(x, group=both.get_group())',
            [first, one],
            [0, saved],
            [exchange(first), exchange(one)],
            # The group of both axes: its ranks are not known here, their number is.
            [Exchange(CollectiveKind.ALL_REDUCE, tuple(range(n)), whole)],
        )


def _leads_to(flow: Flow, content: Content, call: Traced) -> bool:
    """Returns True if a content has one use, through copies: the operand of a call."""
    while (read := _only_read(flow, content)) is not None:
        if read.kind is ReadKind.CALL:
            return read.time == call.call.time
        if read.kind is not ReadKind.COPY:
            return False
        content = read.made[0]
    return False


def small(trace: Trace) -> Iterator[Found]:
    """Finds consecutive small all_reduces of a module over one group, whose operands are ready before the first."""
    run: list[Traced] = []
    open_sums = {id(one) for one in _sums(trace)}
    for one in trace.calls:
        if id(one) in open_sums and size_of_regions(one.call.inputs) <= SMALL_BYTES:
            if run and _kind(run[0]) == _kind(one) and _is_ready(run, one):
                run.append(one)
                continue
            yield from _bucket(trace, run)
            run = [one]
        else:
            yield from _bucket(trace, run)
            run = []
    yield from _bucket(trace, run)


def _is_ready(run: list[Traced], one: Traced) -> bool:
    """Returns True if a call could run with the first of a run.

    Its operand exists before, and no number of a result, such as by `item`, could have decided on the call.
    """
    if any(content.time >= run[0].call.time for content, _ in one.call.inputs):
        return False
    reads = (read for before in run for content, _ in before.call.outputs for read in content.reads)
    return not any(not read.made and read.time < one.call.time for read in reads)


def _kind(one: Traced) -> tuple[object, ...]:
    return one.call.traffic.group, one.where.module, one.where.during, one.call.traffic.dtype


def _bucket(trace: Trace, run: list[Traced]) -> Iterator[Found]:
    if len(run) < 2:
        return
    total = sum(size_of_regions(one.call.inputs) for one in run)
    yield Found(
        FindingKind.SMALL_REDUCTIONS,
        f"{len(run)} all_reduces over {trace.over(run[0])} of {total:,} B in all are ready at the same time: one call is enough",
        "flat = torch.cat([x.reshape(-1) for x in tensors])\ndist.all_reduce(flat, group=group)  # or all_reduce_coalesced",
        list(run),
        [0] * len(run),
        [exchange(one) for one in run],
        [Exchange(CollectiveKind.ALL_REDUCE, run[0].call.traffic.members, total)],
    )
