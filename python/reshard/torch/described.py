"""Descriptions of the two sides of a weight transfer: each rank describes its tensors as JSON."""

import json
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial

from reshard import Mesh
from reshard._refusals import refused

from reshard.torch.layouts import local
from reshard.torch.memory import check_is_there, resolved, why_no_target
from reshard.torch.nested import entries
from reshard.torch.specs import mesh as mesh_of
from reshard.torch.specs import sharding

# The names of element types: those of safetensors, in lower case.
DTYPES = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.float8_e4m3fn: "f8_e4m3",
    torch.float8_e5m2: "f8_e5m2",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def tensors_of(state: Mapping[str, Any] | None) -> dict[str, torch.Tensor]:
    """Returns the tensors of a state, which may be nested, by the names of its entries; others are left out."""
    return {entry.name: entry.value for entry in entries(state or {}) if isinstance(entry.value, torch.Tensor)}


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the values that this rank has of a tensor, in memory as they are."""
    return resolved(local(tensor).detach())


def described(tensors: Mapping[str, torch.Tensor], target_mesh: Mesh | None, shift: int) -> str:
    """Returns the description of what this rank holds, as JSON.

    `target_mesh` is that of plain tensors of a target, which are buffers; plain tensors of a source have no mesh, and
    are whole on every rank that has them. `shift` is added to the ranks of device meshes.

    Errors: types without a name here, partial values, tensors without memory; targets that cannot be written.
    """
    found = []
    for name, tensor in tensors.items():
        held = local_of(tensor)
        check_is_there(name, held)
        if held.dtype not in DTYPES:
            raise refused("dtype", f"{name} is {held.dtype}, which is not among {', '.join(DTYPES.values())}")
        one: dict[str, Any] = {"name": name, "dtype": DTYPES[held.dtype]}
        if isinstance(tensor, DTensor):
            if dist.get_rank() not in mesh_of(tensor.device_mesh):
                continue
            if any(isinstance(placement, Partial) for placement in tensor.placements):
                raise refused("partial", f"{name} is {tensor.placements}; sum it first, with redistribute")
            one |= _placed(name, tensor, shift) | {"shape": list(tensor.shape)}
        elif target_mesh is not None:
            one |= {"mesh": str(target_mesh), "local_shape": list(tensor.shape)}
        else:
            one |= {"shape": list(tensor.shape), "placements": "R"}
        found.append(one)
    return json.dumps({"tensors": found})


def check_targets(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises an error for a target that cannot be written in place."""
    for name, tensor in tensors.items():
        of = local(tensor)
        if not of.is_contiguous():
            raise refused("strides", f"{name} has the strides {list(of.stride())}; a target must be contiguous")
        if error := why_no_target(of):
            raise refused(error.kind, f"{name} cannot be written: {error}")


def span(tensor: torch.Tensor) -> tuple[int, int, str]:
    """Returns the first and the last byte, plus one, of the memory that this rank has of a tensor, and its device."""
    held = local_of(tensor)
    if not held.numel():
        return 0, 0, str(held.device)
    last = sum((extent - 1) * stride for extent, stride in zip(held.shape, held.stride(), strict=True))
    return held.data_ptr(), held.data_ptr() + (last + 1) * held.itemsize, str(held.device)


def overlapping(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor] | None = None) -> list[tuple[str, str]]:
    """Returns the pairs of tensors that share memory: of one set, or of two sets."""
    both = [(span(tensor), name, 0) for name, tensor in first.items()] + [(span(tensor), name, 1) for name, tensor in (second or {}).items()]
    found: list[tuple[str, str]] = []
    before: list[tuple[int, str, str, int]] = []
    for (start, end, device), name, side in sorted((one for one in both if one[0][0] < one[0][1]), key=lambda one: (one[0][2], one[0][0])):
        before = [one for one in before if one[0] > start and one[1] == device]
        found += [(other, name) for _, _, other, of in before if second is None or of != side]
        before.append((end, device, name, side))
    return found


def _placed(name: str, tensor: DTensor, shift: int) -> dict[str, Any]:
    """Returns the mesh and the placements of a DTensor; one on a submesh is replicated over the root's other dims."""
    own, root = tensor.device_mesh, tensor.device_mesh._get_root_mesh()
    of = sharding(tensor)
    text, planned = str(of), list(of.local_shape(dist.get_rank()))
    if list(local(tensor).shape) != planned:
        raise refused("local_shape", f"{name} is {list(local(tensor).shape)} on this rank, and its placements {text} make {planned}")
    names, of_root = own.mesh_dim_names or (), root.mesh_dim_names or ()
    if own is root or not names or not set(names) <= set(of_root):
        return {"mesh": _shifted(mesh_of(own), shift), "placements": text}
    return {"mesh": _shifted(mesh_of(root), shift), "axes": list(names), "placements": text}


def _shifted(over: Mesh, shift: int) -> str:
    if not shift:
        return str(over)
    return str(Mesh.from_ranks(list(over.axes.items()), [rank + shift for rank in over.ranks]))


def joined(texts: Mapping[int, str]) -> list[tuple[int, str]]:
    """Returns the descriptions of ranks, with a mesh for the plain tensors of a source: of the ranks that have them."""
    read = {text: json.loads(text) for text in set(texts.values())}
    ranks: dict[str, list[int]] = {}
    for rank in sorted(texts):
        for one in read[texts[rank]]["tensors"]:
            if "mesh" not in one:
                ranks.setdefault(one["name"], []).append(rank)
    meshes = {name: str(Mesh.from_ranks([("rank", len(of))], of)) for name, of in ranks.items()}
    for side in read.values():
        for one in side["tensors"]:
            one.setdefault("mesh", meshes.get(one["name"]))
    written = {text: json.dumps(side) for text, side in read.items()}
    return [(rank, written[text]) for rank, text in sorted(texts.items())]
