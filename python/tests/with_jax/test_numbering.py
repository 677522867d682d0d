"""Value numbers: equal numbers imply equal values, on random programs in which every step is a result."""

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import device_mesh
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from reshard.jax.audit import _held
from reshard.jax.hlo import Module
from reshard.jax.numbering import Numbering

MESH = device_mesh({"dp": 2, "tp": 4}, AxisType.Auto)
SIZES = {"dp": 2, "tp": 4}
EVERYWHERE = P(("dp", "tp"))


def made(rng: random.Random, steps: int) -> Any:
    """Returns a function of three arrays, replicated, split by dp and split by both, with all its values."""
    chosen = [(rng.randrange(9), rng.randrange(3 + at), rng.randrange(3 + at), rng.choice([("dp",), ("tp",), ("dp", "tp")])) for at in range(steps)]

    def function(*given: Any) -> Any:
        values = list(given)
        for kind, a, b, axes in chosen:
            x, y = values[a], values[b]
            match kind:
                case 0:
                    made = x + y
                case 1:
                    made = jnp.sin(x) * 2
                case 2:
                    made = lax.psum(x, axes)
                case 3:
                    made = lax.all_gather(x, axes).sum(0) * y
                case 4:
                    size = SIZES[axes[0]]
                    made = lax.ppermute(x, axes[0], [(n, (n + 1) % size) for n in range(size)])
                case 5:
                    made = x * lax.axis_index(axes).astype(x.dtype)
                case 6:
                    made = lax.all_to_all(x, "tp", 0, 0, tiled=True)
                case 7:
                    made = lax.fori_loop(0, 3, lambda n, z: jnp.cos(z) + y * n, x)
                case _:
                    whole = lax.all_gather(x, axes[-1], tiled=True)
                    made = lax.dynamic_slice_in_dim(whole, lax.axis_index("tp") * 2, x.shape[0], 0)
            values.append(made)
        return tuple(value[None] for value in values[3:])

    return jax.shard_map(function, mesh=MESH, in_specs=(P(), P("dp"), EVERYWHERE), out_specs=EVERYWHERE, check_vma=False)


@pytest.mark.parametrize("seed", range(6))
def test_equal_numbers_are_equal_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [((8, 3), P()), ((16, 3), P("dp")), ((64, 3), EVERYWHERE)]
    given = [jax.device_put(rng.normal(size=shape).astype(np.float32), NamedSharding(MESH, spec)) for shape, spec in shapes]
    compiled = jax.jit(made(random.Random(seed), 8)).lower(*given).compile()
    module = Module(compiled.as_text())
    numbering = Numbering(module, _held(module))
    numbers = numbering.result if isinstance(numbering.result, list) else [numbering.result]
    results = jax.tree.leaves(compiled(*given))
    assert len(numbers) == len(results)
    first: dict[int, np.ndarray] = {}
    equal = 0
    for of, result in zip(numbers, results, strict=True):
        assert isinstance(of, tuple)
        shards = {shard.device: np.asarray(shard.data) for shard in result.addressable_shards}
        for rank, device in enumerate(MESH.devices.flat):
            known = first.setdefault(of[rank], shards[device])
            equal += known is not shards[device]
            # The order of the summands differs between some ranks.
            np.testing.assert_allclose(known, shards[device], rtol=1e-4, atol=1e-4)
    assert equal > 0 and len(first) > 8
