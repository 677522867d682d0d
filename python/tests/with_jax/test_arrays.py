"""Redistribution of arrays: eager and traced, forward and backward, and the rejected cases."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_holds, device_mesh, sampled, specs
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import reshard
import reshard.jax as rj
from reshard.jax.hlo import Module

SHAPE = (16, 8)
WHOLE = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
BYTES = reshard.Planner(objective="bytes")
AXES = {"dp": 2, "tp": 4}
EXPLICIT, AUTO = device_mesh(AXES), device_mesh(AXES, AxisType.Auto)


def put(mesh: Mesh, spec: P, whole: np.ndarray = WHOLE) -> jax.Array:
    return jax.device_put(whole, NamedSharding(mesh, spec))


def terms(mesh: Mesh, spec: P, whole: np.ndarray) -> jax.Array:
    """Returns an array whose shards are different partial values that sum to the whole."""
    target = NamedSharding(mesh, spec)
    shards = rj.sharding(target, whole.shape).shard_all(whole)
    held = [jax.device_put(shard, device) for shard, device in zip(shards, mesh.devices.flat, strict=True)]
    return jax.make_array_from_single_device_arrays(whole.shape, target, held)


@pytest.mark.parametrize("mesh", [EXPLICIT, AUTO], ids=["explicit", "auto"])
@pytest.mark.parametrize("target", ["named", "spec", "ours", "text"])
def test_a_target_is_said_in_any_way(mesh: Mesh, target: str) -> None:
    x = put(mesh, P("dp", "tp"))
    spec = P(None, ("tp", "dp"))
    wanted = {
        "named": NamedSharding(mesh, spec),
        "spec": spec,
        "ours": rj.sharding(NamedSharding(mesh, spec), SHAPE),
        "text": "[{},{tp,dp}]",
    }[target]
    y = rj.reshard(x, wanted)
    assert_holds(y, WHOLE)
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, spec), 2)


def test_the_same_sharding_is_the_same_memory() -> None:
    x = put(EXPLICIT, P("dp", "tp"))
    y = rj.reshard(x, P("dp", "tp"))
    assert y.sharding == x.sharding
    both = zip(x.addressable_shards, y.addressable_shards, strict=True)
    assert all(a.data.unsafe_buffer_pointer() == b.data.unsafe_buffer_pointer() for a, b in both)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint32", "bool", "complex64", "float8_e4m3fn"])
def test_elements_of_any_type_move(dtype: str) -> None:
    whole = (np.arange(np.prod(SHAPE)) % 100).astype(jnp.dtype(dtype)).reshape(SHAPE)
    y = rj.reshard(put(EXPLICIT, P("dp", "tp"), whole), P("tp", None))
    assert y.dtype == jnp.dtype(dtype)
    for shard in y.addressable_shards:
        assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(whole[shard.index]).tobytes()


def test_types_say_the_source_in_jit() -> None:
    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        y = rj.reshard(x * 2, P("tp", "dp"))
        assert jax.typeof(y).sharding.spec == P("tp", "dp")
        return y + 1

    assert_holds(step(put(EXPLICIT, P("dp", "tp"))), WHOLE * 2 + 1)


def test_on_auto_axes_a_function_says_both() -> None:
    before, after = NamedSharding(AUTO, P("dp", "tp")), NamedSharding(AUTO, P("tp", None))
    move = rj.reshard_fn(SHAPE, "float32", before, after, planner=BYTES)
    y = jax.jit(lambda x: move(x * 2) + 1)(put(AUTO, P("dp", "tp")))
    assert_holds(y, WHOLE * 2 + 1)
    gradient = jax.jit(jax.grad(lambda x: (move(x) * jnp.cos(WHOLE)).sum()))(put(AUTO, P("dp", "tp")))
    assert np.allclose(np.asarray(gradient), np.cos(WHOLE))
    with pytest.raises(reshard.ReshardError, match="redistributes float32"):
        move(put(AUTO, P("dp", "tp"), WHOLE.astype(np.float16)))


def test_in_scan_and_in_a_loop() -> None:
    def turn(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return rj.reshard(rj.reshard(x, P("tp", "dp")) + 1, P("dp", "tp")), None

    y = jax.jit(lambda x: lax.scan(turn, x, length=3)[0])(put(EXPLICIT, P("dp", "tp")))
    assert_holds(y, WHOLE + 3)


def test_in_scan_the_gradient_comes_back() -> None:
    def turn(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return rj.reshard(jnp.sin(rj.reshard(x, P("tp", "dp"))), P("dp", "tp")), None

    def loss(x: jax.Array) -> jax.Array:
        return (lax.scan(turn, x, length=3)[0] ** 2).sum()

    with jax.set_mesh(EXPLICIT):
        gradient = jax.jit(jax.grad(loss))(put(EXPLICIT, P("dp", "tp")))
    plain = jax.grad(lambda x: (jnp.sin(jnp.sin(jnp.sin(x))) ** 2).sum())(jnp.asarray(WHOLE))
    assert np.allclose(np.asarray(gradient), np.asarray(plain), rtol=1e-4, atol=1e-5)


def test_in_vmap() -> None:
    many = np.stack([WHOLE, WHOLE + 1000, WHOLE * 3])
    x = put(EXPLICIT, P(None, "dp", "tp"), many)
    moved = jax.jit(jax.vmap(lambda x: rj.reshard(x, P("tp", "dp"))))
    assert_holds(moved(x), many)
    with jax.set_mesh(EXPLICIT):
        gradient = jax.jit(jax.grad(lambda x: (jax.vmap(lambda x: rj.reshard(x, P("tp", None)))(x) ** 2).sum()))(x)
    assert_holds(gradient, 2 * many)


def test_gradients_of_gradients() -> None:
    def cubes(x: jax.Array) -> jax.Array:
        return (rj.reshard(x, P("tp", "dp")) ** 3).sum()

    with jax.set_mesh(EXPLICIT):
        twice = jax.jit(jax.grad(lambda x: (jax.grad(cubes)(x) ** 2).sum()))(put(EXPLICIT, P("dp", "tp")))
        eager = jax.grad(cubes)(put(EXPLICIT, P("dp", "tp")))
    assert np.allclose(np.asarray(twice), 36 * WHOLE**3)
    assert_holds(eager, 3 * WHOLE**2)


@pytest.mark.parametrize("axis", ["dp", "tp"])
def test_terms_are_summed_by_the_plan(axis: str) -> None:
    """From one partial axis to every plain spec."""
    others = [name for name in AXES if name != axis]
    for before, after in itertools.product(specs(others, 2), specs(tuple(AXES), 2)):
        x = terms(EXPLICIT, P(*before.partitions, unreduced={axis}), WHOLE)
        y = rj.reshard(x, after, planner=BYTES)
        assert_holds(y, WHOLE)


def test_terms_of_jit_are_summed_by_the_plan() -> None:
    a, b = put(EXPLICIT, P("dp", "tp")), put(EXPLICIT, P("tp", None), WHOLE[:8].copy())

    @jax.jit
    def step(a: jax.Array, b: jax.Array) -> jax.Array:
        y = jnp.einsum("mk,kn->mn", a, rj.reshard(b, P("tp", None)), out_sharding=P("dp", None, unreduced={"tp"}))
        return rj.reshard(y, P("dp", "tp"), planner=BYTES)

    with jax.set_mesh(EXPLICIT):
        compiled = step.lower(a, b).compile()
        assert_holds(compiled(a, b), WHOLE @ WHOLE[:8])
    (call,) = Module(compiled.as_text()).collectives()
    assert call[0].kind == "reduce-scatter"


def test_what_is_reduced_has_terms_for_gradients() -> None:
    """A gather whose gradient is a reduce-scatter of partial values, as in FSDP."""
    x, w = put(EXPLICIT, P("dp", None)), put(EXPLICIT, P("dp", None), WHOLE[:8].copy())

    def loss(w: jax.Array) -> jax.Array:
        whole = rj.reshard(w, P(None, None, reduced={"dp"}), planner=BYTES)
        return (jnp.einsum("mk,kn->mn", x, whole, out_sharding=P("dp", None)) * jnp.asarray(np.cos(WHOLE), out_sharding=P("dp"))).sum()

    with jax.set_mesh(EXPLICIT):
        compiled = jax.jit(jax.grad(loss)).lower(w).compile()
        gradient = compiled(w)
    assert np.allclose(np.asarray(gradient), WHOLE.T @ np.cos(WHOLE), rtol=1e-4)
    assert "reduce-scatter" in {one.kind for one, _, _ in Module(compiled.as_text()).collectives()}


def test_inside_of_a_shard_map_of_ones_own() -> None:
    plan = BYTES.plan(reshard.Sharding(AXES, SHAPE, "S(0),S(1)"), reshard.Sharding(AXES, SHAPE, "S(1),S(0)"), "f32")

    def step(x: jax.Array) -> jax.Array:
        return rj.local(x * 2, plan, ("dp", "tp"))

    run = jax.jit(jax.shard_map(step, mesh=AUTO, in_specs=P("dp", "tp"), out_specs=P("tp", "dp"), check_vma=False))
    assert_holds(run(put(AUTO, P("dp", "tp"))), WHOLE * 2)


@pytest.mark.parametrize(
    ("before", "after", "made_of"),
    [
        ("S(0),S(1)", "S(0),R", lambda x: lax.all_gather(x, "tp", axis=1, tiled=True)),
        ("S(0),P", "S(0),R", lambda x: lax.psum(x, "tp")),
        ("S(0),P", "S(0),S(1)", lambda x: lax.psum_scatter(x, "tp", scatter_dimension=1, tiled=True)),
        ("S(0),R", "S(0),S(1)", lambda x: lax.dynamic_slice_in_dim(x, 2 * lax.axis_index("tp"), 2, 1)),
        ("S(0),S(1)", "S(0),S(0)", lambda x: lax.all_to_all(x, "tp", 0, 1, tiled=True)),
        ("P,P", "R,R", lambda x: lax.psum(x, ("dp", "tp"))),
    ],
)
def test_gradients_are_those_of_jaxs_own_collectives(before: str, after: str, made_of: Callable[[Any], Any]) -> None:
    """In a shard_map without checks, a plan has the gradients of the collectives that it replaces."""
    from_, to = reshard.Sharding(AXES, SHAPE, before), reshard.Sharding(AXES, SHAPE, after)
    plan = reshard.plan(from_, to, "f32")
    shards = np.random.default_rng(1).normal(size=(8, *from_.local_shape(0))).astype(np.float32)
    weights = np.random.default_rng(2).normal(size=(8, *to.local_shape(0))).astype(np.float32)
    everywhere = P(("dp", "tp"))

    def loss(move: Callable[[Any], Any], shards: Any) -> Any:
        def rank(x: Any, w: Any) -> Any:
            return (jnp.sin(move(x[0])) * w[0]).sum()[None]

        return jax.shard_map(rank, mesh=AUTO, in_specs=(everywhere, everywhere), out_specs=everywhere, check_vma=False)(shards, weights).sum()

    ours = jax.jit(jax.value_and_grad(functools.partial(loss, lambda x: rj.local(x, plan, ("dp", "tp")))))(shards)
    theirs = jax.jit(jax.value_and_grad(functools.partial(loss, made_of)))(shards)
    assert np.allclose(ours[0], theirs[0], rtol=1e-4)
    assert np.allclose(ours[1], theirs[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod", "avg"])
@pytest.mark.parametrize("after", ["R,R", "R,S(0)", "S(1),S(0)"])
def test_terms_of_every_reduction(op: str, after: str) -> None:
    from_, to = reshard.Sharding(AXES, SHAPE, f"R,P({op})"), reshard.Sharding(AXES, SHAPE, after)
    plan = reshard.plan(from_, to, "f32")
    per = np.random.default_rng(3).integers(1, 3, size=(4, *SHAPE)).astype(np.float32)
    shards = np.stack([per[rank % 4] for rank in range(8)])
    everywhere = P(("dp", "tp"))
    run = jax.shard_map(lambda x: rj.local(x[0], plan, ("dp", "tp"))[None], mesh=AUTO, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    made = np.asarray(jax.jit(run)(shards))
    for mine, expected in zip(made, plan.run(list(shards)), strict=True):
        assert np.allclose(mine, expected, rtol=1e-6)


@pytest.mark.parametrize("op", ["max", "min", "prod", "avg"])
def test_partial_values_of_other_ops_than_the_sum_have_no_gradient(op: str) -> None:
    plan = reshard.plan(reshard.Sharding(AXES, SHAPE, f"R,P({op})"), reshard.Sharding(AXES, SHAPE, "R,R"), "f32")
    everywhere = P(("dp", "tp"))
    run = jax.shard_map(lambda x: rj.local(x[0], plan, ("dp", "tp"))[None], mesh=AUTO, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    with pytest.raises(reshard.ReshardError, match=rf"P\({op}\) along tp, and such partial values have no gradient; reduce them first") as raised:
        jax.jit(jax.grad(lambda x: run(x).sum()))(np.ones((8, *SHAPE), np.float32))
    assert raised.value.kind == "no_gradient"


def unlike(mesh: Mesh, shape: tuple[int, ...]) -> list[tuple[P, P]]:
    """Returns the pairs that no single program can run."""
    found = []
    for before, after in itertools.permutations(specs(mesh.axis_names, len(shape)), 2):
        plan = BYTES.plan(rj.sharding(NamedSharding(mesh, before), shape), rj.sharding(NamedSharding(mesh, after), shape), "f32")
        try:
            plan.spmd()
        except reshard.ReshardError as error:
            assert error.kind == "plan_mismatch"
            found.append((before, after))
    return found


def test_what_no_program_carries_goes_from_device_to_device() -> None:
    """All such pairs on 4 x 6, or an eighth of them; exactly the bytes of the plan's messages are sent."""
    mesh = device_mesh({"a": 4, "b": 6})
    whole = np.arange(48 * 48, dtype=np.float32).reshape(48, 48)
    pairs = unlike(mesh, whole.shape)
    # Sizes that do not divide each other. Four of these send the same blocks everywhere if one replica answers all
    # requests, but the plan shares the requests out, so that no rank sends more messages than another.
    assert len(pairs) == 18
    for before, after in pairs if len(sampled(pairs)) == len(pairs) else sampled(pairs):
        x = put(mesh, before, whole)
        assert_holds(rj.reshard(x, after, planner=BYTES), whole)
        with pytest.raises(reshard.ReshardError, match="outside of jit"):
            jax.jit(lambda x: rj.reshard(x, after, planner=BYTES))(x)  # noqa: B023


def test_transfers_are_the_plans_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = device_mesh({"a": 4, "b": 6})
    whole = np.arange(48 * 48, dtype=np.float32).reshape(48, 48)
    before, after = unlike(mesh, whole.shape)[0]
    x = put(mesh, before, whole)
    received: dict[Any, int] = {}
    real = jax.device_put

    def counted(block: Any, device: Any) -> Any:
        if block.devices() != {device}:
            received[device] = received.get(device, 0) + block.nbytes
        return real(block, device)

    monkeypatch.setattr("reshard.jax.transfers.jax.device_put", counted)
    y = rj.reshard(x, after, planner=BYTES)
    monkeypatch.undo()
    assert_holds(y, whole)
    plan = BYTES.plan(rj.sharding(x), rj.sharding(y), "f32")
    assert max(received.values()) == plan.received_bytes == plan.lower_bound_bytes


def test_to_another_mesh_of_the_same_and_of_other_devices() -> None:
    x = put(EXPLICIT, P("dp", "tp"))
    turned = Mesh(np.array(jax.devices()[:8])[::-1].reshape(4, 2), ("a", "b"))
    assert_holds(rj.reshard(x, NamedSharding(turned, P("b", "a"))), WHOLE)
    others = Mesh(np.array(jax.devices()[8:16]).reshape(8), ("all",))
    assert_holds(rj.reshard(x, NamedSharding(others, P("all"))), WHOLE)
    fewer = Mesh(np.array(jax.devices()[6:10]).reshape(2, 2), ("a", "b"))
    assert_holds(rj.reshard(x, NamedSharding(fewer, P("b", "a"))), WHOLE)


def test_what_is_refused_says_why_and_the_way_out() -> None:
    x = put(AUTO, P("dp", "tp"))
    with pytest.raises(reshard.ReshardError, match=r"Auto axes the sharding .*reshard_fn"):
        jax.jit(lambda x: rj.reshard(x, P("tp")))(x)
    with pytest.raises(reshard.ReshardError, match="has no named axes"):
        rj.reshard(jnp.ones(SHAPE), P())
    with pytest.raises(reshard.ReshardError, match="unevenly.*pad the dim"):
        rj.reshard(put(EXPLICIT, P(), WHOLE[:15]), P("tp"))
    with pytest.raises(TypeError, match="a target must be"):
        rj.reshard(x, 3)
    with pytest.raises(reshard.ReshardError, match=r"reshard.jax.local"):
        jax.shard_map(lambda x: rj.reshard(x, P()), mesh=AUTO, in_specs=P("dp"), out_specs=P("dp"), check_vma=False)(WHOLE)
    plan = reshard.plan(reshard.Sharding("x=4", SHAPE, "S(0)"), reshard.Sharding("x=4", SHAPE, "R"), "f32")
    run = functools.partial(jax.shard_map, mesh=AUTO, in_specs=P("tp"), out_specs=P(), check_vma=False)
    with pytest.raises(reshard.ReshardError, match="have 8 ranks from 0"):
        run(lambda x: rj.local(x, plan, ("dp", "tp")))(WHOLE)
    with pytest.raises(reshard.ReshardError, match=r"the shard has the shape \[8, 8\]"):
        jax.shard_map(lambda x: rj.local(x, plan, "tp"), mesh=AUTO, in_specs=P("dp"), out_specs=P(), check_vma=False)(WHOLE)
    with pytest.raises(reshard.ReshardError, match="the shard is float16"):
        run(lambda x: rj.local(x, plan, "tp"))(WHOLE.astype(np.float16))


@pytest.mark.parametrize("after", [P(None, "tp"), P("dp", "tp"), P("dp", None)])
def test_a_batch_of_arrays_goes_as_one(after: P) -> None:
    """JAX has no batched exchange in groups; the rows of a batch are sent in one exchange."""
    x = jax.device_put(np.arange(3 * 16 * 8, dtype=np.float32).reshape(3, 16, 8), NamedSharding(EXPLICIT, P(None, "tp", None)))
    each = jax.vmap(lambda x: rj.reshard(x, after))
    moved = jax.jit(each)(x)
    assert_holds(moved, np.asarray(x))
    text = jax.jit(each).lower(x).compile().as_text()
    assert len([line for line in Module(text).entry.instructions.values() if line.kind == "all-to-all"]) <= 1
    slope = jax.jit(jax.grad(lambda x: (each(x) ** 2).sum()))(x)
    assert_holds(slope, 2 * np.asarray(x))
    twice = jax.jit(jax.vmap(each))(jnp.stack([x, x + 1]))
    assert_holds(twice, np.stack([x, x + 1]))


def test_what_no_array_of_a_mesh_is_is_refused_or_put_there() -> None:
    keys = jax.device_put(jax.random.split(jax.random.key(0), 64), NamedSharding(EXPLICIT, P("dp")))
    with pytest.raises(reshard.ReshardError, match="key_data"):
        rj.reshard(keys, P("tp"))
    with pytest.raises(reshard.ReshardError, match="ndarray is on no mesh"):
        rj.reshard(WHOLE, P("dp"))
    put_there = rj.reshard(WHOLE, NamedSharding(EXPLICIT, P("dp", "tp")))
    assert_holds(put_there, WHOLE)
    with pytest.raises(reshard.ReshardError, match=r"the array has the shape \[16, 8\], but R,R is for \[999, 7\]"):
        rj.reshard(put_there, reshard.Sharding("dp=2,tp=4", (999, 7), "R,R"))
