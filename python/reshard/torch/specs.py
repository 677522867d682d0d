"""PyTorch's words and ours: meshes, placements, shardings, types, both ways."""

from functools import lru_cache
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._python_dispatch import _disable_current_modes

from reshard import Mesh, NotRepresentable, ReshardError, Sharding

# What PyTorch calls the ops of terms, and what they are called here.
REDUCE_OPS = {"sum": "sum", "avg": "avg", "product": "prod", "min": "min", "max": "max"}
OURS_TO_TORCH = {ours: theirs for theirs, ours in REDUCE_OPS.items()}


@lru_cache(maxsize=1024)
def mesh(device_mesh: DeviceMesh) -> Mesh:
    """The mesh of a `DeviceMesh`: its dims are axes, by their names or as `d0`, `d1`, .., over its ranks in any order.

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
        # Without names, or with names that ours do not allow: dims have numbers.
        return Mesh.from_ranks([(f"d{dim}", size) for dim, size in enumerate(sizes)], ranks)


def placement(of: Placement) -> str:
    """A placement in our notation; `NotRepresentable` for those that we have no word for, with a sentence that says which."""
    if type(of) is Replicate:
        return "R"
    if type(of) is Shard:
        return f"S({of.dim})"
    if type(of) is _StridedShard:
        return f"SS({of.dim},{of._split_factor_int()})"
    if type(of) is Partial and of.reduce_op in REDUCE_OPS:
        return f"P({REDUCE_OPS[of.reduce_op]})"
    raise NotRepresentable(f"{of} is a placement of PyTorch's that has no notation here")


def placements(of: Any) -> str:
    """Placements in our notation, one for each dim of the device mesh."""
    return ",".join(map(placement, of))


def sharding(of: DTensor | DTensorSpec) -> Sharding:
    """Who holds which elements of a DTensor, or of what a spec describes.

    A shard order is an order of axes. Strided shards are the order that their factors spell, as PyTorch's own redistribution reads
    them, and where they spell none, or the spec says so, pieces of pieces.

    Errors: `NotRepresentable` for placements without a notation here, `ReshardError` for a spec without a shape, or with one that is
    symbolic.
    """
    described: DTensorSpec = of._spec if isinstance(of, DTensor) else of
    if described.tensor_meta is None:
        raise ReshardError("the spec has no tensor_meta, so the shape of the tensor is not known")
    shape = tuple(described.tensor_meta.shape)
    if not all(type(extent) is int for extent in shape):
        raise ReshardError(f"the shape {shape} is symbolic, and shardings have sizes")
    text = placements(described.placements)
    over = mesh(described.mesh)
    if any(type(one) is _StridedShard for one in described.placements):
        if described.use_strided_shard_as_shard_order:
            try:
                return Sharding.in_order_of_axes(over, shape, text)
            except ReshardError as error:
                if error.kind != "not_expressible":
                    raise
    elif not DTensorSpec.is_default_device_order(described.shard_order):
        # Dims do not see each other's order, so one order of all axes is the dims' orders one behind the other.
        order = [over.names[axis] for entry in described.shard_order for axis in entry.mesh_dims]
        text += f" order={{{','.join(order)}}}"
    return Sharding(over, shape, text)


def spec(of: Sharding, device_mesh: DeviceMesh, meta: TensorMeta | None = None, *, dtype: torch.dtype | None = None) -> DTensorSpec:
    """The spec of a sharding on a device mesh: the other way of `sharding`.

    The device mesh has the ranks of the sharding's mesh, axis by axis; names may differ. Of `meta`, which PyTorch keeps with specs,
    a type of the elements is enough.

    Errors: `ReshardError` where the meshes differ, or the shape does; `NotRepresentable` for shardings that PyTorch has no placements for.
    """
    over = mesh(device_mesh)
    if (over.shape, over.ranks) != (of.mesh.shape, of.mesh.ranks):
        raise ReshardError(f"the sharding is on the mesh {of.mesh}, and the device mesh is {over}: both need the same ranks, axis by axis")
    if meta is None:
        meta = TensorMeta(torch.Size(of.shape), contiguous_strides(of.shape), dtype or torch.get_default_dtype())
    elif tuple(meta.shape) != of.shape:
        raise ReshardError(f"the sharding is of shape {list(of.shape)}, and the meta is of {list(meta.shape)}")
    text, _, order = str(of).partition(" order=")
    try:
        made = tuple(_of_notation(word) for word in _words(text))
    except ValueError:
        raise NotRepresentable(f"{of} has no placements of PyTorch's") from None
    strided = any(type(one) is _StridedShard for one in made)
    if strided and order:
        raise NotRepresentable(f"{of} has no placements of PyTorch's: strided shards in an order of axes")
    if not order:
        return DTensorSpec(device_mesh, made, tensor_meta=meta, use_strided_shard_as_shard_order=False)
    axes = [of.mesh.axis(name) for name in order.strip("{}").split(",")]
    by_dim: dict[int, list[int]] = {}
    for axis in axes:
        by_dim.setdefault(made[axis].dim, []).append(axis)
    entries = tuple(ShardOrderEntry(tensor_dim=dim, mesh_dims=tuple(by_dim[dim])) for dim in sorted(by_dim))
    return DTensorSpec(device_mesh, made, tensor_meta=meta, shard_order=entries)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _words(text: str) -> list[str]:
    """The placements of a notation, one each: commas within parentheses are the placement's."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    return words


def _of_notation(word: str) -> Any:
    """A placement of PyTorch's, from a word of our notation; ValueError where it has none."""
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
    raise ValueError(word)
