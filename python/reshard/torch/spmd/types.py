"""Conversion of types between spmd_types and this library.

| spmd_types | value | gradient | here |
|---|---|---|---|
| `R` | replicas | partial values | `R` |
| `I` | replicas | replicas | `I` |
| `P` | partial values | replicas | `P` |
| `V`, and a dim of the `PartitionSpec` | shards | shards | `S(d)` |
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from spmd_types import I, MeshAxis, P, PartitionSpec, R, S, SpmdType, V, normalize_axis
from torch.distributed.device_mesh import DeviceMesh

import reshard
from reshard import Mesh, Sharding, ShardingType
from reshard._refusals import counted, refused

from reshard.torch.specs import mesh


def spmd_type(of: Sharding | ShardingType) -> tuple[dict[str, Any], PartitionSpec]:
    """Returns spmd_types' local types by axis name, and the `PartitionSpec` of the axes that are `V`.

    If several axes shard one dim, the spec has them outermost first. The type of a sharding is the one whose
    replicas are `R`. Without a gradient, replicas are `R` too.

    >>> spmd_type(ShardingType("dp=2,tp=4", (64, 32), "S(0),I"))
    ({'dp': V, 'tp': I}, PartitionSpec('dp', None))

    Errors: `NotRepresentable`, with the axis, for shards that are not chunks of a dim, for partial values of
    another op than the sum, and for a gradient that no type of spmd_types has.
    """
    value = of if isinstance(of, Sharding) else of.value
    entries = _entries(value)
    gradient = _natural(value) if isinstance(of, Sharding) else of.gradient
    dims = {axis: dim for dim, axes in enumerate(entries) for axis in axes}
    if gradient is not None:
        theirs = _entries(gradient)
        for axis in value.mesh.names:
            of_one = [[axis in axes and axes for axes in one] for one in (entries, theirs)]
            if of_one[0] != of_one[1] or (axis in value.partial and axis in gradient.partial):
                raise _unknown(axis, f"the gradient of {of} is {gradient}, and no type has such a gradient")
    partial = {} if gradient is None else gradient.partial
    types = {}
    for axis in value.mesh.names:
        if axis in dims:
            types[axis] = V
        elif axis in value.partial:
            types[axis] = P
        else:
            types[axis] = R if gradient is None or axis in partial else I
    return types, PartitionSpec(*(None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in entries))


def sharding_type(over: Mesh | str | DeviceMesh, shape: Sequence[int], types: Any, partition_spec: PartitionSpec | None = None) -> ShardingType:
    """Returns the type of a tensor of this shape that has these local types: the inverse of `spmd_type`.

    `types` has a type for each axis of the mesh: `R`, `I`, `P`, `S(d)`, or `V` with a dim in `partition_spec`;
    axes of one rank may be missing. Axes are names, `MeshAxis` or process groups. It can be an `SpmdType`.

    >>> str(sharding_type("dp=2,tp=4", (64, 32), {"dp": V, "tp": I}, PartitionSpec("dp", None)))
    'S(0),I'

    Errors: `NotRepresentable`, with the axis, for `V` without a dim; `ReshardError` of the kind `placement`
    for an axis without a type, for an unknown axis, and for several axes of one dim without their order.
    """
    ranks = _mesh(over)
    if isinstance(types, SpmdType):
        if partition_spec is not None:
            raise refused("placement", "an SpmdType has a partition_spec already; give one of the two")
        types, partition_spec = types.local_type, types.partition_spec
    by_axis = _by_name(ranks, types)
    entries = _named_entries(ranks, shape, partition_spec)
    dims = {axis: dim for dim, axes in enumerate(entries) for axis in axes}
    values: list[str] = []
    gradients: list[str] = []
    for axis, size in zip(ranks.names, ranks.shape, strict=True):
        one = by_axis.get(axis, R if size == 1 else None)
        if axis in dims and one not in (None, V):
            raise refused("placement", f"{axis} shards dim {dims[axis]} in the partition_spec, but its type is {one!r}; give V")
        if one is None and axis not in dims:
            raise refused("placement", f"there is no type along {axis}; give one of R, I, P and S(d)")
        if isinstance(one, S):
            dim = one.dim + len(shape) if one.dim < 0 else one.dim
            if not 0 <= dim < len(shape):
                raise refused("placement", f"{one!r} along {axis} is outside a tensor of {counted(len(shape), 'dim')}")
            entries[dim].append(axis)
            if len(entries[dim]) > 1:
                raise refused("placement", f"{' and '.join(entries[dim])} shard dim {dim}, in no order; give a partition_spec with their order")
            values.append(f"S({dim})")
        elif axis in dims:
            values.append(f"S({dims[axis]})")
        elif one is V:
            raise _unknown(axis, "V has no dim; give S(d), or a dim of the partition_spec")
        else:
            values.append("P" if one is P else "R")
        gradients.append(values[-1] if axis in dims or isinstance(one, S) else "P" if one is R else "R")
    # The order of the mesh is the default, and needs no words.
    several = any(len(axes) > 1 for axes in entries)
    order = f" order={{{','.join(axis for axes in entries for axis in axes)}}}" if several else ""
    # As text: along axes of one rank types differ where shardings are the same.
    value, gradient = (f"({','.join(words)}{order})" for words in (values, gradients))
    return ShardingType(ranks, tuple(shape), f"{value}|{gradient}")


def written(type: ShardingType) -> SpmdType:
    """Returns a type as that of spmd_types, with its axes instead of names."""
    types, spec = spmd_type(type)
    axes = axes_of(type.value.mesh)
    entries = (entry if entry is None else tuple(axes[axis] for axis in ((entry,) if isinstance(entry, str) else entry)) for entry in spec)
    return SpmdType({axes[axis]: one for axis, one in types.items()}, PartitionSpec(*entries))


def whole_shape(ranks: Mesh, shape: Sequence[int], types: Any) -> tuple[int, ...]:
    """Returns the shape of the tensor of which each rank has a shard of this shape."""
    sizes = dict(zip(ranks.names, ranks.shape, strict=True))
    # The dims that each axis shards are those of any shape; this one has no uneven shards.
    _, spec = spmd_type(sharding_type(ranks, [len(ranks.ranks)] * len(shape), types))
    whole = list(shape)
    for dim, entry in enumerate(spec):
        for axis in () if entry is None else (entry,) if isinstance(entry, str) else entry:
            whole[dim] *= sizes[axis]
    return tuple(whole)


@lru_cache(maxsize=256)
def axes_of(over: Mesh) -> dict[str, MeshAxis]:
    """Returns the axes of a mesh as those of spmd_types, by name."""
    found: dict[str, MeshAxis] = {}
    for at, name in enumerate(over.names):
        step = 1
        for size in over.shape[at + 1 :]:
            step *= size
        members = [over.ranks[step * i] for i in range(over.shape[at])]
        strides = {b - a for a, b in zip(members, members[1:])} or {1}
        if len(strides) > 1:
            raise _unknown(name, f"the ranks {members} have no common distance")
        found[name] = MeshAxis.of(len(members), strides.pop())
    return found


def _mesh(over: Mesh | str | DeviceMesh) -> Mesh:
    return mesh(over) if isinstance(over, DeviceMesh) else Mesh(over)


def _natural(value: Sharding) -> Sharding:
    """Returns the gradient's sharding for a value whose replicas do different work."""
    gradient = ShardingType.from_value(value).gradient
    assert gradient is not None
    return gradient


def _entries(of: Sharding) -> list[list[str]]:
    """Returns the axes that shard each dim, outermost first."""
    for axis, op in of.partial.items():
        if op != "sum":
            raise _unknown(axis, f"P({op}) is not a sum")
    names = of.mesh.names
    placements = dict(zip(names, of.placements, strict=True))
    # A strided shard is an order of axes, or else no type.
    chunks = [reshard.R(), reshard.P(), *map(reshard.S, range(len(of.shape)))]
    other = [axis for axis, one in placements.items() if one not in chunks] or list(names)
    try:
        text = of.to_dims_notation()
    except reshard.ReshardError as error:
        raise _unknown(other[0], f"{placements[other[0]]} is not a chunk of a dim") from error
    entries = [[axis for axis in dim.split(",") if axis] for dim in re.findall(r"\{([^{}]*)\}", text[: text.index("]")])]
    if not all(axis in names for axes in entries for axis in axes):
        raise _unknown(other[0], f"{placements[other[0]]} is not a chunk of a dim")
    return entries


def _by_name(ranks: Mesh, types: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns types by the names of axes."""
    found: dict[str, Any] = {}
    for axis, one in types.items():
        if one not in (R, I, P, V) and not isinstance(one, S):
            raise TypeError(f"expected R, I, P, V or S(d) along {axis}, found {one!r}")
        name = name_of(ranks, axis)
        if found.setdefault(name, one) != one:
            raise refused("placement", f"{name} has the types {found[name]!r} and {one!r}; give one")
    return found


def _named_entries(ranks: Mesh, shape: Sequence[int], spec: PartitionSpec | None) -> list[list[str]]:
    """Returns the axes of each dim of a spec, outermost first."""
    if spec is not None and len(spec) > len(shape):
        raise refused("placement", f"{spec} has {counted(len(spec), 'dim')}, but the tensor has {len(shape)}")
    entries: list[list[str]] = [[] for _ in shape]
    for dim, entry in enumerate(spec or ()):
        for axis in () if entry is None else entry if isinstance(entry, tuple) else (entry,):
            entries[dim].append(name_of(ranks, axis))
    every = [axis for axes in entries for axis in axes]
    for axis in every:
        if every.count(axis) > 1:
            raise refused("placement", f"{axis} is {every.count(axis)} times in {spec}; give it once")
    return entries


def name_of(ranks: Mesh, axis: Any) -> str:
    """Returns the name of an axis, which is given by its name, or as spmd_types does."""
    if isinstance(axis, str):
        if axis in ranks.names:
            return axis
    else:
        theirs = normalize_axis(axis)
        for name, one in axes_of(ranks).items():
            if one == theirs:
                return name
    raise refused("placement", f"{axis} is not an axis of the mesh {ranks}; expected one of: {', '.join(ranks.names)}")


def _unknown(axis: str, reason: str) -> reshard.NotRepresentable:
    return reshard.NotRepresentable(f"along {axis}: {reason}")
