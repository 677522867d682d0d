"""Types of a module's parameters and inputs: from a checked program to spmd_types, and back."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from spmd_types import SpmdType, assert_type, get_local_type, get_partition_spec, has_local_type
from torch.distributed.device_mesh import DeviceMesh

from reshard import Mesh, ShardingType
from reshard._refusals import counted, refused

from reshard.torch.check import CheckReport
from reshard.torch.traced import name_of as value_name
from reshard.torch.contract import first_names
from reshard.torch.specs import mesh
from reshard.torch.spmd.types import sharding_type, whole_shape, written


def assert_types(checked: CheckReport, module: torch.nn.Module, inputs: Sequence[torch.Tensor] = ()) -> None:
    """Asserts the types of a checked program for a module's parameters and buffers, and for its inputs.

    The module has the names of the one that was checked, and a rank's shards; so have `inputs`, one for each
    tensor that `forward` takes. Without `inputs` only the module gets types. Under `typecheck()` it is then
    checked while it runs.

    Errors: `ReshardError` for a tensor that is not an input of the program, and for one that is not a shard
    of its type; spmd_types' error for a tensor that has another type already.
    """
    program = checked.program
    names = set(program.inputs)
    first = first_names(module)
    own = {value_name(first.get(name, name)): tensor for name, tensor in _own(module).items()}
    # All are compared before any gets a type.
    found: list[tuple[torch.Tensor, SpmdType]] = []
    for name, tensor in own.items():
        if name not in names:
            raise refused("program", f"{name} is not an input of the program; give the module that was checked, with shards")
        found.append((tensor, _type(checked, name, tensor)))
    given = [name for name in program.inputs if name not in own and name not in checked.constants]
    if inputs and len(inputs) != len(given):
        raise refused("program", f"the program has {counted(len(given), 'input')}, {', '.join(given)}, but got {counted(len(inputs), 'tensor')}")
    found.extend((tensor, _type(checked, name, tensor)) for name, tensor in zip(given, inputs, strict=bool(inputs)))
    for tensor, type in found:
        assert_type(tensor, type)


def typed(module: torch.nn.Module, inputs: Sequence[torch.Tensor], over: Mesh | str | DeviceMesh) -> dict[str, str]:
    """Returns the types that spmd_types has for a module's parameters, buffers and inputs, as `placements`.

    They are those of `assert_type`; tensors without a type are left out. `reshard.torch.check` of the whole
    module with these placements reports its communication.

    >>> check(whole, [x], "dp=2,tp=2", typed(module, [local], "dp=2,tp=2"), gradient=True)

    Errors: `NotRepresentable`, with the axis, for a tensor that is `V` without a dim.
    """
    ranks = mesh(over) if isinstance(over, DeviceMesh) else Mesh(over)
    parameters = inspect.signature(module.forward).parameters
    tensors: dict[str, Any] = {**_own(module), **dict(zip(parameters, inputs))}
    found = {}
    for name, tensor in tensors.items():
        if has_local_type(tensor):
            type = SpmdType(dict(get_local_type(tensor)), get_partition_spec(tensor))
            found[name] = str(sharding_type(ranks, whole_shape(ranks, tensor.shape, type), type))
    return found


def _own(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns parameters and buffers by name; a tensor with several names by each, as programs have it."""
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}


def _type(checked: CheckReport, name: str, tensor: torch.Tensor) -> SpmdType:
    """Returns the type of a value of the program, of which a tensor is a shard."""
    value = checked.program[name]
    sharding = value.sharding
    shapes = {sharding.local_shape(rank) for rank in sharding.mesh.ranks}
    if tuple(tensor.shape) not in shapes:
        raise refused("shape", f"{name} has the shape {list(tensor.shape)}, but shards of {sharding} of {list(sharding.shape)} have {' or '.join(map(str, map(list, sorted(shapes))))}")
    return written(ShardingType.of(sharding, value.gradient))
