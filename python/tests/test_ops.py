"""Ops, rules and tables: the answers of the command line, and the ops of custom tables."""

import pickle

import numpy as np
import pytest
from asked import ask
from hypothesis import given
from hypothesis import strategies as st

import reshard
from reshard import Op, ReshardError, OpTable
from values import round_trips

CALLS = [
    ("mm", [(64, 32), (32, 16)], {}),
    ("mk,kn->mn", [(8, 6), (6, 4)], {}),
    ("softmax", [(8, 6)], {"dim": 1}),
    ("sum(dims=[0],keepdim=true)", [(8, 6)], {}),
    ("add", [(8, 6), (6,)], {}),
    ("cat", [(4, 6), (2, 6)], {"dim": 0}),
    ("leaky_relu", [(5, 3)], {"negative_slope": 0.25}),
    ("topk", [(8, 6)], {"k": 2}),
    ("embedding", [(16, 8), (5,)], {}),
    ("split", [(8, 6)], {"size": 2, "dim": 1}),
    ("permute", [(2, 3, 4)], {"dims": (2, 0, 1)}),
]


def text(op: Op) -> str:
    return ";".join(",".join(map(str, shape)) for shape in op.inputs)


@pytest.mark.parametrize(("call", "shapes", "arguments"), CALLS)
def test_an_op_is_what_the_command_line_says(call, shapes, arguments):
    op = Op(call, shapes, **arguments)
    answer = ask("rule", str(op), "--shapes", text(op))
    strategies = [row if isinstance(row, str) else row.get("strategy", row) for row in answer["strategies"]]
    assert [row if isinstance(row, str) else f"{','.join(row['in'])} -> {','.join(row['out'])}" for row in strategies] == op.strategies
    backward = ask("grad", str(op), "--shapes", text(op))
    assert backward["gradient"] == op.gradient()
    pairs = [(row["forward"], row["backward"]) for row in backward["rows"] if row["backward"]]
    mine = [(forward, one) for forward, list_ in op.transposes() for one in list_]
    assert set(mine) <= set(pairs)


@pytest.mark.parametrize(("call", "shapes", "arguments"), CALLS)
def test_repr_evaluates_to_an_equal_op_and_copies_are_equal(call, shapes, arguments):
    round_trips(Op(call, shapes, **arguments))


@given(st.sampled_from(OpTable().names), st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4))
def test_any_op_on_any_shapes_is_an_op_or_refused_in_a_sentence(name, shapes):
    try:
        op = Op(name, shapes)
    except ReshardError as refused:
        assert refused.kind and "\n" not in str(refused)
        return
    assert op.name == name and len(op.regions) == len(op.strategies)
    round_trips(op)


def test_keywords_are_arguments():
    assert Op("softmax", [(8, 6)], dim=1) == Op("softmax(dim=1)", [(8, 6)])
    assert Op("softmax", [(8, 6)], dim=1).arguments == {"dim": 1}
    assert Op("sum", [(8, 6)], dims=np.array([0]), keepdim=True) == Op("sum(dims=[0],keepdim=true)", [(8, 6)])
    assert Op("leaky_relu", [(4,)], negative_slope=np.float32(0.5)).arguments == {"negative_slope": 0.5}
    assert Op("mul_scalar", [(4,)], value=1e-5).arguments == {"value": 1e-5}


def test_what_an_op_is():
    mm = Op("mm", [(64, 32), (32, 16)])
    assert (mm.outputs, mm.rule, mm.is_view, mm.is_elementwise) == (((64, 16),), "mk,kn->mn", False, False)
    assert mm.operations == 2 * 64 * 32 * 16 and mm.batch_dims(0) == [(0, [0])]
    assert Op("relu", [(4,)]).is_elementwise and Op("view", [(4, 6)], shape=(24,)).is_view
    assert Op("add_", [(4,), (4,)]).in_place_inputs == [(0, 0)]
    assert mm.vjp([0, 1], [0]).outputs == ((64, 32), (32, 16))
    assert Op("scaled_dot_product_attention", [(2, 4, 8, 16)] * 3, causal=True).regions.count(True) == 1


def test_a_table_of_ones_own():
    table = OpTable()
    table.add("gated", "bsh,bsh->bsh {multilinear}")
    table.add("squash", "...->... {increasing}", "width: real >= 0 = 1.5")
    table.add_composite("mlp", "x, up, down -> y: h = mm(x, up); a = gelu(h); y = mm(a, down)")
    assert Op("gated", [(2, 3, 4)] * 2, table=table).strategies[0] == "S(b0),S(b0) -> S(b0)"
    assert table.parameters("squash") == {"width": "real >= 0 = 1.5"}
    assert Op("mlp", [(8, 6), (6, 16), (16, 6)], table=table).strategies[2] == "R,S(d1),S(d0) -> P"
    assert "gated" in table and "gated" not in OpTable() and len(table) == len(OpTable()) + 3
    assert table.composite("mlp").startswith("x,up,down -> y") or table.composite("mlp")
    assert table.gradient("mm", [(8, 6), (6, 4)])[0] == "dx0 = mn,kn->mk(dy,x1)"
    with pytest.raises(ReshardError, match="custom table"):
        pickle.dumps(Op("gated", [(2, 3, 4)] * 2, table=table))


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda: Op("sofmax", [(8, 6)]), "rule", "did you mean softmax"),
        (lambda: Op("mm", [(64, 32), (48, 16)]), "rule", "k is 32 in input 0 and 48 in input 1"),
        (lambda: Op("softmax", [(8, 6)], dimm=1), "rule", "no argument dimm"),
        (lambda: Op("mk,kn->mn", [(8, 6), (6, 4)], dim=1), "rule", "takes no argument `dim`"),
        (lambda: Op("cholesky", [(8, 8)]).gradient(), "no_gradient", "has no gradient"),
        (lambda: Op("view", [(4, 6)], shape=(25,)), None, "25"),
        (lambda: Op("mm", [(4, 6), (6, 2)]).batch_dims(3), "rule", "no input 3"),
        (lambda: OpTable().add("x", "a->"), None, ""),
        (lambda: OpTable().add_composite("x", "x -> y: y = nothing(x)"), "rule", "unknown op nothing"),
    ],
)
def test_what_is_refused_is_one_sentence_with_a_kind(call, kind, said):
    if said == "":
        call()
        return
    with pytest.raises(ReshardError, match=said) as refused:
        call()
    assert (kind is None or refused.value.kind == kind) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("call", "shapes", "arguments"), [c for c in CALLS if c[0] not in ("embedding",)])
def test_ops_compute_arrays_at_once(call, shapes, arguments):
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=shape).astype("f4") for shape in shapes]
    op = Op(call, shapes, **arguments)
    made = reshard.ops(call, *arrays, **arguments)
    made = made if isinstance(made, tuple) else (made,)
    assert tuple(m.shape for m in made) == op.outputs
    local = reshard._reshard.local_call(str(op), [a.shape for a in arrays], [a.dtype for a in arrays])
    for mine, reference in zip(made, local.reference(*arrays), strict=True):
        np.testing.assert_allclose(mine, reference, rtol=1e-5, atol=1e-6)


def test_a_rule_is_tried_on_a_function_of_arrays():
    relu = reshard.Verifier("relu", lambda x: np.maximum(x, 0))
    table = OpTable()
    table.add("right", "...->... {increasing}")
    table.add("wrong", "...->... {linear}")
    verdict = relu.verify([Op("right", [(6, 5)], table=table), Op("right", [(5, 4)], table=table)])
    assert verdict.checks > 10 and verdict.missing == [] and verdict.searched[0] > 0
    with pytest.raises(ReshardError, match="P -> P is wrong on 2 ranks: element") as refused:
        relu.verify(Op("wrong", [(6, 5)], table=table))
    assert refused.value.kind == "rule"
    assert relu.failing(Op("wrong", [(6, 5)], table=table)) == ["P -> P", "P(avg) -> P(avg)"]
    copy_ = reshard.Verifier("copy", lambda x: x)
    assert copy_.discover([([(6,)], [(6,)]), ([(5,)], [(5,)])])[:3] == ["R -> R", "?0 -> ?0", "P -> P"]
    mm = reshard.Verifier("mm", lambda x, y: x @ y)
    assert mm.verify([Op("mm", [(6, 4), (4, 5)]), Op("mm", [(3, 6), (6, 2)])]).checks > 20
    with pytest.raises(ReshardError, match="fails: boom"):
        reshard.Verifier("bad", lambda x: (_ for _ in ()).throw(ValueError("boom"))).verify(Op("relu", [(6, 5)]))
    with pytest.raises(ReshardError, match="expected one of: integers"):
        reshard.Verifier("bad", lambda x: x, data=["numbers"])


def test_a_function_that_knows_where_its_shard_lies():
    def rows(x, places, wanted):
        assert len(places) == len(wanted) == 1
        return x + np.array(places[0][0], "f8")[:, None]

    verifier = reshard.Verifier("rows", rows, places=True)
    table = OpTable()
    table.add("rows", "?0 -> ?0; ?1 -> ?1")
    assert verifier.verify(Op("rows", [(6, 5)], outputs=[(6, 5)], table=table)).checks > 0


def test_what_is_no_exception_comes_out_of_the_validator():
    def interrupted(x):
        raise KeyboardInterrupt

    for ask in ("verify", "failing"):
        with pytest.raises(KeyboardInterrupt):
            getattr(reshard.Verifier("relu", interrupted), ask)(Op("relu", [(6, 5)]))
