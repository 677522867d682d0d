"""Conversion of meshes, placements, shardings and types between PyTorch and this library."""

import math
from functools import lru_cache
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from reshard import Mesh, NotRepresentable, ReshardError, Sharding

from reshard.torch.version import DTensorSpec, Part, ShardOrderEntry, _NormPartial, _StridedShard, TensorMeta, _disable_current_modes, problem, require, split_factor

# The reduce ops of partial values: PyTorch's names, and this library's.
REDUCE_OPS = {"sum": "sum", "avg": "avg", "product": "prod", "min": "min", "max": "max"}
OURS_TO_TORCH = {ours: theirs for theirs, ours in REDUCE_OPS.items()}
# A norm of this library is this text and its exponent.
_NORM = "norm"


@lru_cache(maxsize=1024)
def mesh(device_mesh: DeviceMesh) -> Mesh:
    """Converts a `DeviceMesh`, with its ranks in their order.

    Its dims become axes, with their names or as `d0`, `d1`, ..

    >>> str(mesh(init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))))
    'dp=2,tp=4'
    """
    with _disable_current_modes():
        ranks = [int(rank) for rank in device_mesh.mesh.flatten().tolist()]
    sizes = tuple(device_mesh.shape)
    names = device_mesh.mesh_dim_names or ()
    try:
        return Mesh.from_ranks(list(zip(names, sizes, strict=True)), ranks)
    except ValueError:
        # Without names, or with names that are invalid here, dims are numbered.
        return Mesh.from_ranks([(f"d{dim}", size) for dim, size in enumerate(sizes)], ranks)


def placement(of: Placement) -> str:
    """Returns a placement in this library's notation; raises `NotRepresentable` if there is none."""
    if type(of) is Replicate:
        return "R"
    if type(of) is Shard:
        return f"S({of.dim})"
    if type(of) is _StridedShard:
        return f"SS({of.dim},{split_factor(of)})"
    if type(of) is Partial and of.reduce_op in REDUCE_OPS:
        return f"P({REDUCE_OPS[of.reduce_op]})"
    exponent = exponent_of(of)
    # The notation has exponents from 0.001 to 65, with three decimals.
    if exponent is not None and (math.isinf(exponent) or round(exponent, 3) == exponent) and not exponent < 0.001 and (exponent <= 65 or exponent == math.inf):
        return norm_notation(exponent)
    raise NotRepresentable(f"the PyTorch placement {of} has no notation here")


def exponent_of(of: Placement) -> float | None:
    """Returns the exponent of partial norms; None for other placements."""
    return float(of.norm_type) if type(of) is _NormPartial and problem(Part.NORMS) is None else None


def norm_notation(exponent: float) -> str:
    """Returns partial norms in this library's notation.

    >>> norm_notation(2.0)
    'P(norm2)'
    """
    return f"P({_NORM}{int(exponent) if exponent.is_integer() else repr(exponent)})"


def norm_exponent(op: str) -> float | None:
    """Returns the exponent of a reduce op of this library; None if it is not a norm."""
    return float(op.removeprefix(_NORM)) if op.startswith(_NORM) else None


def placements(of: Any) -> str:
    """Returns placements in this library's notation, one for each dim of the device mesh."""
    return ",".join(map(placement, of))


def sharding(of: DTensor | DTensorSpec) -> Sharding:
    """Returns the sharding of a DTensor, or the one that a spec describes.

    A shard order is an order of axes. Strided shards are converted to the order that their factors encode, as
    PyTorch's own redistribution interprets them. If they encode none, or the spec requires it, they become
    repeated splits.

    Errors: `NotRepresentable` for placements without a notation here, `ReshardError` for a spec without a
    shape, or with a symbolic one.
    """
    require()
    described: DTensorSpec = of._spec if isinstance(of, DTensor) else of
    if described.tensor_meta is None:
        raise ReshardError("the spec has no tensor_meta, so the shape of the tensor is not known")
    shape = tuple(described.tensor_meta.shape)
    if not all(type(extent) is int for extent in shape):
        raise ReshardError(f"the shape {shape} is symbolic, but shardings need sizes")
    text = placements(described.placements)
    over = mesh(described.mesh)
    if any(type(one) is _StridedShard for one in described.placements):
        if described.use_strided_shard_as_shard_order:
            try:
                return Sharding.with_axis_order(over, shape, text)
            except ReshardError as error:
                if error.kind != "not_expressible":
                    raise
    elif not DTensorSpec.is_default_device_order(described.shard_order):
        # A dim does not depend on another dim's order, so the concatenated orders of all dims are one order
        # of all axes.
        order = [over.names[axis] for entry in described.shard_order for axis in entry.mesh_dims]
        text += f" order={{{','.join(order)}}}"
    return Sharding(over, shape, text)


def spec(of: Sharding, device_mesh: DeviceMesh, meta: TensorMeta | None = None, *, dtype: torch.dtype | None = None) -> DTensorSpec:
    """Returns the spec of a sharding on a device mesh: the inverse of `sharding`.

    The device mesh has the ranks of the sharding's mesh, axis by axis; names may differ. Instead of `meta`,
    which PyTorch stores with specs, an element type is enough.

    Errors: `ReshardError` if the meshes or the shapes differ; `NotRepresentable` for shardings without
    PyTorch placements.
    """
    require()
    over = mesh(device_mesh)
    if (over.shape, over.ranks) != (of.mesh.shape, of.mesh.ranks):
        raise ReshardError(f"the sharding is on the mesh {of.mesh}, but the device mesh is {over}; both need the same ranks, axis by axis")
    if meta is None:
        meta = TensorMeta(torch.Size(of.shape), contiguous_strides(of.shape), dtype or torch.get_default_dtype())
    elif tuple(meta.shape) != of.shape:
        raise ReshardError(f"the sharding is for the shape {list(of.shape)}, but the meta has {list(meta.shape)}")
    order = str(of).partition(" order=")[2]
    made = torch_placements(of)
    strided = any(type(one) is _StridedShard for one in made)
    if strided and order:
        raise NotRepresentable(f"{of} has no PyTorch placements: strided shards in an order of axes")
    if not order:
        return DTensorSpec(device_mesh, made, tensor_meta=meta, use_strided_shard_as_shard_order=False)
    axes = [of.mesh.axis(name) for name in order.strip("{}").split(",")]
    by_dim: dict[int, list[int]] = {}
    for axis in axes:
        by_dim.setdefault(made[axis].dim, []).append(axis)
    entries = tuple(ShardOrderEntry(tensor_dim=dim, mesh_dims=tuple(by_dim[dim])) for dim in sorted(by_dim))
    return DTensorSpec(device_mesh, made, tensor_meta=meta, shard_order=entries)


def torch_placements(of: Sharding) -> tuple[Any, ...]:
    """Returns the placements of a sharding, one for each axis, without its order of axes.

    Errors: `NotRepresentable` for shardings without PyTorch placements.
    """
    try:
        return tuple(_of_notation(word) for word in words(str(of).partition(" order=")[0]))
    except ValueError:
        raise NotRepresentable(f"{of} has no PyTorch placements") from None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides of a contiguous tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def words(text: str) -> list[str]:
    """Splits a notation into its placements; commas within parentheses belong to a placement."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    return words


def _of_notation(word: str) -> Any:
    """Converts one placement of the notation to PyTorch; raises ValueError if PyTorch has none."""
    head, _, inner = word.rstrip(")").partition("(")
    if head == "R" and not inner:
        return Replicate()
    if head == "S":
        return Shard(int(inner))
    if head == "SS":
        dim, factor = inner.split(",")
        return _StridedShard(int(dim), split_factor=int(factor))
    if head == "P" and inner in OURS_TO_TORCH:
        return Partial(OURS_TO_TORCH[inner])
    if head == "P" and (exponent := norm_exponent(inner)) is not None and problem(Part.NORMS) is None:
        return _NormPartial(int(exponent) if exponent.is_integer() else exponent)
    raise ValueError(word)
