"""Redistribution between types of spmd_types: all axes of a mesh by one plan, and its transpose backward."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from spmd_types import SpmdType, assert_type
from torch.distributed.device_mesh import DeviceMesh

from reshard import Planner, Sharding, ShardingType
from reshard._refusals import refused

from reshard.torch.execute import Executor, default_planner
from reshard.torch.groups import groups_of, plan_within
from reshard.torch.specs import mesh
from reshard.torch.spmd.types import sharding_type, whole_shape, written


def redistribute(
    x: torch.Tensor, over: DeviceMesh, *, src: Any, dst: Any, shape: Sequence[int] | None = None, planner: Planner | None = None
) -> torch.Tensor:
    """Returns this rank's tensor of the type `dst`, given that of `src`: every rank of the mesh calls it.

    A type has `R`, `I`, `P` or `S(d)` for each axis of the mesh; it is a mapping, or an `SpmdType` if several
    axes shard one dim. On a mesh of one axis it can be that one alone. The plan is that of the whole
    transition, and backward that of the gradients' types: `R` has a gradient `P`, `P` one that is `R`. It is
    differentiable any number of times. `shape` is that of the whole tensor; without it, all shards are equal.
    Under `typecheck()` the type of `x` is checked, and the result has the type `dst`.

    >>> y = redistribute(x, mesh, src={"dp": S(0), "tp": P}, dst={"dp": R, "tp": S(0)})

    Errors: `NotRepresentable`, with the axis, for `V`, which has no dim; `ReshardError` for an axis without a
    type, and for a tensor that is not this rank's shard.
    """
    ranks = mesh(over)
    src, dst = (_by_axis(over, one) for one in (src, dst))
    whole = whole_shape(ranks, x.shape, src) if shape is None else tuple(shape)
    change = Transition(over, sharding_type(ranks, whole, src), sharding_type(ranks, whole, dst), planner or default_planner())
    expected = change.before.value.local_shape(dist.get_rank())
    if tuple(x.shape) != expected:
        raise refused("shape", f"x has the shape {list(x.shape)}, but this rank's shard of {change.before.value} of {list(whole)} has {list(expected)}")
    made: torch.Tensor = _Redistribute.apply(x, change)
    return made


@dataclass(frozen=True)
class Transition:
    """A transition between two types on a device mesh."""

    over: DeviceMesh
    before: ShardingType
    after: ShardingType
    planner: Planner

    def transposed(self) -> "Transition":
        """Returns the transition of the gradient."""
        before, after = self.after.gradient_type(), self.before.gradient_type()
        assert before is not None and after is not None, "types of spmd_types have gradients"
        return Transition(self.over, before, after, self.planner)

    def executor(self, dtype: torch.dtype) -> Executor:
        """Returns this rank's calls."""
        return _executor(self.over, self.before.value, self.after.value, dtype, self.planner, id(dist.group.WORLD))


@lru_cache(maxsize=4096)
def _executor(over: DeviceMesh, before: Sharding, after: Sharding, dtype: torch.dtype, planner: Planner, world: int) -> Executor:
    groups = groups_of(over)
    plan = plan_within(groups, planner, before, after, dtype) or planner.plan(before, after, dtype)
    return Executor(plan, dist.get_rank(), groups, dtype)


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, change: Transition) -> torch.Tensor:
        ctx.change = change
        made = change.executor(x.dtype)(x)
        # An empty plan returns its input, which autograd would take for a write to it.
        return made.view_as(made) if made is x else made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Redistribute.apply(gradient, ctx.change.transposed()), None

    # spmd_types calls it after `forward`, by the names of its arguments.
    @staticmethod
    def spmd_typecheck(outputs: torch.Tensor, *, x: torch.Tensor, change: Transition) -> None:
        assert_type(x, written(change.before))
        assert_type(outputs, written(change.after))


def _by_axis(over: DeviceMesh, type: Any) -> Any:
    """Returns a type by axis, if it is given as that of the only one."""
    names = mesh(over).names
    if isinstance(type, SpmdType) or hasattr(type, "items"):
        return type
    if len(names) != 1:
        raise refused("placement", f"the mesh {mesh(over)} has the axes {', '.join(names)}, but the type is {type!r}; give one for each, as a mapping")
    return {names[0]: type}
