"""Conversion of meshes, shardings and types between JAX and this library.

The rank of a device is its position in the mesh's flat list of devices. A mesh axis that is `unreduced` in a
spec holds partial values, `P(sum)`. One that is `reduced` has replicas with partial gradients. Any other axis
that a spec leaves out has replicas with replicated gradients, `I`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from jax.sharding import Mesh as DeviceMesh

import reshard
from reshard import Mesh, ReshardError, Sharding, ShardingType
from reshard._refusals import counted, refused

AnyMesh = Any  # jax.sharding.Mesh or AbstractMesh


def mesh(of: AnyMesh, devices: Sequence[Any] | None = None) -> Mesh:
    """Returns the axes of a JAX mesh over ranks 0, 1, 2 .. of its devices, or over positions in `devices`."""
    if not isinstance(of, (DeviceMesh, AbstractMesh)):
        raise TypeError(f"expected a mesh of JAX, found {type(of).__name__}")
    for name in of.axis_names:
        if not isinstance(name, str):
            raise refused("mesh", f"the name of the mesh axis {name!r} is not a str; name all axes by strs")
    axes = [(name, int(size)) for name, size in of.shape.items()]
    if not axes:
        raise refused("mesh", "the mesh has no axes: make one with jax.make_mesh, or enter it with jax.set_mesh")
    if devices is None:
        return Mesh(dict(axes))
    places = {device: place for place, device in enumerate(devices)}
    flat = list(of.devices.flat)
    missing = [device for device in flat if device not in places]
    if missing:
        raise refused("mesh", f"the mesh has the device {missing[0]}, which is not one of the {counted(len(places), 'device')} that number the ranks")
    return Mesh.from_ranks(axes, [places[device] for device in flat])


def device_mesh(of: Mesh | str, devices: Sequence[Any] | None = None, axis_types: Sequence[Any] | None = None) -> DeviceMesh:
    """Returns a JAX mesh with these axes, all Explicit; rank r is `devices[r]`, by default of all devices."""
    of = Mesh(of)
    listed = list(jax.devices() if devices is None else devices)
    if of.world_size > len(listed):
        raise refused("mesh", f"the mesh {of} has the rank {of.world_size - 1}, but there are only {counted(len(listed), 'device')}")
    placed = np.empty(len(of), dtype=object)
    placed[:] = [listed[rank] for rank in of.ranks]
    types = tuple(axis_types or [AxisType.Explicit] * len(of.names))
    return DeviceMesh(placed.reshape(of.shape), of.names, axis_types=types)


def _named(of: Any) -> tuple[AnyMesh, PartitionSpec]:
    """Returns the mesh and the spec of a NamedSharding, or of an object that has one."""
    of = of if isinstance(of, jax.sharding.Sharding) else getattr(of, "sharding", of)
    if not isinstance(of, NamedSharding):
        raise refused("sharding", f"{type(of).__name__} names no axes of a mesh: put the array on one with jax.device_put first")
    return of.mesh, of.spec


def _by_tensor(said: PartitionSpec, dims: int, partial: frozenset[str]) -> str:
    """Returns a spec in the notation by tensor dims, with these axes unreduced."""
    if len(said.partitions) > dims:
        raise refused("sharding", f"{said} has {counted(len(said.partitions), 'dim')}, but the tensor has {dims}")
    words = []
    for at in range(dims):
        entry = said.partitions[at] if at < len(said.partitions) else None
        if entry is PartitionSpec.UNCONSTRAINED:
            raise refused("sharding", f"{said} leaves dim {at} unconstrained, so its sharding is not known; name its axes, or give None")
        names = () if entry is None else entry if isinstance(entry, tuple) else (entry,)
        words.append("{" + ",".join(str(name) for name in names) + "}")
    terms = " unreduced={" + ",".join(sorted(partial)) + "}" if partial else ""
    return f"[{','.join(words)}]{terms}"


def _even(placed: Sharding, said: object) -> Sharding:
    if placed.common_local_shape is None:
        raise refused("uneven", f"{said} splits a dim of {list(placed.shape)} unevenly, which JAX arrays do not support; pad the dim")
    return placed


def sharding(of: Any, shape: Sequence[int] | None = None, on: Mesh | None = None) -> Sharding:
    """Converts a NamedSharding, or that of an array or a type; `on` may give the converted mesh."""
    shape = of.shape if shape is None else shape
    axes, said = _named(of)
    text = _by_tensor(said, len(shape), said.unreduced)
    return _even(Sharding(mesh(axes) if on is None else on, tuple(shape), text), said)


def typed(of: Any, shape: Sequence[int] | None = None) -> ShardingType:
    """Returns the shardings of a value and of its gradient, with `unreduced` and `reduced` axes included."""
    shape = of.shape if shape is None else shape
    axes, said = _named(of)
    value = sharding(NamedSharding(axes, said), shape)
    # As text: along axes of one rank types differ where shardings are the same.
    return ShardingType(value.mesh, value.shape, f"{_by_tensor(said, len(shape), said.unreduced)} reduced={{{','.join(sorted(said.reduced))}}}")


def named(of: Sharding | ShardingType, on: AnyMesh) -> NamedSharding:
    """Converts a sharding or a type to JAX, on a mesh that has the same axes."""
    axes = (of.value if isinstance(of, ShardingType) else of).mesh.axes
    if dict(mesh(on).axes) != dict(axes):
        raise refused("mesh", f"{of} has the axes {axes}, but the mesh of JAX has {mesh(on).axes}")
    return NamedSharding(on, spec(of))


def spec(of: Sharding | ShardingType) -> PartitionSpec:
    """Returns the spec of a sharding or a type, evaluated from the library's notation."""
    partial = (of.value if isinstance(of, ShardingType) else of).partial
    if any(op != "sum" for op in partial.values()):
        raise refused("sharding", f"{of} has partial values of {', '.join(sorted(set(partial.values())))}, but JAX has only sums")
    made: PartitionSpec = eval(of.to_partition_spec(), {"__builtins__": {}, "PartitionSpec": PartitionSpec})
    return made


def other_way(of: PartitionSpec) -> PartitionSpec:
    """Returns the spec of the gradient: `unreduced` and `reduced` axes are swapped."""
    return PartitionSpec(*of.partitions, unreduced=of.reduced, reduced=of.unreduced)


def dtype(of: Any) -> reshard.DType:
    """Converts an element type; an unknown one to unsigned integers of its width, for transfers only."""
    try:
        return reshard.DType(np.dtype(of))
    except (ReshardError, TypeError):
        size = getattr(of, "itemsize", None)
        if size not in (1, 2, 4, 8):
            raise refused("dtype", f"elements of {of} cannot be redistributed; give the array of their data") from None
        return reshard.DType(f"u{8 * size}")
