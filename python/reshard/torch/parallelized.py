"""A module after `parallelize_module` and `fully_shard`, as a plain module and the types of its parameters."""

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from reshard._refusals import refused

from reshard.torch.specs import mesh, placement, sharding, words


def device_mesh_of(tensors: list[torch.Tensor]) -> DeviceMesh | None:
    """Returns the root mesh of the DTensors, or None if there is none. Errors: several root meshes."""
    # Equal meshes may be different objects: PyTorch caches specs with the first one.
    roots = list(dict.fromkeys(one.device_mesh._get_root_mesh() for one in tensors if isinstance(one, DTensor)))
    if len(roots) > 1:
        raise refused("mesh", f"the tensors are on several root meshes ({', '.join(str(mesh(root)) for root in roots)}); make them of one, as slices")
    return next(iter(roots), None)


def type_of(name: str, tensor: torch.Tensor | None, root: DeviceMesh | None, replicated: str, axes: int) -> str:
    """Returns the type of a tensor on the root mesh; a DTensor is replicated along the dims that its mesh lacks.

    Along dims of one rank its placements are used, because a sharding is the same with any. `replicated` is the type of a replicated axis: `I` for parameters, whose gradients are reduced, `R` for inputs.
    """
    if root is None or not isinstance(tensor, DTensor):
        return ",".join([replicated] * axes)
    own = tensor.device_mesh
    text, order, of_order = str(sharding(tensor)).partition(" order=")
    kept = [placement(one) if size == 1 else word for one, size, word in zip(tensor.placements, own.shape, words(text), strict=True)]
    if order:
        # The order lists all axes that shard.
        also = [axis for axis, size, word in zip(mesh(own).names, own.shape, kept, strict=True) if size == 1 and word.startswith("S")]
        of_order = f"{{{','.join([of_order.strip('{}'), *also])}}}"
    of_own = [replicated if word == "R" else word for word in kept]
    if own == root:
        return ",".join(of_own) + order + of_order
    names, of_root = own.mesh_dim_names or (), root.mesh_dim_names or ()
    if not names or not set(names) <= set(of_root):
        raise refused("mesh", f"{name} is on the mesh {mesh(own)}, whose dims are not those of its root mesh {mesh(root)}; name the dims of both")
    known = dict(zip(names, of_own, strict=True))
    return ",".join(known.get(axis, replicated) for axis in of_root) + order + of_order


def plain(module: torch.nn.Module, known: dict[int, Any] | None = None) -> torch.nn.Module:
    """Returns a copy of a module without hooks, in which each DTensor is a plain tensor of the whole shape on the CPU.

    Elements of parameters that were DTensors are unspecified; `fully_shard`'s classes are the user's again. Other tensors
    are shared with the module.
    """
    known = {} if known is None else known
    if id(module) in known:
        made: torch.nn.Module = known[id(module)]
        return made
    # FSDP puts its class before the user's.
    users = next(one for one in type(module).__mro__ if not issubclass(one, FSDPModule))
    made = object.__new__(users)
    known[id(module)] = made
    made.__dict__.update(module.__dict__)
    for name, value in module.__dict__.items():
        if "hooks" in name and isinstance(value, dict):
            made.__dict__[name] = type(value)()
    made.__dict__["_parameters"] = {name: _plain_tensor(one, known) for name, one in module._parameters.items()}
    made.__dict__["_buffers"] = {name: _plain_tensor(one, known) for name, one in module._buffers.items()}
    made.__dict__["_modules"] = {name: None if one is None else plain(one, known) for name, one in module._modules.items()}
    return made


def _plain_tensor(tensor: torch.Tensor | None, known: dict[int, Any]) -> torch.Tensor | None:
    """Returns a tensor of the whole shape; a tensor that modules share stays shared."""
    if not isinstance(tensor, DTensor):
        return tensor
    if id(tensor) not in known:
        # Pages that nothing writes take no memory.
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        known[id(tensor)] = torch.nn.Parameter(whole, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else whole
    return known[id(tensor)]


def plain_input(tensor: torch.Tensor) -> torch.Tensor:
    """Returns an input as a plain tensor of the whole shape, whose elements are 0 if it is a DTensor."""
    return torch.zeros(tensor.shape, dtype=tensor.dtype) if isinstance(tensor, DTensor) else tensor
