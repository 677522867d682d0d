"""Redistribution of DTensors, differentiable any number of times, also from one device mesh to another."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.distributed.tensor.placement_types import Shard

from reshard import Planner
from reshard._refusals import counted, refused

from reshard.torch.execute import Executor, default_planner
from reshard.torch.groups import groups_of, plan_within
from reshard.torch.memory import check_is_there
from reshard.torch.specs import contiguous_strides, exponent_of, sharding
from reshard.torch.version import DTensorSpec, _StridedShard, TensorMeta, is_from_local, usable


def redistribute(
    x: DTensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, planner: Planner | None = None
) -> DTensor:
    """Redistributes a DTensor to other placements, on the same device mesh or on another.

    An omitted argument stays as it is; on another device mesh the default is that every rank has the whole
    tensor. It is differentiable, also twice. Every rank of both meshes calls it, and its backward pass. A
    rank that is not in the other mesh has an empty shard there.

    As in DTensor, the gradient of a DTensor is that of the whole tensor, also for partial values of any op.

    With a PyTorch that is not supported, it is PyTorch's own redistribution, after a warning.

    Errors: `ReshardError` for a redistribution that cannot be planned; one of the kind `no_gradient` for
    `DTensor.from_local` of a tensor that requires a gradient, if its partial values are not sums.
    """
    if not isinstance(x, DTensor):
        raise TypeError(f"expected a DTensor, found {type(x).__name__}")
    if not usable():
        return x.redistribute(device_mesh, placements)
    _check_local_gradient(x)
    made = _Redistribute.apply(x, target(x, device_mesh, placements), planner or default_planner())
    return made


def _check_local_gradient(x: DTensor) -> None:
    """Rejects partial values from `from_local` whose gradient is not that of the whole tensor."""
    other = next((one for one in x.placements if isinstance(one, Partial) and (one.reduce_op != "sum" or exponent_of(one) is not None)), None)
    # The gradient of the DTensor is right, and ops such as `mean` and `amax` pass it on from there. But
    # PyTorch's `from_local` returns it as the gradient of each local value. Graphs of the compiler have no
    # nodes to examine.
    if other is None or torch.compiler.is_compiling() or not torch.is_grad_enabled() or not is_from_local(x):
        return
    what = "divide it by the number of ranks and use Partial()" if other.reduce_op == "avg" else "detach it"
    raise refused(
        "no_gradient",
        f"the local tensor of this DTensor requires a gradient, but DTensor.from_local returns that of the whole tensor for each partial value, "
        f"which is not the derivative for {other}; {what}",
    )


def target(x: DTensor, device_mesh: DeviceMesh | None, placements: Sequence[Placement] | None) -> DTensorSpec:
    """Returns the spec of a DTensor after the given changes of its device mesh and its placements."""
    onto = device_mesh or x.device_mesh
    if placements is None:
        placements = x.placements if onto == x.device_mesh else [Replicate()] * onto.ndim
    if len(placements) != onto.ndim:
        raise refused("placement_count", f"the device mesh has {counted(onto.ndim, 'dim')}, but got {counted(len(placements), 'placement')}; give one for each dim")
    wanted = tuple(_normal(one, x.ndim) for one in placements)
    return placed(DTensorSpec(onto, wanted), wanted, x)


def _normal(one: Placement, ndim: int) -> Placement:
    """Returns the placement with a nonnegative dim."""
    if isinstance(one, Shard | _StridedShard):
        if not -ndim <= one.dim < ndim:
            raise refused("placement", f"{one} is outside a tensor of {counted(ndim, 'dim')}")
        if one.dim < 0:
            return Shard(one.dim + ndim) if isinstance(one, Shard) else _StridedShard(one.dim + ndim, split_factor=one.split_factor)
    return one


@lru_cache(maxsize=4096)
def executor(before: DTensorSpec, after: DTensorSpec, dtype: torch.dtype, planner: Planner, world: int) -> Executor:
    groups = groups_of(before.mesh) if before.mesh == after.mesh else groups_of(before.mesh, after.mesh)
    given, wanted = sharding(before), sharding(after)
    plan = plan_within(groups, planner, given, wanted, dtype) or planner.plan(given, wanted, dtype)
    return Executor(plan, dist.get_rank(), groups, dtype)


def moved(local: torch.Tensor, before: DTensorSpec, after: DTensorSpec, planner: Planner) -> torch.Tensor:
    """Returns the local tensor of `after`, given that of `before`."""
    if not (before.mesh._is_current_rank_part_of_mesh() or after.mesh._is_current_rank_part_of_mesh()):
        return local.new_empty(0)
    return executor(before, after, local.dtype, planner, id(dist.group.WORLD))(local)


def placed(like: DTensorSpec, placements: tuple[Placement, ...], x: DTensor) -> DTensorSpec:
    """Returns the spec of a tensor like `x` with these placements, in the shard order of `like`."""
    meta = TensorMeta(x.shape, contiguous_strides(tuple(x.shape)), x.dtype)
    if like.use_strided_shard_as_shard_order or any(isinstance(one, _StridedShard) for one in placements):
        return DTensorSpec(like.mesh, placements, tensor_meta=meta, use_strided_shard_as_shard_order=like.use_strided_shard_as_shard_order)
    return DTensorSpec(like.mesh, placements, tensor_meta=meta, shard_order=like.shard_order)


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: DTensor, after: DTensorSpec, planner: Planner) -> DTensor:
        ctx.before, ctx.planner = x._spec, planner
        check_is_there("the shard of this rank", x._local_tensor)
        return DTensor(moved(x._local_tensor, x._spec, after, planner), after, requires_grad=x.requires_grad)

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> Any:
        # The gradient of the whole tensor, whatever op reduces the partial values: it is replicated for them.
        placements = tuple(Replicate() if one.is_partial() else one for one in ctx.before.placements)
        return _Redistribute.apply(gradient, placed(ctx.before, placements, gradient), ctx.planner), None, None
