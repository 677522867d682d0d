"""Execution of plans by PyTorch: each call is a strided view, a functional collective, and a strided view.

A plan thereby runs on any backend, device and stream that has the collective, and is traced like other
PyTorch code.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.compiler.config as config
import torch.distributed as dist

from reshard import Plan, Planner, RankCall, ReshardError, View
from reshard._refusals import counted

from reshard.torch.groups import Groups
from reshard.torch.lost import lost
from reshard.torch.memory import resolved
from reshard.torch.specs import norm_exponent
from reshard.torch.version import _are_we_tracing, _maybe_wrap_tensor

_Step = Callable[[torch.Tensor], torch.Tensor]

# The types that every backend sends as they are. Other types are sent as integers of their width, or as
# bytes.
_MOVED = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64}
_BY_WIDTH = {1: torch.uint8, 2: torch.uint8, 4: torch.int32, 8: torch.int64, 16: torch.int64}
TORCH_OPS = {"sum": "sum", "prod": "product", "min": "min", "max": "max"}


def default_planner() -> Planner:
    """Returns the planner that is used by default: reductions use PyTorch's own arithmetic."""
    return Planner(arithmetic="framework")


def is_for_all_ranks() -> bool:
    """Returns True while one rank traces a graph that all ranks will run, without rank-specific values."""
    # All PyTorch versions that `planned` supports have this setting.
    return bool(getattr(config, "compile_on_one_rank", False)) and bool(_are_we_tracing())


class Executor:
    """The calls of this rank for one plan, and the shape of the result."""

    __slots__ = ("calls", "communicates", "dtype", "kinds", "plan", "received_bytes", "shape", "source_len", "steps", "_ends_open", "_keeps_shape", "_may_share")

    def __init__(self, plan: Plan, rank: int, groups: Groups, dtype: torch.dtype) -> None:
        self.plan, self.dtype = plan, dtype
        self.calls = plan.calls(rank, groups.offers, dtype)
        before, after = plan.from_, plan.to
        self.source_len = before.local_numel(rank) if rank in before.mesh else 0
        self.shape = after.local_shape(rank) if rank in after.mesh else (0,)
        # DTensor's in-place ops leave outdated specs: after `squeeze_` the shard has fewer dims than its
        # spec. Like PyTorch, a plan that preserves shapes takes the shard's shape and not the spec's.
        self._keeps_shape = rank in before.mesh and rank in after.mesh and tuple(before.local_shape(rank)) == tuple(self.shape)
        calls = [self.calls[i] for i in range(len(self.calls))]
        self.kinds = [call.kind for call in calls if call.kind != "local"]
        self.communicates = bool(self.kinds)
        item = dtype.itemsize
        self.received_bytes = sum(_received(call, rank) for call in calls) * item
        self.steps = [_step(call, groups, dtype, rank) for call in calls]
        # A view of the source, and the source of a rank that participates without data, share the source's
        # memory.
        self._may_share = bool(calls) and (calls[-1].kind == "local" or calls[-1].is_idle)
        # The last wait can be left to the caller if nothing is unpacked after it.
        self._ends_open = bool(calls) and calls[-1].kind not in ("local", "messages") and _wire(dtype)[0] is None and _is_plain(calls[-1])

    def __call__(self, source: torch.Tensor, *, async_op: bool = False) -> torch.Tensor:
        """Returns this rank's shard after the plan; a new tensor unless the plan is empty."""
        if is_for_all_ranks():
            raise ReshardError(f"rank {self.calls.rank} compiles for all ranks, but these calls are for one rank; turn torch.compiler.config.compile_on_one_rank off")
        self.check(source)
        source = resolved(source)
        shape = source.shape if self._keeps_shape else self.shape
        if not self.steps:
            return source.view(shape) if source.is_contiguous() else source.contiguous().view(shape)
        flat = source.contiguous().view(-1)
        last = len(self.steps) - 1
        for i, step in enumerate(self.steps):
            try:
                flat = step(flat, i == last and async_op and self._ends_open)
            except RuntimeError as error:
                call = self.calls[i]
                if call.kind == "local":
                    raise
                raise lost(error, f"{call.kind} of {self.plan.from_} -> {self.plan.to}", self.members(call), call.step) from error
        return self.apart(flat, source).view(shape)

    def check(self, source: torch.Tensor) -> None:
        """Rejects a tensor that does not have the number of elements of this rank's shard."""
        if source.numel() != self.source_len:
            raise ReshardError(
                f"rank {self.calls.rank} has {counted(source.numel(), 'element')}, but its shard of {self.plan.from_} of shape "
                f"{list(self.plan.from_.shape)} has {self.source_len}"
            )

    def apart(self, made: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Returns the result of the steps in memory that it does not share with the source."""
        # In inference mode and below dispatch, PyTorch does not report which tensors are views.
        shares = self._may_share and made.untyped_storage()._cdata == source.untyped_storage()._cdata
        return made.clone() if shares else made

    def members(self, call: RankCall) -> list[int]:
        """Returns the ranks that participate in a call."""
        return call.group[1] if call.group is not None else sorted({*self.plan.from_.mesh.ranks, *self.plan.to.mesh.ranks})


def _received(call: RankCall, rank: int) -> int:
    """Returns the elements that other ranks send to this one; for a reduction, the minimum possible."""
    if call.kind == "local":
        return 0
    if call.kind in ("all_to_all", "messages"):
        return sum(count for peer, count in call.receives if peer != rank)
    assert call.group is not None
    members = len(call.group[1])
    if call.kind == "all_gather":
        return call.packed_len * (members - 1)
    share = call.packed_len // members * (members - 1)
    return share if call.kind == "reduce_scatter" else 2 * share


def _wire(dtype: torch.dtype) -> tuple[torch.dtype | None, int]:
    """Returns the type in which elements are sent, None for their own, and how many of it are one element."""
    if dtype in _MOVED:
        return None, 1
    wire = _BY_WIDTH[dtype.itemsize]
    return wire, dtype.itemsize // wire.itemsize


def _is_plain(call: RankCall) -> bool:
    """Returns True if the received buffer is the target buffer, without a copy."""
    return call.combine is None and call.fill is None and call.divisor == 1 and _permutation(call.unpack, call.target_len) is _IDENTITY


_IDENTITY: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def _permutation(views: Sequence[View], length: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the extents and the dim order of a permutation that unpacks a buffer; None for other views."""
    if len(views) != 1 or views[0].offset != 0 or len(views[0]) != length:
        return None
    loops = views[0].loops
    order = sorted(range(len(loops)), key=lambda at: -loops[at][1])
    step = 1
    for at in reversed(order):
        if loops[at][1] != step:
            return None
        step *= loops[at][0]
    if order == list(range(len(loops))):
        return _IDENTITY
    return tuple(extent for extent, _ in loops), tuple(order)


# The shape, the strides and the offset of a strided view, and the dims to flip.
_Place = tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]


def _place(view: View) -> _Place:
    """Converts a view to PyTorch's form, whose strides are not negative."""
    offset, strides, flipped = view.offset, [], []
    for dim, (extent, stride) in enumerate(view.loops):
        if stride < 0:
            offset += (extent - 1) * stride
            flipped.append(dim)
        strides.append(abs(stride))
    return view.shape or (1,), tuple(strides) or (1,), offset, tuple(flipped)


def packer(call: RankCall) -> _Step:
    """Returns a function that packs the views of a flat buffer contiguously, or returns the buffer."""
    views = call.pack

    def narrowed(offset: int, length: int) -> _Step:
        return lambda flat: flat.narrow(0, offset, length)

    def strided(place: _Place) -> _Step:
        shape, strides, offset, flipped = place
        if flipped:
            return lambda flat: flat.as_strided(shape, strides, flat.storage_offset() + offset).flip(flipped).reshape(-1)
        # The reshape of one strided dim is a view; a message needs a contiguous buffer.
        return lambda flat: flat.as_strided(shape, strides, flat.storage_offset() + offset).reshape(-1).contiguous()

    def one(view: View) -> _Step:
        if len(view) == 0:
            return narrowed(0, 0)
        if view.strides in ((), (1,)):
            return narrowed(view.offset, len(view))
        return strided(_place(view))

    if not views:
        return narrowed(0, 0)
    if _permutation(views, call.source_len) is _IDENTITY:
        return lambda flat: flat
    if len(views) == 1:
        return one(views[0])
    parts = [one(view) for view in views]
    return lambda flat: torch.cat([part(flat) for part in parts])


def _identity(op: str, dtype: torch.dtype) -> float | int | bool:
    """Returns the identity of an op."""
    if op == "sum" or norm_exponent(op) is not None:
        return 0
    if op == "prod":
        return 1
    if dtype.is_floating_point:
        return float("-inf") if op == "max" else float("inf")
    if dtype == torch.bool:
        return op == "min"
    info = torch.iinfo(dtype)
    return info.min if op == "max" else info.max


def _combined(op: str, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    if op == "sum":
        return old + new
    if op == "prod":
        return old * new
    if op == "min":
        return torch.minimum(old, new)
    if op == "max":
        return torch.maximum(old, new)
    exponent = norm_exponent(op)
    if exponent == float("inf"):
        return torch.maximum(old.abs(), new.abs())
    if exponent is not None:
        return (old.abs().pow(exponent) + new.abs().pow(exponent)).pow(1 / exponent)
    raise ReshardError(f"PyTorch has no reduction for partial values of {op}")


def unpacker(call: RankCall, dtype: torch.dtype) -> _Step:
    """Returns a function that unpacks the received elements into the buffer after a call."""
    length, divisor, fill = call.target_len, call.divisor, call.fill
    permuted = _permutation(call.unpack, length) if call.combine is None and fill is None else None
    if permuted is _IDENTITY:
        landed: _Step = lambda received: received
    elif permuted is not None:
        extents, order = permuted
        landed = lambda received: received.view(extents).permute(order).reshape(-1)
    else:
        start, places = 0, []
        for view in call.unpack:
            places.append((_place(view), start, len(view)))
            start += len(view)
        if call.combine is None:
            terms, op = [(0, 0, len(places))], None
        else:
            op, terms = call.combine
            # Each partial value has its own begin in the received buffer.
        by_term = []
        for begin, first, behind in terms:
            at, of_term = begin, []
            for place, _, size in places[first:behind]:
                of_term.append((*place, at, size))
                at += size
            by_term.append(of_term)
        identity = None if fill is None else _identity(fill, dtype)

        def landed(received: torch.Tensor) -> torch.Tensor:
            target = received.new_empty(length) if identity is None else received.new_full((length,), identity)
            for number, of_term in enumerate(by_term):
                for shape, strides, offset, flipped, begin, size in of_term:
                    place = target.as_strided(shape, strides, offset)
                    new = received.narrow(0, begin, size).view(shape)
                    if flipped:
                        new = new.flip(flipped)
                    overwrites = op is None or (number == 0 and identity is None)
                    place.copy_(new if overwrites else _combined(str(op), place, new))
            return target

    if divisor == 1:
        return landed
    return lambda received: landed(received) / divisor


def _step(call: RankCall, groups: Groups, dtype: torch.dtype, rank: int) -> Callable[[torch.Tensor, bool], torch.Tensor]:
    """Returns one call as a function of the buffer before it; the result may be a part of that buffer."""
    pack, unpack = packer(call), unpacker(call, dtype)
    if call.kind == "local":
        return lambda flat, is_open: unpack(pack(flat))
    ops = torch.ops._c10d_functional
    wire, factor = _wire(dtype)
    if call.kind == "messages":
        run = _messages(call, rank, factor)
    else:
        assert call.group is not None
        name, members = groups.name(call.group[1]), len(call.group[1])
        if call.kind == "all_gather":
            run = lambda packed: ops.all_gather_into_tensor(packed, members, name)
        elif call.kind == "all_to_all":
            sends = [count * factor for _, count in call.sends]
            receives = [count * factor for _, count in call.receives]
            run = lambda packed: ops.all_to_all_single(packed, receives, sends, name)
        else:
            op = TORCH_OPS[str(call.op)]
            wire = None
            if dtype.is_complex:
                if op != "sum":
                    raise ReshardError(f"partial values of {dtype} cannot be reduced by {op}")
                # Complex sums are computed on real and imaginary parts.
                wire = torch.float32 if dtype == torch.complex64 else torch.float64
            if call.kind == "all_reduce":
                run = lambda packed: ops.all_reduce(packed, op, name)
            else:
                run = lambda packed: ops.reduce_scatter_tensor(packed, op, members, name)
    attends, is_waited = call.is_idle, call.kind != "messages"

    def exchange(flat: torch.Tensor, is_open: bool) -> torch.Tensor:
        packed = pack(flat)
        received = run(packed if wire is None else packed.view(wire))
        if is_open:
            return _maybe_wrap_tensor(received)
        if is_waited:
            received = ops.wait_tensor(received)
        if attends:
            return flat
        return unpack(received if wire is None else received.view(dtype))

    return exchange


def _messages(call: RankCall, rank: int, factor: int) -> _Step:
    """Returns a function that sends messages of the default group, all posted before the first wait."""
    sends = [(peer, count * factor) for peer, count in call.sends]
    receives = [(peer, count * factor) for peer, count in call.receives]
    total = sum(count for _, count in receives)

    def run(packed: torch.Tensor) -> torch.Tensor:
        received = packed.new_empty(total)
        into, of = received.split([count for _, count in receives]), packed.split([count for _, count in sends])
        operations: list[Any] = []
        for (peer, count), part in zip(receives, into, strict=True):
            if peer == rank:
                part.copy_(of[[other for other, _ in sends].index(rank)])
            elif count:
                operations.append(dist.P2POp(dist.irecv, part, peer))
        for (peer, count), part in zip(sends, of, strict=True):
            if peer != rank and count:
                operations.append(dist.P2POp(dist.isend, part, peer))
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        return received

    return run
