"""Audits of typical programs, seven without waste and five with known waste, and the parser of their text."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from cases import device_mesh
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import reshard
from reshard.jax import Audit, FindingKind, RedistributionRow, audit, audit_text
from reshard.jax.hlo import Module, replica_groups

MESH = device_mesh({"dp": 2, "tp": 4}, AxisType.Auto)
DP, TP = 2, 4


def named(*spec: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*spec))


def given(shape: tuple[int, ...], *spec: Any, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=named(*spec))


def held(x: jax.Array, *spec: Any) -> jax.Array:
    return lax.with_sharding_constraint(x, named(*spec))


def per_rank(function: Callable[..., Any], takes: Any, makes: Any) -> Callable[..., Any]:
    return jax.shard_map(function, mesh=MESH, in_specs=takes, out_specs=makes, check_vma=False)


def line_of(word: str) -> int:
    """Returns the number of the line of this file that ends with this comment."""
    return next(n for n, line in enumerate(pathlib.Path(__file__).read_text().splitlines(), 1) if line.endswith(f"# {word}"))


def summed(size: int, ranks: int) -> int:
    """Returns the bytes that each of `ranks` ranks receives for an all-reduce of `size` bytes."""
    return 2 * size * (ranks - 1) // ranks


def only(found: Audit, kind: str) -> reshard.jax.RedistributionRow:
    (line,) = [line for line in found.lines if line.kind == kind]
    return line


# Programs without waste.


def mlp(x: jax.Array, w1: jax.Array, w2: jax.Array) -> jax.Array:
    h = jax.nn.relu(x @ w1)
    return held(h @ w2, "dp", None)  # mlp


MLP = (given((64, 32), "dp", None), given((32, 64), None, "tp"), given((64, 32), "tp", None))


def said(of: Audit | RedistributionRow) -> list[tuple[FindingKind, str]]:
    return [(one.kind, one.message) for one in of.findings]


def test_an_mlp_sums_once_over_tp() -> None:
    found = audit(mlp, *MLP)
    line = only(found, "all-reduce")
    assert (line.over, line.received_bytes, found.findings) == ("tp", summed(4 * 32 * 32, TP), ())
    assert line.source == (__file__, line_of("mlp"))
    assert line.bound_bytes == line.received_bytes == found.received_bytes == found.bound_bytes


def test_a_training_step_sums_gradients_over_dp() -> None:
    def step(w: Any, x: jax.Array) -> Any:
        gradients = jax.grad(lambda w: jnp.mean(mlp(x, *w) ** 2))(w)
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, gradients)

    found = audit(jax.jit(step, out_shardings=(MLP[1].sharding, MLP[2].sharding)), MLP[1:], MLP[0])
    assert found.findings == ()
    assert sum(line.received_bytes for line in found.lines if line.over == "dp") == summed(4 * 2 * 32 * 16, DP)
    assert sum(line.received_bytes for line in found.lines if line.over == "tp") == summed(4 * 32 * 32, TP)


def test_attention_with_heads_over_tp_sums_once() -> None:
    def attention(x: jax.Array, wq: jax.Array, wk: jax.Array, wv: jax.Array, wo: jax.Array) -> jax.Array:
        q, k, v = (held(jnp.einsum("bsd,dhe->bshe", x, w), "dp", None, "tp", None) for w in (wq, wk, wv))
        scores = jax.nn.softmax(jnp.einsum("bshe,bthe->bhst", q, k) / 8**0.5, axis=-1)
        heads = jnp.einsum("bhst,bthe->bshe", scores, v)
        return held(jnp.einsum("bshe,hed->bsd", heads, wo), "dp", None, None)

    weights = [given((32, 4, 8), None, "tp", None)] * 3
    found = audit(attention, given((4, 16, 32), "dp", None, None), *weights, given((4, 8, 32), "tp", None, None))
    assert [(line.kind, line.over, line.received_bytes) for line in found.lines] == [("all-reduce", "tp", summed(4 * 2 * 16 * 32, TP))]
    assert found.findings == ()


def test_experts_exchange_tokens_twice() -> None:
    def experts(x: jax.Array, w: jax.Array) -> jax.Array:
    # A slot for each expert's tokens, dispatched and combined.
        sent = lax.all_to_all(x, "tp", 0, 0, tiled=True)
        return lax.all_to_all(jax.nn.relu(sent @ w[0]), "tp", 0, 0, tiled=True)

    run = per_rank(experts, (P("tp"), P("tp")), P("tp"))
    found = audit(run, given((64, 32), "tp", None), given((4, 32, 32), "tp", None, None))
    assert [(line.kind, line.over, line.received_bytes) for line in found.lines] == [("all-to-all", "tp", 4 * 16 * 32 * 3 // 4)] * 2
    assert found.findings == ()


def layers(x: jax.Array, w: jax.Array) -> jax.Array:
    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ lax.all_gather(w, "tp", tiled=True)), None  # layers

    return lax.scan(layer, x, w)[0]


def test_layers_gather_their_weights_in_a_loop() -> None:
    found = audit(per_rank(layers, (P("dp"), P(None, "tp")), P("dp")), given((64, 32), "dp", None), given((5, 32, 32), None, "tp", None))
    line = only(found, "all-gather")
    assert (line.times, line.over, line.received_bytes, found.findings) == (5, "tp", 5 * 4 * 32 * 32 * 3 // 4, ())
    assert line.source == (__file__, line_of("layers"))


def test_a_table_of_words_cut_over_tp_sums_once() -> None:
    def embed(words: jax.Array, table: jax.Array) -> jax.Array:
        first = lax.axis_index("tp") * table.shape[0]
        mine = (words >= first) & (words < first + table.shape[0])
        return lax.psum(jnp.where(mine[:, None], table[jnp.where(mine, words - first, 0)], 0), "tp")

    found = audit(per_rank(embed, (P("dp"), P("tp")), P("dp")), given((64,), "dp", dtype="int32"), given((128, 16), "tp", None))
    assert [(line.kind, line.over, line.received_bytes) for line in found.lines] == [("all-reduce", "tp", summed(4 * 32 * 16, TP))]
    assert found.findings == ()


def test_a_norm_over_a_cut_dim_sums_numbers_of_rows_alone() -> None:
    def normed(x: jax.Array) -> jax.Array:
        return held(x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6), "dp", "tp")

    found = audit(normed, given((64, 32), "dp", "tp"))
    assert [(line.kind, line.over, line.received_bytes) for line in found.lines] == [("all-reduce", "tp", summed(4 * 32, TP))]
    assert found.findings == ()


# Programs with known waste.


def test_a_sum_of_which_each_takes_a_part_is_a_reduce_scatter() -> None:
    def wasteful(x: jax.Array, w: jax.Array) -> jax.Array:
        whole = held(x @ w, "dp", None)  # whole sum
        return held(jnp.tanh(whole), "dp", "tp")

    found = audit(wasteful, given((64, 32), "dp", "tp"), given((32, 64), "tp", None))
    line = only(found, "all-reduce")
    assert line.received_bytes == summed(4 * 32 * 64, TP) and line.bound_bytes == 4 * 32 * 64 * 3 // 4
    assert line.source == (__file__, line_of("whole sum"))
    assert line.plan is not None and [step.op for step in line.plan.steps] == ["reduce_scatter"]
    assert "uses 0.25 of the received data" in found.findings[0].message
    assert found.findings[0].saved_bytes == found.received_bytes - found.bound_bytes


def test_a_gather_of_which_each_takes_a_part_is_an_all_to_all() -> None:
    def wasteful(x: jax.Array) -> jax.Array:
        whole = lax.all_gather(x, "tp", axis=1, tiled=True)
        return lax.dynamic_slice_in_dim(whole, lax.axis_index("tp") * 8, 8, 0)

    found = audit(per_rank(wasteful, P("dp", "tp"), P(("dp", "tp"))), given((64, 32), "dp", "tp"))
    line = only(found, "all-gather")
    assert (line.received_bytes, line.bound_bytes) == (4 * 32 * 32 * 3 // 4, 4 * 8 * 32 * 3 // 4)
    assert line.plan is not None and [step.op for step in line.plan.steps] == ["all_to_all"]


def test_a_forgotten_reduction_is_found_by_running() -> None:
    def forgot(x: jax.Array, w: jax.Array) -> jax.Array:
        return x @ w  # forgot

    run = per_rank(forgot, (P("dp", "tp"), P("tp", None)), P("dp", None))
    found = audit(run, given((64, 32), "dp", "tp"), given((32, 64), "tp", None))
    assert found.lines == () and len(found.forgotten) == 1
    assert "forgotten reduction" in found.forgotten[0].message and f"test_audit.py:{line_of('forgot')}" in found.forgotten[0].message
    # If the partial values are equal, no reduction was forgotten.
    equal = jnp.ones((64, 32)), jnp.ones((32, 64))
    assert audit(run, *(jax.device_put(x, of) for x, of in zip(equal, (named("dp", "tp"), named("tp", None)), strict=True))).findings == ()


def test_a_doubled_reduction_is_found() -> None:
    def doubled(x: jax.Array, w: jax.Array) -> jax.Array:
        y = lax.psum(x @ w, "tp")
        return lax.psum(jnp.tanh(y), ("dp", "tp"))  # doubled

    found = audit(per_rank(doubled, (P("dp", "tp"), P("tp", None)), P()), given((64, 32), "dp", "tp"), given((32, 64), "tp", None))
    assert said(found) == [(FindingKind.DOUBLED_REDUCTION, "doubled reduction: of 8 ranks over dp,tp each 4 give the same partial value, so the sum is 4 times it")]
    assert [line.bound_bytes for line in found.lines] == [summed(4 * 32 * 64, TP), summed(4 * 32 * 64, DP)]
    half = per_rank(lambda x, w: lax.psum(lax.psum(x @ w, "tp"), "tp"), (P("dp", "tp"), P("tp", None)), P("dp"))
    found = audit(half, given((64, 32), "dp", "tp"), given((32, 64), "tp", None))
    assert [line.bound_bytes for line in found.lines] == [summed(4 * 32 * 64, TP), 0]
    assert said(found) == [(FindingKind.DOUBLED_REDUCTION, "doubled reduction: all 4 ranks over tp give the same partial value, so the sum is 4 times it")]
    assert found.findings[0].saved_bytes == summed(4 * 32 * 64, TP)


def test_what_was_narrow_is_gathered_narrow() -> None:
    found = audit(lambda x: held(x.astype("float32"), "dp", None) * 2, given((64, 32), "dp", "tp", dtype="bfloat16"))
    line = only(found, "all-gather")
    assert (line.received_bytes, line.bound_bytes) == (4 * 32 * 32 * 3 // 4, 2 * 32 * 32 * 3 // 4)
    assert "converted from bf16 just before" in line.findings[0].message and line.findings[0].kind is FindingKind.SENT_WIDE


LOOP = """HloModule turns, num_partitions=4

%body (state: (s32[], f32[8,8], f32[2,8])) -> (s32[], f32[8,8], f32[2,8]) {
  %state = (s32[], f32[8,8], f32[2,8]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[8,8] get-tuple-element(%state), index=1
  %w = f32[2,8] get-tuple-element(%state), index=2
  %whole = f32[8,8] all-gather(%w), replica_groups={{0,1,2,3}}, dimensions={0}
  %y = f32[8,8] add(%x, %whole)
  ROOT %made = (s32[], f32[8,8], f32[2,8]) tuple(%next, %y, %w)
}

%under (state: (s32[], f32[8,8], f32[2,8])) -> pred[] {
  %state = (s32[], f32[8,8], f32[2,8]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %n = s32[] constant(7)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: f32[8,8], w: f32[2,8]) -> f32[8,8] {
  %x = f32[8,8] parameter(0), sharding={replicated}
  %w = f32[2,8] parameter(1), sharding={devices=[4,1]<=[4]}
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,8], f32[2,8]) tuple(%zero, %x, %w)
  %done = (s32[], f32[8,8], f32[2,8]) while(%start), condition=%under, body=%body, backend_config={"known_trip_count":{"n":"7"}}
  ROOT %y = f32[8,8] get-tuple-element(%done), index=1
}
"""


def test_what_no_turn_changes_is_moved_before_the_loop() -> None:
    # XLA for the CPU hoists such a gather by itself: this text is from before that pass.
    (line,) = audit_text(LOOP, reshard.Mesh("tp=4")).lines
    assert (line.over, line.times, line.received_bytes, line.bound_bytes) == ("tp", 7, 7 * 4 * 64 * 3 // 4, 4 * 64 * 3 // 4)
    assert said(line) == [(FindingKind.SAME_IN_LOOP, "the same in each of 7 iterations: run it once before the loop")]
    assert line.findings[0].saved_bytes == line.received_bytes * 6 // 7
    changes = LOOP.replace("all-gather(%w)", "all-gather(%part)").replace(
        "  %whole", "  %i0 = s32[] constant(0)\n  %part = f32[2,8] dynamic-slice(%x, %i, %i0), dynamic_slice_sizes={2,8}\n  %whole"
    )
    # A part of a replicated value is replicated too, so its gather is unnecessary.
    (line,) = audit_text(changes, reshard.Mesh("tp=4")).lines
    assert (line.times, line.bound_bytes) == (7, 0) and "have the same already" in line.findings[0].message and line.findings[0].kind is FindingKind.NEEDLESS


def test_two_sums_are_one() -> None:
    run = per_rank(lambda x: lax.psum(lax.psum(x, "tp"), "dp"), P("dp", "tp"), P())
    found = audit(run, given((64, 32), "dp", "tp"))
    assert len(found.lines) == 2 and found.received_bytes > found.bound_bytes == summed(4 * 32 * 8, DP * TP)
    assert said(found) == [(FindingKind.REDUCED_AXIS_BY_AXIS, "a sum over dp of a sum over tp: one over both receives 1,792 B")]
    assert found.findings[0].saved_bytes == found.received_bytes - 1792 and found.findings[0].line is not None
    assert len(str(found).splitlines()) == 4


def test_shards_that_differ_in_the_order_of_sums_alone_are_the_same() -> None:
    """Also for complex numbers and for NaN sums; keys are compared by their data."""

    def ring(x: jax.Array) -> jax.Array:
        total = turned = x
        for _ in range(TP - 1):
            turned = lax.ppermute(turned, "tp", [(i, (i + 1) % TP) for i in range(TP)])
            total = total + turned
        return total

    cut, rows = P("dp", "tp"), P("dp")
    for kind in ("float32", "complex64"):
        x = given((4, 8), "dp", "tp", dtype=kind)
        assert audit(per_rank(ring, cut, rows), x).forgotten == ()
        assert len(audit(per_rank(lambda x: x + lax.axis_index("tp"), cut, rows), x).forgotten) == 1
    nothing = jax.device_put(-jnp.ones((4, 8)), named("dp", "tp"))
    assert audit(per_rank(lambda x: jnp.log(ring(x)), cut, rows), nothing).forgotten == ()
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=named())
    assert len(audit(per_rank(lambda k: jax.random.fold_in(k, lax.axis_index("tp")), P(), P()), key).forgotten) == 1
    assert audit(per_rank(lambda k: jax.random.fold_in(k, 3), P(), P()), key).forgotten == ()


# The parser of compiled modules.


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{3,1},{2,0}}", [[3, 1], [2, 0]]),
        ("[4,2]<=[8]", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("[4,2]<=[2,4]T(1,0)", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=4,'b'=2] {'a':(1)2}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=4,'b'=2] {'a':(2)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
    ],
)
def test_groups_are_read_as_the_library_reads_them(text: str, groups: list[list[int]]) -> None:
    assert replica_groups(text) == groups
    members = reshard.ProcessGroups.from_replica_groups(text).members()
    assert {frozenset(group) for group in groups} == {frozenset(group) for group in members}


def test_groups_over_devices_in_another_order() -> None:
    mesh, devices = "mesh['a'=4,'b'=1,'c'=2]", "([2,4]T(1,0)) {'a'}"
    assert replica_groups(mesh, devices) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    read = reshard.ProcessGroups.from_replica_groups(f"{mesh}, device_ids={devices}")
    assert [list(group) for group in read.members()] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(reshard.ReshardError, match="not the text of a compiled module"):
        Module("hello")
