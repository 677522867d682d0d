"""Partition specs that `reshard.jax.parallelize` chooses: the program fits, and JAX with these specs has the same gradients."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import device_mesh
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from reshard import ComputeRates, Graph, Program, ReshardError, ShardingSolver
from reshard.jax import ParallelizedFunction, parallelize

MESH = device_mesh({"dp": 2, "tp": 2}, AxisType.Auto)
PARAMS: Any = {"layers": [{"up": jax.ShapeDtypeStruct((64, 256), "float32"), "down": jax.ShapeDtypeStruct((256, 64), "float32")}]}
DATA = [jax.ShapeDtypeStruct((64, 64), "float32")] * 2


def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    for layer in params["layers"]:
        x = jnp.tanh(x @ layer["up"]) @ layer["down"]
    return jnp.mean((x - y) ** 2)


@functools.cache
def chosen(percent: int = 100) -> ParallelizedFunction:
    """Returns the answer with this part of the peak that it has without a limit."""
    if percent == 100:
        return parallelize(loss, PARAMS, *DATA, mesh=MESH, topology="h100")
    return parallelize(loss, PARAMS, *DATA, mesh=MESH, topology="h100", memory=chosen().peak_bytes * percent // 100)


def total_us(program: Program, rates: ComputeRates) -> float:
    report = program.report(rates)
    return sum(report.compute_us.values()) + sum(traffic.cost_us for traffic in report.traffic.values())


@pytest.mark.parametrize("percent", [100, 60, 40])
def test_the_answer_is_a_program_without_implicit_redistributions(percent: int) -> None:
    found, rates = chosen(percent), ComputeRates.h100()
    explicit = ShardingSolver("deny", "h100").solve(Graph.parse(str(found.program)))
    assert total_us(explicit, rates) == pytest.approx(found.time_us, abs=1e-6)
    assert explicit.report(rates).peak_bytes == found.peak_bytes <= chosen().peak_bytes * percent // 100
    assert 0 < found.bound_us <= found.time_us


def test_less_memory_takes_longer() -> None:
    times = [chosen(percent).time_us for percent in (100, 60, 40)]
    assert times == sorted(times) and times[0] < times[-1]


@pytest.mark.parametrize("percent", [100, 40])
def test_jax_with_these_specs_has_the_same_gradients(percent: int) -> None:
    found = chosen(percent)
    rng = np.random.default_rng(0)
    params, *data = [jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype("f4") / 8, tree) for tree in (PARAMS, *DATA)]
    expected = jax.grad(loss)(params, *data)
    put = [jax.tree.map(lambda leaf, spec: jax.device_put(leaf, NamedSharding(MESH, spec)), *pair) for pair in zip([params, *data], [found.params, *found.args], strict=True)]
    shardings = jax.tree.map(lambda spec: NamedSharding(MESH, spec), found.params, is_leaf=lambda leaf: isinstance(leaf, P))
    made = jax.jit(jax.grad(loss), out_shardings=shardings)(*put)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), made, expected)
    given = {"params.layers.0.up": params["layers"][0]["up"], "params.layers.0.down": params["layers"][0]["down"], "x": data[0], "y": data[1]}
    given |= {name: np.zeros(found.program[name].shape, "f4") for name in found.program.inputs if name not in given}
    ranks = found.program.on_ranks(given, kernels="numpy")
    np.testing.assert_allclose(ranks.whole("out"), loss(params, *data), rtol=1e-5)
    up, slope = params["layers"][0]["up"], expected["layers"][0]["up"]
    # AdamW by its definition, without the correction of bias.
    updated = up * (1 - 1e-3 * 0.01) - 1e-3 * 0.1 * slope / (np.sqrt(0.001 * slope**2) + 1e-8)
    np.testing.assert_allclose(ranks.whole("params.layers.0.up'"), updated, rtol=1e-3, atol=1e-6)


def test_trees_are_those_of_the_arguments() -> None:
    found = chosen(40)
    assert jax.tree.structure(found.params, is_leaf=lambda leaf: isinstance(leaf, P)) == jax.tree.structure(PARAMS)
    assert found.states == found.params and len(found.args) == 2
    assert found.params["layers"][0]["up"] != P(None, None)
    without = parallelize(loss, PARAMS, *DATA, mesh=MESH, optimizer=None)
    assert without.states == {"layers": [{"up": None, "down": None}]} and without.program.inputs == ["params.layers.0.down", "params.layers.0.up", "x", "y"]


def test_what_cannot_be_met_is_rejected() -> None:
    small = {"layers": [{"up": jax.ShapeDtypeStruct((8, 8), "float32"), "down": jax.ShapeDtypeStruct((8, 8), "float32")}]}
    data = [jax.ShapeDtypeStruct((8, 8), "float32")] * 2
    with pytest.raises(ReshardError, match="no types were found for which the program fits in 100 bytes per rank"):
        parallelize(loss, small, *data, mesh=MESH, memory="100B")
    with pytest.raises(ReshardError, match="a single number"):
        parallelize(lambda w, x: x @ w, data[0], data[1], mesh=MESH)
    with pytest.raises(ReshardError, match="params has no floating-point array"):
        parallelize(lambda w, x: jnp.sum(x), jax.ShapeDtypeStruct((4,), "int32"), data[0], mesh=MESH)
    with pytest.raises(ReshardError, match="unknown optimizer 'lamb'; expected 'adamw' or None"):
        parallelize(loss, small, *data, mesh=MESH, optimizer="lamb")  # type: ignore[arg-type]
