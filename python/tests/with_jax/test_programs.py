"""Programs from functions of JAX: their results and gradients equal JAX's, on one device and on ranks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import device_mesh
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import reshard
from reshard.jax import program

MESH = device_mesh({"dp": 2, "tp": 2}, AxisType.Auto)


def given(shape: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(MESH, P(*spec)))


def mlp(x: jax.Array, w: list[jax.Array]) -> jax.Array:
    return jnp.mean((jax.nn.gelu(x @ w[0]) @ w[1] - 0.5) ** 2)


def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    y = centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale
    return jnp.sum(jnp.log1p(jnp.exp(-jnp.abs(y))) + jnp.maximum(y, 0.25) / 3 - 1 / (2 + y**2))


def attention(x: jax.Array, wq: jax.Array, wk: jax.Array, wv: jax.Array) -> jax.Array:
    q, k, v = (jnp.einsum("bsd,dhe->bhse", x, w) for w in (wq, wk, wv))
    scores = jax.nn.softmax(jnp.einsum("bhse,bhte->bhst", q, k) / 2.0, axis=-1)
    heads = jnp.einsum("bhst,bhte->bhse", scores, v)
    return jnp.sum(jnp.tanh(heads.transpose(0, 2, 1, 3).reshape(4, 4, 8))[:, 1:] ** 3)


def swiglu(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    @jax.checkpoint
    def inner(x: jax.Array) -> jax.Array:
        h = jax.nn.silu(x @ w["gate"]) * (x @ w["up"])
        return lax.with_sharding_constraint(h, NamedSharding(MESH, P("dp", "tp")))

    return jnp.where(inner(x) > 0.1, inner(x), 0.5).sum() / x.size


CASES: list[tuple[Callable[..., Any], list[Any], list[str]]] = [
    (mlp, [given((8, 4), "dp"), [given((4, 8), None, "tp"), given((8, 4), "tp")]], ["w.0", "w.1"]),
    (normed, [given((8, 4), "dp", "tp"), given((4,), "tp")], ["x", "scale"]),
    (attention, [given((4, 4, 8), "dp"), *[given((8, 2, 4), None, "tp")] * 3], ["x", "wq", "wk", "wv"]),
    (swiglu, [given((8, 4), "dp"), {"gate": given((4, 8), None, "tp"), "up": given((4, 8), None, "tp")}], ["w.gate", "w.up"]),
]


@pytest.mark.parametrize(("function", "args", "wrt"), CASES, ids=[case[0].__name__ for case in CASES])
def test_values_and_gradients_are_jaxs(function: Callable[..., Any], args: list[Any], wrt: list[str]) -> None:
    made = program(function, *args, wrt=wrt)
    rng = np.random.default_rng(0)
    arrays = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), args)
    inputs = dict(zip(made.inputs, jax.tree.leaves(arrays), strict=True))
    value, slopes = jax.value_and_grad(function, argnums=tuple(range(len(args))))(*arrays)
    slopes_of = dict(zip(made.inputs, jax.tree.leaves(slopes), strict=True))
    one, ranks = made.on_one_device(inputs), made.on_ranks(inputs)
    for found in (one.__getitem__, ranks.whole):
        assert np.allclose(found("out"), value, rtol=1e-4)
        for name in wrt:
            np.testing.assert_allclose(found(f"d{name}"), slopes_of[name], rtol=2e-3, atol=2e-5)
    # The program's inputs have JAX's shardings.
    for name, leaf in zip(made.inputs, jax.tree.leaves(args), strict=True):
        assert made[name].sharding == reshard.jax.sharding(leaf)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (lax.stop_gradient(x) * x + y).sum(),
        lambda x, y: jnp.maximum(x, y).sum() + jnp.minimum(x, 2 * y).sum(),
        # A value that backward reads is also live at the end.
        lambda x, y: jnp.exp((x * y).sum() / 100),
    ],
)
def test_gradients_of_what_stands_still_is_compared_or_is_read_again(function: Callable[..., Any]) -> None:
    made = program(function, given((8, 4), "dp"), given((8, 4), None, "tp"), wrt=["x", "y"])
    rng = np.random.default_rng(1)
    arrays = {name: rng.normal(size=(8, 4)).astype(np.float32) for name in ("x", "y")}
    value, slopes = jax.value_and_grad(function, argnums=(0, 1))(*arrays.values())
    one, ranks = made.on_one_device(arrays), made.on_ranks(arrays)
    for found in (one.__getitem__, ranks.whole):
        assert np.allclose(found("out"), value, rtol=1e-5)
        for name, slope in zip(("dx", "dy"), slopes, strict=True):
            np.testing.assert_allclose(found(name), slope, rtol=1e-5, atol=1e-6)


def test_integers_and_numbers_are_what_they_are() -> None:
    i = jax.ShapeDtypeStruct((8,), "int32", sharding=NamedSharding(MESH, P("dp")))
    numbers = np.arange(8, dtype=np.int32)
    for function in (lambda i: i + 1, lambda i: i * 2, lambda i: 1 - i, lambda i: (i * i - 3).sum()):
        found = program(function, i).on_ranks({"i": numbers}).whole("out")
        wanted = np.asarray(function(jnp.asarray(numbers)))
        assert found.dtype == wanted.dtype and (found == wanted).all()
    scaled = program(lambda x, s: x * s, given((8, 4), "dp"), 2.0)
    assert scaled.inputs == ["x", "s"]
    assert (scaled.on_ranks({"x": np.ones((8, 4), np.float32), "s": np.float32(2)}).whole("out") == 2).all()
    # The arguments of `*args` have no names.
    assert program(jnp.add, given((8, 4), "dp"), given((8, 4), "dp")).inputs == ["x0", "x1"]


def test_what_has_no_op_is_refused_by_its_name() -> None:
    x = given((8, 4), "dp")
    turned = device_mesh({"tp": 2, "dp": 2}, AxisType.Auto)
    move = reshard.jax.reshard_fn((8, 4), "float32", NamedSharding(MESH, P("dp")), NamedSharding(MESH, P("tp")))
    for function, word in [
        (lambda x: lax.cond(x.sum() > 0, lambda: x, lambda: -x), "uses cond"),
        (lambda x: lax.while_loop(lambda x: x.sum() < 9, lambda x: x + 1, x), "uses while"),
        (lambda x: lax.with_sharding_constraint(x, NamedSharding(turned, P("tp"))), "is on the mesh"),
        (lambda x: x * (1 + 2j), "complex numbers|convert_element_type"),
        (lambda x: jnp.where(x > 0, x, jnp.nan), "has NaN"),
        (lambda x: jnp.dot(x.T, x, preferred_element_type=jnp.float64 if jax.config.x64_enabled else jnp.bfloat16), "to bfloat16 of f32|to float64 of f32"),
        (lambda x: None, "returns no array"),
        (move, "with_sharding_constraint"),
        (lambda x: lax.scan(lambda c, y: (c + y, c), x[0], x)[0], "scan"),
        (lambda x: jnp.sort(x), "sort"),
        (lambda x: x.astype("bfloat16"), "convert_element_type from f32 to bfloat16"),
        (lambda x: x * np.arange(4.0, dtype=np.float32), "different numbers"),
        (lambda x: jnp.ones(3), "depends on no input"),
    ]:
        with pytest.raises(reshard.ReshardError, match=word):
            program(function, x)
    with pytest.raises(reshard.ReshardError, match="no input has a mesh"):
        program(lambda x: x, jax.ShapeDtypeStruct((4,), "float32"))
    with pytest.raises(reshard.ReshardError, match="no input y for a gradient"):
        program(lambda x: x.sum(), x, wrt=["y"])
    with pytest.raises(reshard.ReshardError, match="needs a single number"):
        program(lambda x: x * 2, x, wrt=["x"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_wrong_for_two_ranks_is_rejected_for_one(ranks: int) -> None:
    mesh = device_mesh({"dp": ranks}, AxisType.Explicit)

    def on(spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, spec))

    def solved(function: Callable[..., Any], *args: Any) -> reshard.Program:
        return program(function, *args, implicit_redistribution="deny")

    x, replicated = on(P("dp")), on(P(None, reduced={"dp"}))
    assert str(reshard.jax.typed(x)) == "S(0)" and reshard.jax.named(reshard.jax.typed(x), mesh).spec == P("dp", None)
    right = solved(lambda x, w: x @ w, x, replicated)
    assert [right[name].type for name in ("x", "w", "out")] == ["S(0)", "R", "S(0)"]
    after = NamedSharding(device_mesh({"dp": ranks}, AxisType.Auto), P(None, "dp"))
    moved = solved(lambda x: lax.with_sharding_constraint(x, after), x)
    assert moved["out"].type == "S(1)"
    # Both are sharded; and replicas that do the same work on all ranks.
    for weight in (x, on(P())):
        with pytest.raises(reshard.ReshardError, match="along dp") as refused:
            solved(lambda x, w: x @ w, x, weight)
        assert refused.value.kind.startswith("needs_")
