"""Partial norms by plans: powers are summed by the plan's one reduction, and the root is taken once."""

import math

import torch

from reshard import Plan, Sharding

from reshard.torch.execute import Executor
from reshard.torch.groups import Groups
from reshard.torch.specs import exponent_of, norm_notation
from reshard.torch.version import DTensorSpec


def norm_reduced(current: DTensorSpec, target: DTensorSpec) -> float | None:
    """Returns the exponent of the norm that a redistribution reduces; None if it reduces none."""
    for before, after in zip(current.placements, target.placements, strict=True):
        exponent = exponent_of(before)
        if exponent is not None and before != after:
            return exponent
    return None


def as_powers(of: Sharding, exponent: float) -> Sharding:
    """Returns the sharding of the powers: partial norms become partial sums, or maxima for the exponent infinity."""
    op = "P(max)" if math.isinf(exponent) else "P(sum)"
    return Sharding(of.mesh, of.shape, str(of).replace(norm_notation(exponent), op))


class NormExecutor(Executor):
    """The calls of this rank for a plan of powers, between the power and the root.

    A collective has sums and no norms. Roots on each axis would be as many reductions as axes.
    """

    __slots__ = ("exponent",)

    def __init__(self, plan: Plan, rank: int, groups: Groups, dtype: torch.dtype, exponent: float) -> None:
        super().__init__(plan, rank, groups, dtype)
        self.exponent = exponent

    def __call__(self, source: torch.Tensor, *, async_op: bool = False) -> torch.Tensor:
        """Returns this rank's shard after the plan; never an unwaited tensor, because the root follows the last call."""
        powers = source.abs()
        if math.isinf(self.exponent):
            return super().__call__(powers)
        return super().__call__(powers.pow(self.exponent)).pow(1 / self.exponent)
