"""Common parts of the tests of `reshard.jax`: meshes of virtual devices, specs of axes, samples of cases."""

import itertools
import os
from collections.abc import Sequence
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

Case = TypeVar("Case")


def device_mesh(sizes: dict[str, int], kind: AxisType = AxisType.Explicit) -> Mesh:
    """Returns a mesh of the first devices."""
    count = int(np.prod(list(sizes.values())))
    devices = np.array(jax.devices()[:count]).reshape(tuple(sizes.values()))
    return Mesh(devices, tuple(sizes), axis_types=(kind,) * len(sizes))


def specs(axes: Sequence[str], dims: int) -> list[PartitionSpec]:
    """Returns every spec of these axes, in every order of those that shard one dim."""
    found = []
    for where in itertools.product(range(-1, dims), repeat=len(axes)):
        cuts = [[axis for axis, dim in zip(axes, where, strict=True) if dim == at] for at in range(dims)]
        for orders in itertools.product(*[itertools.permutations(cut) for cut in cuts]):
            found.append(PartitionSpec(*[order or None for order in orders]))
    return found


def sampled(cases: Sequence[Case]) -> list[Case]:
    """Returns all cases if RESHARD_JAX_SWEEP is `all`, else every eighth from the given index (0) on."""
    which = os.environ.get("RESHARD_JAX_SWEEP", "0")
    return list(cases) if which == "all" else list(cases)[int(which) % 8 :: 8]


def assert_holds(array: jax.Array, whole: np.ndarray) -> None:
    """Asserts that every shard equals the part of the whole at its index."""
    for shard in array.addressable_shards:
        assert np.array_equal(np.asarray(shard.data), whole[shard.index]), (array.sharding, shard.index)
