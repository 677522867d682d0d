"""Findings about time and work: late calls, unbalanced exchanges, and products that all ranks compute."""

from collections.abc import Iterator, Sequence

from reshard._finding import Finding, FindingKind
from reshard._refusals import counted

from reshard.torch.flow import Product
from reshard.torch.waste import Exchange, Found, Trace, exchange, size_of_regions
from reshard.torch.waste_reductions import SMALL_BYTES
from reshard.torch.where import Axes, Caller, Pass, Where

# The share of all products below which a replicated one is not reported.
_SHARE = 20


def late(trace: Trace) -> Iterator[Found]:
    """Finds calls of the program that could have been in flight during a product.

    Products ran between the op that made the operand and the call, and none between the call and the first
    use of its result. Only calls of the program's own lines, outside of backward, of operands that were
    computed while the audit ran.
    """
    products = [product.time for product in trace.flow.products]
    for one in trace.open():
        if one.caller is not Caller.PROGRAM or one.redistribution is not None or one.where.during is Pass.BACKWARD:
            continue
        ready = max((content.time for content, _ in one.call.inputs), default=-1)
        if ready < 0 or size_of_regions(one.call.inputs) < SMALL_BYTES or not one.received_bytes:
            continue
        hidden = [time for time in products if ready < time < one.call.time]
        used = min((read.time for content, _ in one.call.outputs for read in content.reads), default=None)
        if not hidden or used is None:
            continue
        if not one.call.traffic.is_blocking and any(one.call.time < time < used for time in products):
            continue
        yield Found(
            FindingKind.POSTED_LATE,
            f"{one.kind} over {trace.over(one)} of an operand that was ready {counted(len(hidden), 'product')} before",
            "work = dist.all_reduce(x, group=group, async_op=True)  # where x is ready\n...\nwork.wait()  # where it is used",
            [one],
            [0],
            [exchange(one)],
        )


def unbalanced(trace: Trace) -> Iterator[Found]:
    """Finds exchanges in which one sender sends this rank twice the mean of the senders or more."""
    for one in trace.open():
        made = one.call.traffic
        # A plan has balanced its exchange as far as the shardings allow.
        if made.by_sender is None or len(made.members) < 3 or one.redistribution is not None:
            continue
        senders = len(made.members) - 1
        most, total = max(made.by_sender), sum(made.by_sender)
        if not total or most * senders < 2 * total:
            continue
        rank = made.members[made.by_sender.index(most)]
        yield Found(
            FindingKind.UNBALANCED,
            f"{one.kind} over {trace.over(one)}: rank {rank} sends {most:,} of {total:,} B, {senders} senders would send {-(-total // senders):,} B each",
            "give ranks equal parts; where several have the same data, let each send a part of it",
            [one],
            [0],
            [Exchange(made.kind, made.members, most * len(made.members))],
            [Exchange(made.kind, made.members, total * len(made.members) // senders)],
        )


def replicated(work: Sequence[tuple[Product, Where]], axes: Axes) -> Iterator[tuple[int, Finding]]:
    """Yields the products that all ranks of an axis compute from the same operands, a twentieth of all or more."""
    total = sum(product.operations for product, _ in work)
    by: dict[tuple[tuple[int, ...], str | None, tuple[str, int] | None, Pass], list[tuple[Product, Where]]] = {}
    for product, where in work:
        for members in product.replicated:
            by.setdefault((members, where.module, where.line, where.during), []).append((product, where))
    for (members, *_), same in by.items():
        operations = sum(product.operations for product, _ in same)
        if len(members) < 2 or operations * _SHARE < total:
            continue
        where = same[0][1]
        yield same[0][0].time, Finding(
            FindingKind.REPLICATED_WORK,
            f"all {counted(len(members), 'rank')} over {axes.name(members)} compute the same product, {operations:,} of {total:,} operations",
            'parallelize_module(module, mesh, ColwiseParallel())  # or shard an operand: distribute_tensor(w, mesh, [Shard(0)])',
            0,
            None,
            operations // len(members) * (len(members) - 1),
            where.module,
            where.line,
        )
