"""All pairs of specs on a mesh: correct shards, and compiled code that receives the plan's bytes, the bound.

RESHARD_JAX_SWEEP=all runs all pairs of the mesh of 2 x 2 x 2; else every eighth runs.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_holds, device_mesh, sampled, specs
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import reshard
import reshard.jax as rj
from reshard.jax.hlo import Module

SHAPE = (64, 32)
WHOLE = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
BYTES = reshard.Planner(objective="bytes")


def pairs(mesh: Mesh) -> list[tuple[PartitionSpec, PartitionSpec]]:
    """Returns all pairs of different specs."""
    return list(itertools.permutations(specs(mesh.axis_names, len(SHAPE)), 2))


def swept(mesh: Mesh, before: PartitionSpec, after: PartitionSpec) -> tuple[int, int]:
    """Compiles and runs one pair; returns the bytes that a device receives, and the number of calls."""
    source, target = NamedSharding(mesh, before), NamedSharding(mesh, after)
    x = jax.device_put(WHOLE, source)
    compiled = jax.jit(lambda x: rj.reshard(x, after, planner=BYTES)).lower(x).compile()
    y = compiled(x)
    assert y.sharding.is_equivalent_to(target, 2), (before, after, y.sharding)
    assert_holds(y, WHOLE)
    module = Module(compiled.as_text())
    plan = BYTES.plan(rj.sharding(source, SHAPE), rj.sharding(target, SHAPE), "f32")
    assert module.received_bytes() == plan.received_bytes == plan.lower_bound_bytes, (before, after)
    numbers = max(
        (
            one.shapes[0].dims
            for computation in module.computations.values()
            for one in computation.instructions.values()
            if one.opcode == "constant"
        ),
        key=np.prod,
        default=(),
    )
    assert np.prod(numbers) <= mesh.size * mesh.size, (before, after, numbers)
    return module.received_bytes(), len(list(module.collectives()))


def turned_round(mesh: Mesh, before: PartitionSpec, after: PartitionSpec) -> None:
    """The gradient is correct, and its redistribution receives exactly the lower bound."""
    weights = np.cos(WHOLE)
    with jax.set_mesh(mesh):
        x = jax.device_put(WHOLE, NamedSharding(mesh, before))
        w = jax.device_put(weights, NamedSharding(mesh, after))
        back = jax.jit(lambda x, w: jax.vjp(lambda x: rj.reshard(x, after, planner=BYTES), x)[1](w)[0])
        compiled = back.lower(x, w).compile()
        gradient = compiled(x, w)
    assert gradient.sharding.is_equivalent_to(NamedSharding(mesh, before), 2)
    assert_holds(gradient, weights)
    plan = BYTES.plan(rj.sharding(w), rj.sharding(x), "f32")
    assert Module(compiled.as_text()).received_bytes() == plan.received_bytes == plan.lower_bound_bytes, (before, after)


def test_all_pairs_of_two_by_four_are_at_the_bound() -> None:
    mesh = device_mesh({"dp": 2, "tp": 4})
    all_pairs = pairs(mesh)
    assert len(all_pairs) == 110
    received = [swept(mesh, *pair) for pair in all_pairs]
    assert sum(moved for moved, _ in received) == 193_536
    print(f"2x4: {len(all_pairs)} pairs, {sum(calls for _, calls in received)} collectives, 193,536 B")


def test_pairs_of_two_by_two_by_two_are_at_the_bound() -> None:
    mesh = device_mesh({"a": 2, "b": 2, "c": 2})
    all_pairs = pairs(mesh)
    assert len(all_pairs) == 2_352
    received = [swept(mesh, *pair) for pair in sampled(all_pairs)]
    total, calls = sum(moved for moved, _ in received), sum(calls for _, calls in received)
    print(f"2x2x2: {len(received)} pairs, {calls} collectives, {total:,} B")


@pytest.mark.parametrize("sizes", [{"dp": 2, "tp": 4}, {"a": 2, "b": 2, "c": 2}])
def test_every_tenth_gradient_is_at_the_bound(sizes: dict[str, int]) -> None:
    mesh = device_mesh(sizes)
    tenth = pairs(mesh)[::10]
    for pair in tenth if len(sizes) == 2 else sampled(tenth):
        turned_round(mesh, *pair)


def test_what_xla_moves_for_the_same_pairs_is_no_less() -> None:
    mesh = device_mesh({"dp": 2, "tp": 4}, AxisType.Auto)
    more = 0
    for before, after in sampled(pairs(mesh)):
        x = jax.device_put(jnp.asarray(WHOLE), NamedSharding(mesh, before))
        own = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, after))
        theirs = Module(own.lower(x).compile().as_text()).received_bytes()
        plan = BYTES.plan(rj.sharding(x), rj.sharding(NamedSharding(mesh, after), SHAPE), "f32")
        assert theirs >= plan.received_bytes, (before, after)
        more += theirs
    print(f"XLA without plans: {more:,} B")
