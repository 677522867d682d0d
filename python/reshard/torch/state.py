"""Redistribution of many DTensors at once: a bucket of tensors needs one call per group."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement

from reshard import Planner, RankCall
from reshard._refusals import refused

from reshard.torch.agreed import agree, ranks_of, tensors_on
from reshard.torch.execute import TORCH_OPS, Executor, default_planner, packer, unpacker
from reshard.torch.groups import Groups, groups_of
from reshard.torch.lost import lost
from reshard.torch.memory import check_is_there, resolved
from reshard.torch.nested import Entry, copied, entries
from reshard.torch.redistribute import executor, target
from reshard.torch.version import DTensorSpec, usable

Wanted = Sequence[Placement] | Callable[[str, DTensor], Sequence[Placement] | None]


def redistribute_state(
    state: Mapping[str, Any],
    placements: Wanted,
    device_mesh: DeviceMesh | None = None,
    *,
    max_bytes: int = 256 << 20,
    planner: Planner | None = None,
) -> dict[str, Any]:
    """Redistributes all DTensors of a state to other placements or another device mesh, with fused calls.

    The state may be nested; the result has the same nesting in new dicts and lists. Names are those of
    `torch.distributed.checkpoint`, such as `model.layers.0.w`: a tuple is one entry, and stays as it is.

    `placements` are those of all tensors, or a function of a name and a DTensor that returns None for a
    tensor that stays. Entries that are not DTensors stay. Tensors are redistributed in buckets: the calls of
    a bucket on one group are one call. The shards of a bucket have at most `max_bytes` in total on any rank,
    or are a single tensor's. The number of calls is as low as for a single tensor. It is not differentiable.
    All ranks give the same names in the same order. With a PyTorch that is not supported, each tensor is
    redistributed by PyTorch's own code, after a warning.

    Errors: as `redistribute`, with the name of the tensor; a `max_bytes` below 1; tensors without memory. An
    error of one rank is raised on all ranks of the device meshes, before any transfer.
    """
    if not usable():
        return _by_pytorch(state, placements, device_mesh)
    refusal: Exception | None = None
    made: dict[str, Any] = {}
    ready: list[_Ready] = []
    groups: list[list[int]] = []
    try:
        # If the state cannot be walked to its end, the ranks of the tensors found so far have to learn of the
        # error.
        for entry in entries(state):
            if isinstance(entry.value, DTensor):
                groups.append(ranks_of(entry.value.device_mesh, device_mesh))
        made, found = copied(state)
        tensors = [entry for entry in found if isinstance(entry.value, DTensor)]
        if max_bytes < 1:
            raise refused("max_bytes", f"max_bytes must be at least 1, not {max_bytes}")
        chosen = planner or default_planner()
        for entry in tensors:
            if (one := _ready(entry, placements, device_mesh, chosen)) is not None:
                ready.append(one)
    except Exception as error:
        refusal = error
    agree("redistributing a state", refusal, groups, tensors_on((one.entry.name, one.entry.value) for one in ready))
    bucket: list[_Moved] = []
    size = 0
    for one in ready:
        if one.executor is None:
            one.entry.put(DTensor(one.local.new_empty(0), one.after, requires_grad=False))
            continue
        bytes_of = one.executor.plan.max_shard_bytes
        if bucket and size + bytes_of > max_bytes:
            _run(bucket)
            bucket, size = [], 0
        moving = Moving(one.entry.name, one.executor, one.groups, one.local.contiguous().view(-1))
        bucket.append(_Moved(moving, one.after, one.entry))
        size += bytes_of
    _run(bucket)
    return made


def _by_pytorch(state: Mapping[str, Any], placements: Wanted, device_mesh: DeviceMesh | None) -> dict[str, Any]:
    """Redistributes a state by PyTorch's own code, one tensor at a time."""
    made, found = copied(state)
    for entry in found:
        if isinstance(entry.value, DTensor):
            wanted = placements(entry.name, entry.value) if callable(placements) else placements
            if wanted is not None:
                entry.put(entry.value.detach().redistribute(device_mesh, wanted))
    return made


@dataclass
class _Ready:
    """A tensor to redistribute, with an executor if this rank participates."""

    entry: Entry
    local: torch.Tensor
    after: DTensorSpec
    executor: Executor | None
    groups: Groups


def _ready(entry: Entry, placements: Wanted, device_mesh: DeviceMesh | None, planner: Planner) -> _Ready | None:
    """Prepares a DTensor of a state for its redistribution; returns None for one that stays."""
    name, tensor = entry.name, entry.value
    wanted = placements(name, tensor) if callable(placements) else placements
    if wanted is None:
        return None
    try:
        after, before = target(tensor, device_mesh, wanted), tensor._spec
        if before == after:
            return None
        local = resolved(tensor._local_tensor.detach())
        check_is_there("its shard on this rank", local)
        groups = groups_of(before.mesh) if before.mesh == after.mesh else groups_of(before.mesh, after.mesh)
        takes_part = any(one.mesh._is_current_rank_part_of_mesh() for one in (before, after))
        of = executor(before, after, local.dtype, planner, id(dist.group.WORLD)) if takes_part else None
        if of is not None:
            of.check(local)
    except ValueError as error:
        raise refused(getattr(error, "kind", "placements"), f"{name}: {error}") from error
    return _Ready(entry, local, after, of, groups)


@dataclass
class Moving:
    """A tensor during its redistribution."""

    name: str
    executor: Executor
    groups: Groups
    flat: torch.Tensor


@dataclass
class _Moved:
    """A tensor during its redistribution, and its spec after it."""

    moving: Moving
    after: DTensorSpec
    entry: Entry


def _run(bucket: list[_Moved]) -> None:
    """Runs the plans of a bucket."""
    with torch.no_grad():
        run_together([one.moving for one in bucket])
        for one in bucket:
            one.entry.put(DTensor(one.moving.flat.view(one.moving.executor.shape), one.after, requires_grad=False))


def run_together(bucket: Sequence[Moving]) -> None:
    """Runs plans with fused calls per group, in the order that is common to all ranks.

    Errors: an `EngineError` for a call that fails, with the failed ranks.
    """
    sources = [moving.flat for moving in bucket]
    waiting: dict[tuple[Any, ...], list[tuple[Moving, RankCall, int]]] = {}
    for moving in bucket:
        for key, call, at in _keys(moving):
            waiting.setdefault(key, []).append((moving, call, at))
    for key in sorted(waiting, key=lambda key: key[:4]):
        together = waiting[key]
        try:
            # Local calls and messages cannot be fused. Complex sums are excluded because they run on real
            # parts.
            if len(together) == 1 or key[3] in ("", "messages") or key[5].startswith("torch.complex"):
                for moving, _, at in together:
                    moving.flat = moving.executor.steps[at](moving.flat, False)
            else:
                _together([(moving, call) for moving, call, _ in together])
        except RuntimeError as error:
            if not key[3]:
                raise
            first = together[0][0]
            names = ", ".join(moving.name for moving, _, _ in together)
            raise lost(error, f"{key[3]} of {names}", first.executor.members(together[0][1]), key[0]) from error
    for moving, source in zip(bucket, sources, strict=True):
        moving.flat = moving.executor.apart(moving.flat, source) if moving.executor.steps else source.clone()


def _keys(moving: Moving) -> Iterator[tuple[tuple[Any, ...], RankCall, int]]:
    """Yields the calls of a tensor, each with a key that sorts equally on all ranks and selects fusions.

    In each phase of a step a rank has one call on a group, so the index of a group's call is the phase.
    """
    phases: dict[tuple[int, tuple[int, ...]], int] = {}
    offered = [members for _, members in moving.groups.offers.groups]
    for at, call in enumerate(moving.executor.calls[i] for i in range(len(moving.executor.calls))):
        members = tuple(call.group[1]) if call.group else ()
        phase = phases.get((call.step, members), 0)
        phases[(call.step, members)] = phase + 1
        place = offered.index(list(members)) if members else -1
        kind = "" if call.kind == "local" else call.kind
        dtype = str(moving.executor.dtype) if call.kind in ("all_reduce", "reduce_scatter") else ""
        yield (call.step, phase, place, kind, members, dtype, call.op or ""), call, at


def _together(calls: list[tuple[Moving, RankCall]]) -> None:
    """Fuses the calls of several tensors: of one kind, on one group; reductions also of one type and op."""
    ops = torch.ops._c10d_functional
    first, call = calls[0]
    assert call.group is not None
    name, members = first.groups.name(call.group[1]), len(call.group[1])
    packed = [packer(one)(moving.flat) for moving, one in calls]
    if call.kind not in ("all_reduce", "reduce_scatter"):
        packed = [part.contiguous().view(torch.uint8) for part in packed]
    sizes = [part.numel() for part in packed]
    if call.kind == "all_gather":
        received = ops.wait_tensor(ops.all_gather_into_tensor(torch.cat(packed), members, name))
        parts = [part.reshape(-1) for part in received.view(members, -1).split(sizes, 1)]
    elif call.kind == "all_reduce":
        received = ops.wait_tensor(ops.all_reduce(torch.cat(packed), TORCH_OPS[str(call.op)], name))
        parts = list(received.split(sizes))
    elif call.kind == "reduce_scatter":
        blocks = torch.cat([part.view(members, -1) for part in packed], 1).view(-1)
        received = ops.wait_tensor(ops.reduce_scatter_tensor(blocks, TORCH_OPS[str(call.op)], members, name))
        parts = list(received.split([size // members for size in sizes]))
    else:
        sends = [[count * moving.executor.dtype.itemsize for _, count in one.sends] for moving, one in calls]
        receives = [[count * moving.executor.dtype.itemsize for _, count in one.receives] for moving, one in calls]
        split = [part.split(counts) for part, counts in zip(packed, sends, strict=True)]
        blocks = torch.cat([of_tensor[peer] for peer in range(members) for of_tensor in split])
        to, from_ = [[sum(counts[peer] for counts in both) for peer in range(members)] for both in (sends, receives)]
        received = ops.wait_tensor(ops.all_to_all_single(blocks, from_, to, name))
        pieces = received.split([counts[peer] for peer in range(members) for counts in receives])
        parts = [torch.cat(pieces[number :: len(calls)]) for number in range(len(calls))]
    for (moving, one), part in zip(calls, parts, strict=True):
        if not one.is_idle:
            moving.flat = unpacker(one, moving.executor.dtype)(part.view(moving.executor.dtype) if part.dtype != moving.executor.dtype else part)
