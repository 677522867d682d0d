"""Redistribution of plain tensors between two shardings, and its gradient."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from reshard import Planner, ReshardError, Sharding, ShardingType
from reshard._refusals import refused

from reshard.torch.execute import Executor, default_planner
from reshard.torch.groups import Groups
from reshard.torch.memory import check_is_there, why_no_target


def redistribute_local(
    tensor: torch.Tensor, from_: Sharding, to: Sharding, *, groups: Groups, planner: Planner | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns this rank's shard of `to`, given its shard of `from_`: every rank of both meshes calls it.

    Ranks are those of the default group. `out`, contiguous and of the shard's shape, is filled if it is
    given. If no group of `groups` contains all ranks of an exchange, messages of the default group are sent.

    It is differentiable any number of times: the gradient of a replica is a partial value, and that of a
    partial value the one of the sum. Either all ranks require a gradient or none.

    Errors: `ReshardError` for a tensor that is not the rank's shard, and the planner's errors; one of the
    kind `no_gradient` if the tensor requires a gradient and has partial values of another op than the sum.
    """
    for name, given in (("the tensor", tensor), *([] if out is None else [("out", out)])):
        if not isinstance(given, torch.Tensor) or isinstance(given, DTensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(given).__qualname__}")
        check_is_there(name, given)
    change = _Change(from_, to, groups, planner or default_planner())
    if tensor.requires_grad and torch.is_grad_enabled():
        change.transposed()  # raise its error here, before any exchange
        made: torch.Tensor = _Redistribute.apply(tensor, change)
    else:
        made = change.run(tensor)
    if out is None:
        return made
    # Check `out` only after the exchange: other ranks would wait for this one otherwise.
    if out.shape != made.shape or out.dtype != tensor.dtype:
        raise ReshardError(f"out is {out.dtype}{list(out.shape)}, but the shard is {tensor.dtype}{list(made.shape)}")
    if (why := why_no_target(out)) is not None:
        raise refused(why.kind, f"out cannot be filled: {why}")
    return out.copy_(made)


@dataclass(frozen=True)
class _Change:
    """A redistribution of plain tensors."""

    before: Sharding
    after: Sharding
    groups: Groups
    planner: Planner

    def transposed(self) -> "_Change":
        """Returns the redistribution of the gradient; raises an error if partial values are not sums."""
        before, after = (ShardingType.from_value(one).gradient for one in (self.after, self.before))
        assert before is not None and after is not None, "such types have gradients"
        return _Change(before, after, self.groups, self.planner)

    def run(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns this rank's shard after the redistribution."""
        plan = self.planner.plan(self.before, self.after, tensor.dtype)
        executor = Executor(plan, dist.get_rank(), self.groups, tensor.dtype)
        return executor(tensor).view(executor.shape)


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, change: _Change) -> torch.Tensor:
        ctx.change = change
        made = change.run(tensor)
        # An empty plan returns its input, which autograd would take for a write to it.
        return made.view_as(made) if made is tensor else made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Redistribute.apply(gradient, ctx.change.transposed()), None
