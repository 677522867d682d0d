"""Propagation: the choices of the command line, over many requests."""

import pytest
import reshard
from asked import ask
from hypothesis import given
from hypothesis import strategies as st

from reshard import ShardingSolver, Graph, Op, Operand, Planner, Propagator, ReshardError, Sharding, propagate
from values import round_trips

MESH = "dp=2,tp=4"
PLACEMENTS = st.sampled_from(["R", "S(0)", "S(1)", "P"])
PLACED = st.tuples(PLACEMENTS, PLACEMENTS).map(",".join).filter(lambda p: p not in ("S(0),P,",))
OPS = [("mm", [(64, 32), (32, 16)]), ("add", [(8, 12), (8, 12)]), ("softmax(dim=1)", [(8, 12)]), ("sum(dims=[0])", [(8, 12)])]


def requested(op, dtype, inputs):
    shapes = (f"{dtype}[{','.join(map(str, s))}]" for s in op.inputs)
    return [f"{shape} {placed}" for shape, placed in zip(shapes, inputs, strict=True)]


@given(st.sampled_from(OPS), st.data(), st.sampled_from(["f32", "bf16"]), st.sampled_from(["uniform", "h100"]))
def test_a_choice_is_that_of_the_command_line(call, data, dtype, topology):
    name, shapes = call
    op = Op(name, shapes)
    placed = [data.draw(PLACED) for _ in shapes]
    shardings = [Sharding(MESH, shape, p) for shape, p in zip(shapes, placed, strict=True)]
    arguments = ["propagate", "--op", name, "--mesh", MESH, "--shapes", ";".join(",".join(map(str, s)) for s in shapes)]
    arguments += ["--in", ";".join(placed), "--dtype", dtype, "--topology", topology]
    answer = ask(*arguments)
    assert "error" not in answer, answer
    choice = propagate(op, [(dtype, s) for s in shardings], "any", topology=topology)
    assert [str(s) for s in choice.inputs] == answer["in"]
    assert [str(s) for s in choice.outputs] == answer["out"]
    assert [str(s) for s in choice.computed] == answer["computed"]
    assert choice.cost_us == pytest.approx(answer["cost_us"])
    assert choice.communicating_steps == answer["steps"]
    assert choice.received_bytes == sum(move.received_bytes for move in choice.redistributions)


def test_advice_is_best_first_and_its_first_is_the_choice():
    op = Op("mm", [(64, 32), (32, 16)])
    inputs = [Sharding(MESH, (64, 32), "S(0),R"), Sharding(MESH, (32, 16), "R,S(0)")]
    advice = Propagator("h100").cheapest(op, inputs, 4)
    assert 1 < len(advice) <= 4 and [c.cost_us for c in advice] == sorted(c.cost_us for c in advice)
    best = Propagator("h100").propagate(op, inputs)
    assert (best.inputs, best.outputs) == (advice[0].inputs, advice[0].outputs)
    assert len(best.describe()) == 2 and str(best).count("\n") == 1


def test_explicit_takes_inputs_as_they_are_or_says_what_to_do():
    op = Op("mm", [(64, 32), (32, 16)])
    fits = [Sharding(MESH, (64, 32), "S(0),R"), Sharding(MESH, (32, 16), "R,S(1)")]
    assert [str(s) for s in Propagator().explicit(op, fits).outputs] == ["S(0),S(1)"]
    with pytest.raises(ReshardError, match="along tp the inputs are R,S\\(0\\)") as refused:
        Propagator().explicit(op, [fits[0], Sharding(MESH, (32, 16), "R,S(0)")])
    assert refused.value.kind == "needs_redistribute"


def test_what_is_wanted_of_outputs():
    op = Op("mm", [(64, 32), (32, 16)])
    inputs = [Sharding("tp=4", (64, 32), "S(1)"), Sharding("tp=4", (32, 16), "S(0)")]
    exactly = propagate(op, inputs, Sharding("tp=4", (64, 16), "R"))
    assert [str(s) for s in exactly.computed] == ["P(sum)"] and [str(s) for s in exactly.outputs] == ["R"]
    assert [move.operand for move in exactly.redistributions] == ["output 0"]
    assert [str(s) for s in propagate(op, inputs, "S(0)").outputs] == ["S(0)"]
    assert [str(s) for s in propagate(op, inputs, [("R", 0.001)]).outputs] == ["P(sum)"]
    assert [str(s) for s in propagate(op, inputs, "any").outputs] == ["P(sum)"]
    assert propagate(op, inputs).strategies == [("tp", "S(k1),S(k0) -> P")]
    assert propagate(Op("embedding", [(64, 32), (16,)]), [Sharding("tp=4", (64, 32), "S(0)"), Sharding("tp=4", (16,), "R")]).regions == ["tp"]
    assert [str(s) for s in propagate(Op("ones", [], shape=(4,)), [], mesh="tp=2").outputs] == ["R"]


def test_what_is_refused():
    op = Op("mm", [(64, 32), (32, 16)])
    with pytest.raises(ReshardError, match="give `mesh`"):
        propagate(Op("ones", [], shape=(4,)), [])
    with pytest.raises(TypeError, match="expected an Operand"):
        propagate(op, ["S(0)", "R"])
    with pytest.raises(ReshardError) as refused:
        propagate(op, [Sharding("tp=4", (64, 32), "R"), Sharding("tp=2", (32, 16), "R")])
    assert refused.value.kind and "\n" not in str(refused.value)
    with pytest.raises(ReshardError, match="2 constraints for the 1 outputs"):
        propagate(op, [Sharding("tp=4", s, "R") for s in op.inputs], ["any", "any"])
    x = Operand("bf16", Sharding("tp=4", (64, 32), "S(0)"))
    round_trips(x)
    assert str(x) == "bf16[64,32] [S(0)] on tp=4"


def test_a_planner_says_what_costs_are():
    op = Op("mm", [(64, 32), (32, 16)])
    inputs = [Sharding(MESH, (64, 32), "S(0),R"), Sharding(MESH, (32, 16), "R,S(0)")]
    planner = Planner(topology="h100")
    assert propagate(op, inputs, planner=planner).cost_us == propagate(op, inputs, topology="h100").cost_us
    assert Propagator(planner=planner) == Propagator("h100") and Propagator() != Propagator("h100")
    text = "mesh tp=4\nx: f32[8,16] S(1)\ny = relu(x)\nz: R = y"
    made = ShardingSolver(planner=planner).solve(Graph.parse(text))
    assert str(made) == str(ShardingSolver("allow", "h100").solve(Graph.parse(text)))


def test_the_text_of_an_op_is_one_on_its_inputs() -> None:
    x, w = Sharding("tp=4", (8, 6), "S(0)"), Sharding("tp=4", (6, 4), "R")
    for asked in (propagate, Propagator().propagate):
        assert str(asked("mm", [x, w])) == str(asked(Op("mm", [(8, 6), (6, 4)]), [x, w]))
    with pytest.raises(TypeError, match="expected an Op"):
        propagate(3, [x])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="softmax takes arrays"):
        reshard.softmax(x, dim=0)
