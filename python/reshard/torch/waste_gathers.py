"""Findings about the received data: repeated calls, better plans, and results of which only a part is read."""

import os
from collections.abc import Iterator, Sequence

import torch

from reshard import Plan
from reshard._finding import FindingKind

from reshard.torch.flow import Content, Flow, ReadKind, Region
from reshard.torch.traffic import CollectiveKind
from reshard.torch.waste import Exchange, Found, Trace, Traced, exchange
from reshard.torch.where import Caller, Pass

# The largest result whose elements are followed one at a time.
_MOST_ELEMENTS = 1 << 26


def repeated(trace: Trace) -> Iterator[Found]:
    """Finds calls with the same operands and group as an earlier one in the same pass.

    A second call in backward is not found: releasing the first result in between saves memory.
    """
    first: dict[object, Traced] = {}
    by: dict[int, tuple[Traced, list[Traced]]] = {}
    for one in trace.calls:
        if one.caller is Caller.FSDP or one.call.key is None or not one.received_bytes:
            continue
        if any(trace.flow.is_blank(content) for content, _ in one.call.inputs):
            continue
        before = first.setdefault((one.call.key, one.where.during is Pass.BACKWARD), one)
        if before is not one:
            # The calls of one redistribution are one finding.
            by.setdefault(id(one.redistribution or one), (before, []))[1].append(one)
    for before, calls in by.values():
        one = calls[0]
        again = "in the same line" if one.where.line == before.where.line else _at(before)
        kinds = ", ".join(f"{call.kind} over {trace.over(call)}" for call in calls)
        message = f"{sum(call.received_bytes for call in calls):,} B by {kinds}, unchanged since a call {again}"
        kind, code = FindingKind.REPEATED, "# keep the result of the first call, and use it again"
        if one.caller is before.caller is Caller.FULL_TENSOR and one.where.line == before.where.line:
            kind, code = FindingKind.FULL_TENSOR_IN_LOOP, "whole = x.full_tensor()  # once, before the loop"
        elif one.redistribution is not None and one.where.module is not None:
            code = input_code([before, *calls], "..")
        elif one.redistribution is not None:
            code = "y = x.redistribute(placements=[..])  # once, and use `y` for all that follows"
        yield Found(kind, message, code, calls, [call.received_bytes for call in calls], [exchange(call) for call in calls])


def _at(one: Traced) -> str:
    return "before" if one.where.line is None else f"in line {one.where.line[1]}"


def input_code(calls: Sequence[Traced], layout: str) -> str:
    """Returns the code by which the modules of calls share one input that is a DTensor."""
    paths = [(one.where.module or "").split(".") for one in calls]
    parent = ".".join(os.path.commonprefix(paths) if len(paths) > 1 else paths[0][:-1])
    of = f'model.get_submodule("{parent}")' if parent else "model"
    # Two lines, so that they fit into a page.
    style = f"PrepareModuleInput(input_layouts={layout}, desired_input_layouts=Replicate())"
    return f"# share one DTensor among the modules that take it\nparallelize_module({of}, mesh,\n    {style})"


def regathered(trace: Trace) -> Iterator[Found]:
    """Finds parameters of FSDP2 that are gathered in backward, directly after they were gathered in forward.

    Gathers of other modules in between would need the memory.
    """
    previous: Traced | None = None
    for one in trace.calls:
        if one.caller is not Caller.FSDP or one.kind is not CollectiveKind.ALL_GATHER:
            continue
        if (
            previous is not None
            and previous.call.key == one.call.key
            and (previous.where.during, one.where.during) == (Pass.FORWARD, Pass.BACKWARD)
        ):
            name = one.where.module or "module"
            yield Found(
                FindingKind.REGATHERED,
                f"{one.received_bytes:,} B over {trace.over(one)}: released after forward, and gathered first in backward",
                f'fully_shard(model.get_submodule("{name}"), mesh=.., reshard_after_forward=False)',
                [one],
                [one.received_bytes],
                [exchange(one)],
            )
        previous = one


def better_plans(trace: Trace) -> Iterator[Found]:
    """Finds redistributions of DTensors whose plan receives less or has fewer calls."""
    by: dict[int, list[Traced]] = {}
    for one in trace.calls:
        if one.redistribution is not None and one.redistribution.better is not None:
            by.setdefault(id(one.redistribution), []).append(one)
    for calls in by.values():
        plan: Plan | None = calls[0].redistribution.better if calls[0].redistribution is not None else None
        if plan is None or any(id(one) in trace.claimed for one in calls):
            continue
        received = sum(one.received_bytes for one in calls)
        steps = ", ".join(step.op for step in plan.steps if step.communicates) or "no call"
        saved, left = [], plan.received_bytes
        for one in calls:
            # The plan's bytes are attributed to the first calls.
            kept = min(left, one.received_bytes)
            left -= kept
            saved.append(one.received_bytes - kept)
        yield Found(
            FindingKind.BETTER_PLAN,
            f"{plan.from_} -> {plan.to} by {', '.join(one.kind for one in calls)}, {received:,} B: {steps} of {plan.received_bytes:,} B is enough",
            "with planned():  # of reshard.torch\n    ...",
            calls,
            saved,
        )


def sliced(trace: Trace) -> Iterator[Found]:
    """Finds all_gathers and all_reduces of which this rank reads a part, and that part is a quarter smaller or more."""
    for one in trace.open():
        if one.kind not in (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE) or one.caller is Caller.FSDP:
            continue
        if len(one.call.outputs) != 1 or not one.received_bytes:
            continue
        content, region = one.call.outputs[0]
        if not region.is_dense or region.numel > _MOST_ELEMENTS or not content.reads:
            continue
        result = one.redistribution.result if one.redistribution is not None else None
        used = _Reader(trace.flow, None).used(content)[region.offset : region.offset + region.numel]
        # PyTorch pads uneven shards: padding does not reach the result, and is not reported.
        reached = torch.ones_like(used) if result is None else _Reader(trace.flow, result).used(content)[region.offset : region.offset + region.numel]
        if not used.any():
            continue
        found = _gathered(trace, one, used, reached, region) if one.kind is CollectiveKind.ALL_GATHER else _reduced(trace, one, used, region)
        if found is not None and 4 * found.saved[0] >= one.received_bytes:
            yield found


def _gathered(trace: Trace, one: Traced, used: torch.Tensor, reached: torch.Tensor, region: Region) -> Found | None:
    made = one.call.traffic
    share = region.numel // len(made.members)
    unused = reached & ~used
    unused[made.rank * share : (made.rank + 1) * share] = False
    saved = int(unused.sum()) * region.itemsize
    message = f"{int(used.sum()):,} of {region.numel:,} elements of the all_gather over {trace.over(one)} are read"
    if one.redistribution is None:
        code = "take the slice before the all_gather; if each rank takes its part, no call or an all_to_all_single is enough"
    else:
        code = "x.redistribute(placements=[Shard(dim)])  # the dim of the slice, in place of Replicate()"
    left = Exchange(made.kind, made.members, max(region.numel * region.itemsize - saved * len(made.members) // (len(made.members) - 1), 0))
    return Found(FindingKind.GATHERED_THEN_SLICED, message, code, [one], [saved], [exchange(one)], [left])


def _reduced(trace: Trace, one: Traced, used: torch.Tensor, region: Region) -> Found | None:
    made = one.call.traffic
    n, elements = len(made.members), int(used.sum())
    message = f"{elements:,} of {region.numel:,} elements of the all_reduce over {trace.over(one)} are read"
    dim = _own_chunk(used.view(region.shape), n, made.rank)
    whole = region.numel * region.itemsize
    if dim is not None:
        saved = one.received_bytes - whole // n * (n - 1)
        if one.redistribution is None:
            code = f'own = funcol.reduce_scatter_tensor(x, "sum", scatter_dim={dim}, group=group)'
        else:
            code = f"own = x.redistribute(placements=[Shard({dim})])  # in place of Replicate() and a slice"
        after = Exchange(CollectiveKind.REDUCE_SCATTER, made.members, whole)
    else:
        saved = one.received_bytes - 2 * (elements * region.itemsize // n * (n - 1))
        code = "take the slice first, and reduce only that"
        after = Exchange(made.kind, made.members, elements * region.itemsize)
    return Found(FindingKind.REDUCED_THEN_SLICED, message, code, [one], [saved], [exchange(one)], [after])


def _own_chunk(used: torch.Tensor, n: int, rank: int) -> int | None:
    """Returns the dim whose chunk of this rank has exactly the used elements; None if there is none."""
    for dim, extent in enumerate(used.shape):
        if extent % n == 0:
            mine = torch.zeros_like(used)
            mine.narrow(dim, rank * (extent // n), extent // n).fill_(True)
            if torch.equal(mine, used):
                return dim
    return None


class _Reader:
    """The elements of contents that are read, through copies: by ops, by calls, and by a result if it is given."""

    def __init__(self, flow: Flow, result: tuple[Content, Region] | None) -> None:
        self.flow, self.result = flow, result
        self.known: dict[int, torch.Tensor] = {}

    def used(self, content: Content) -> torch.Tensor:
        """Returns a mask of the elements of a content that are read."""
        known = self.known.get(id(content))
        if known is not None:
            return known
        itemsize = content.reads[0].region.itemsize if content.reads else 1
        used = torch.zeros(content.bytes // itemsize, dtype=torch.bool)
        self.known[id(content)] = used
        if self.result is not None and content is self.result[0]:
            used.fill_(True)
        for region in self.flow.held(content):
            _mark(used, region, itemsize, None)
        for read in content.reads:
            if used.all():
                break
            if read.kind is ReadKind.COPY and read.into is not None and read.made[0].bytes:
                part = self.used(read.made[0])
                # The mask has the itemsize of the copy's readers, which may see another type.
                _mark(used, read.region, itemsize, _view(part, read.into) if part.numel() * read.into.itemsize == read.made[0].bytes else None)
            else:
                _mark(used, read.region, itemsize, None)
        return used


def _view(mask: torch.Tensor, region: Region) -> torch.Tensor:
    return mask.as_strided(region.shape, region.strides, region.offset)


def _mark(used: torch.Tensor, region: Region, itemsize: int, part: torch.Tensor | None) -> None:
    """Marks a region, or the elements of it that a mask of its shape has."""
    last = region.offset + sum((extent - 1) * stride for extent, stride in zip(region.shape, region.strides, strict=True))
    if region.numel == 0:
        return
    if region.itemsize != itemsize or last >= used.numel():
        used.fill_(True)  # another type, or a resized storage: elements are not followed
        return
    if part is None:
        part = torch.ones((), dtype=torch.bool).expand(region.shape)
    for dim, (extent, stride) in enumerate(zip(region.shape, region.strides, strict=True)):
        if stride == 0 and extent > 1:
            part = part.any(dim, keepdim=True)
            region = Region(region.offset, (*region.shape[:dim], 1, *region.shape[dim + 1 :]), region.strides, itemsize)
    _view(used, region).logical_or_(part)
