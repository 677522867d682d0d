"""Plans that run from device to device, outside of any trace: without an SPMD program, or to another mesh.

Each rank has a separate list of calls. A block is packed on the device that has it, put on the device that
needs it, and unpacked there. Exactly the bytes of the plan's messages are sent.
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from reshard import FrameworkGroups, Plan, Planner, RankCall, View
from reshard._refusals import refused
from reshard.jax import strided
from reshard.jax.specs import dtype, mesh, sharding
from reshard.jax.traced import combined, identity


def across(x: Any, source: NamedSharding, target: NamedSharding, planner: Planner) -> Any:
    """Redistributes an array to a sharding that may have another mesh and other devices."""
    if isinstance(x, jax.core.Tracer):
        raise refused("trace", "an array cannot be sent between devices inside a trace; call this outside of jit and grad")
    if not x.is_fully_addressable or not target.is_fully_addressable:
        raise refused("process", "some devices belong to another process; only arrays of a single process can be sent between devices")
    devices = list(source.mesh.devices.flat)
    devices += [device for device in target.mesh.devices.flat if device not in set(devices)]
    from_ = sharding(source, x.shape, mesh(source.mesh, devices))
    to = sharding(target, x.shape, mesh(target.mesh, devices))
    plan = planner.plan(from_, to, dtype(x.dtype))
    held = {shard.device: shard.data for shard in x.addressable_shards}
    moved = run(plan, [held.get(device) for device in devices], devices)
    shards = [moved[devices.index(device)] for device in target.mesh.devices.flat]
    return jax.make_array_from_single_device_arrays(tuple(x.shape), target, shards)


def run(plan: Plan, shards: Sequence[Any], devices: Sequence[Any]) -> list[Any]:
    """Runs a plan, where shard `r` is on device `r`; None stands for the shard of a rank without one."""
    first = next(shard for shard in shards if shard is not None)
    buffers: dict[int, Any] = {}
    left: dict[int, deque[RankCall]] = {}
    for rank in plan.ranks:
        held = shards[rank]
        # A rank without a shard begins with an empty buffer.
        buffers[rank] = jax.device_put(jnp.zeros(0, first.dtype), devices[rank]) if held is None else jnp.reshape(held, -1)
        calls = plan.calls(rank, FrameworkGroups())
        left[rank] = deque(calls[number] for number in range(len(calls)))
    sent: dict[int, Any] = {}
    mail: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
    while any(left.values()):
        moved = False
        for rank in plan.ranks:
            if not left[rank]:
                continue
            call = left[rank][0]
            if rank not in sent:
                sent[rank] = packed = _packed(buffers[rank], tuple(call.pack))
                begin = 0
                for peer, count in call.sends:
                    mail[rank, peer].append(jax.device_put(packed[begin : begin + count], devices[peer]))
                    begin += count
            if call.kind == "local":
                received = sent[rank]
            elif all(mail[peer, rank] for peer, _ in call.receives):
                came = [mail[peer, rank].popleft() for peer, _ in call.receives]
                received = jnp.concatenate(came) if came else buffers[rank][:0]
            else:
                continue
            del sent[rank]
            left[rank].popleft()
            moved = True
            if not call.is_idle:
                buffers[rank] = _landed(received, call)
        if not moved:
            raise refused("calls", f"ranks wait for each other forever in {plan.from_} -> {plan.to}")
    return [
        buffers[rank].reshape(plan.to.local_shape(rank)) if rank in plan.to.mesh else None
        for rank in range(len(devices))
    ]


@functools.partial(jax.jit, static_argnums=1)
def _packed(buffer: Any, views: tuple[View, ...]) -> Any:
    parts = [strided.read(buffer, view.loops, view.offset, [view.offset]) for view in views]
    return jnp.concatenate(parts) if parts else buffer[:0]


def _landed(received: Any, call: RankCall) -> Any:
    terms = None if call.combine is None else (call.combine[0], tuple(call.combine[1]))
    return _unpacked(received, tuple(call.unpack), terms, call.fill, call.divisor, call.target_len)


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4, 5))
def _unpacked(
    received: Any,
    views: tuple[View, ...],
    terms: tuple[str, tuple[tuple[int, int, int], ...]] | None,
    fill: str | None,
    divisor: int,
    target_len: int,
) -> Any:
    value = np.zeros((), received.dtype) if fill is None else identity(fill, received.dtype)
    target = lax.full((target_len,), value, received.dtype)
    op, listed = terms if terms is not None else (None, ((0, 0, len(views)),))
    for number, (begin, first, last) in enumerate(listed):
        for view in views[first:last]:
            new = received[begin : begin + len(view)]
            begin += len(view)
            # The first partial value overwrites the target, unless the call fills it with an identity first.
            if op is not None and (number > 0 or fill is not None):
                new = combined(op)(strided.read(target, view.loops, view.offset, [view.offset]), new)
            target = strided.write(target, view.loops, view.offset, new)
    return target if divisor == 1 else target / jnp.asarray(divisor, target.dtype)
