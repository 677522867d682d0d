"""Programs: the reports of the command line, round trips of texts, schedules, transforms, errors."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from asked import ask
from hypothesis import given
from hypothesis import strategies as st

import reshard
from reshard import ShardingSolver, Graph, Program, ComputeRates, ReshardError, Timeline
from values import round_trips

LAYER = """
mesh dp=2,tp=2
x: f32[8,16] S(0),I
w: f32[16,32] I,S(1)
v: f32[32,16] I,S(0)
h = mm(x, w)
a = relu(h)
y: S(0),I = mm(a, v)
loss = sum(y)
gradient loss wrt w, v
w' = sgd(w, dw)
v' = sgd(v, dv)
"""

STAGES = """
mesh pp=2,tp=2
mesh first: tp=2
mesh second: tp=2@2
x: f32[8,16] I on first
w: f32[16,32] S(1) on first
v: f32[32,16] S(0) on second
h = mm(x, w)
a = relu(h)
y: I on second = mm(a, v)
loss = sum(y)
gradient loss wrt w, v
"""

REGION = """
mesh tp=4
x: f32[8,16] S(1)
w: f32[16,32] S(0)
local tp
  in x: S(1)
  in w: S(0)
  h = mm(x, w)
  s: R = all_reduce(h)
  out y: R = s
end
"""


def text(x, w, v, with_gradient, size):
    lines = ["mesh dp=2,tp=2", f"x: f32[8,{size}] {x}", f"w: f32[{size},32] {w}", f"v: f32[32,16] {v}", "h = mm(x, w)",
             "a = silu(h)", "y = mm(a, v)", "s = softmax(y, dim=1)", "loss = sum(s)"]
    return "\n".join(lines + (["gradient loss wrt w, v"] if with_gradient else [])) + "\n"


TYPES = st.sampled_from(["R,R", "I,I", "S(0),R", "I,S(1)", "I,S(0)", "R,S(1)", "S(0),I", "S(1),R"])
MOVES = {"allow": [], "local-only": ["--explicit", "local-only"], "deny": ["--explicit"]}


def check(tmp_path, program, moves="allow", topology="uniform"):
    file = tmp_path / "program.txt"
    file.write_text(program)
    return ask("check", str(file), *MOVES[moves], "--topology", topology)


@given(x=TYPES, w=TYPES, v=TYPES, gradient=st.booleans(), size=st.sampled_from([16, 5]), moves=st.sampled_from(list(MOVES)), topology=st.sampled_from(["uniform", "h100"]))
def test_a_report_is_that_of_the_command_line(tmp_path_factory, x, w, v, gradient, size, moves, topology):
    program = text(x, w, v, gradient, size)
    answer = check(tmp_path_factory.getbasetemp(), program, moves, topology)
    try:
        made = reshard.program(program, implicit_redistribution=moves, topology=topology)
    except ReshardError as refused:
        assert answer["error"] == str(refused) and refused.kind
        return
    assert answer["program"] == str(made)
    report = made.report(ComputeRates.for_topology(topology))
    assert answer["peak_bytes"]["all"] == report.peak_bytes and answer["peak_bytes"]["at"] == report.peak_at
    assert sum(report.peak.values()) == report.peak_bytes
    for name in ("forward", "backward", "update"):
        assert answer["steps"][name] == report.traffic[name].steps
        assert answer["received_bytes"][name] == report.traffic[name].received_bytes
        assert answer["cost_us"][name] == pytest.approx(report.traffic[name].cost_us)
        assert answer["operations"][name] == report.operations[name]
        assert answer["compute_us"][name] == pytest.approx(report.compute_us[name])
    values = [(v["name"], v["dtype"], v["shape"], v["type"], v["class"], v["pass"]) for v in answer["values"]]
    mine = [(v.name, str(v.dtype), v.shape, v.type, v.class_, v.pass_) for v in report.values]
    assert values == mine or set(values) <= set(mine)
    assert [(m["value"], m["at"], m["from"], m["to"]) for m in answer["redistributions"]] == [(m.value, m.consumer, m.from_, m.to) for m in report.redistributions]
    assert [note["text"] for note in answer["notes"]] == list(report.notes)
    assert answer["optimality_gap_us"] == pytest.approx(report.optimality_gap_us) and answer["has_explicit_backward"] == report.has_explicit_backward
    round_trips(made)
    assert hash(Program(str(made))) == hash(made)


@pytest.mark.parametrize("source", [LAYER, STAGES, REGION])
def test_texts_are_read_again_and_run(source):
    made = reshard.program(source)
    assert Program(str(made)) == made and str(made.graph()) == str(made)
    rng = np.random.default_rng(2)
    inputs = {name: rng.normal(size=made[name].shape) for name in made.inputs}
    one, ranks = made.on_one_device(inputs), made.on_ranks(inputs, liveness=False)
    for name in ranks.names:
        np.testing.assert_allclose(ranks.whole(name), one[name], rtol=2e-5, atol=2e-5, err_msg=name)


def test_a_trace_is_that_of_the_command_line(tmp_path):
    file = tmp_path / "layer.txt"
    file.write_text(LAYER)
    made = reshard.program(LAYER)
    for rank in range(4):
        answer = ask("trace", str(file), "--rank", str(rank))
        schedule = made.compile(rank)
        events = schedule.trace()
        assert repr(events) == repr(made.trace(rank))
        assert answer["peak_bytes"] == schedule.arena_bytes and answer["flops"] == schedule.operations
        assert len(answer["schedule"]) == len(events)
        for said, event in zip(answer["schedule"], events, strict=True):
            if "call" in said:
                assert event.kind == "call" and event.call.startswith(said["call"])
                assert [o["shape"] for o in said["out"]] == [shape for _, _, shape in event.outputs]
            else:
                assert (event.kind, event.members, event.received_bytes) == (said["exchange"], said["group"], said["received_bytes"])
        assert len(schedule.instructions) == str(schedule).count("\n") - 1
        assert all(local.offset + local.bytes <= schedule.arena_bytes for local in schedule.buffers)


@pytest.mark.parametrize("options", [{}, {"in_flight_bytes": 1 << 20}, {"bucket_bytes": 1 << 20}, {"order": "1f1b"}])
@pytest.mark.parametrize("source", [LAYER, STAGES, LAYER.replace("x: f32[8,16] S(0),I", "x: f32[8,16] S(0),I\ng: f32[8] R,S(0)\ngr: R,R via bf16 = g")])
def test_the_steps_of_a_schedule_are_its_instructions(source, options):
    made = reshard.program(source)
    for rank in range(4):
        schedule = made.compile(rank, **options)
        offsets = {local.name: local.offset for local in schedule.buffers}

        def places(names):
            return ", ".join(f"{name}@{offsets.get(name, 0)}" for name in names)

        assert len(schedule.steps) == len(schedule.instructions)
        for step, line in zip(schedule.steps, schedule.instructions, strict=True):
            if step.kind == "call":
                assert line == f"{places(step.outputs)} = {step.call}({places(step.inputs)})" and not step.plans
                assert [list(of.shape) for of in step.call.outputs] == [schedule.buffers[[x.name for x in schedule.buffers].index(n)].shape for n in step.outputs]
            else:
                assert step.call is None and line.startswith(f"{step.kind} {places(step.outputs)}")
                if step.kind == "post":
                    before, _, by = line.partition(" by ")
                    assert before == f"post {places(step.outputs)} = {places(step.inputs)}"
                    assert any(by.startswith(one.op) for one in step.plans[0].steps)
                assert len(step.plans) == len(step.outputs)
                for plan, source_name, name in zip(step.plans, step.inputs, step.outputs, strict=True):
                    assert plan in schedule.plans
                    if name in made and source_name in made:
                        assert (plan.from_, plan.to) == (made[source_name].sharding, made[name].sharding)
        assert repr(schedule.plans) == repr(made.compile(0).plans)


def test_schedules_and_timelines():
    made = reshard.program(LAYER)
    plain = [made.compile(rank) for rank in range(4)]
    kept = [made.compile(rank, liveness=False) for rank in range(4)]
    assert all(a.arena_bytes < b.arena_bytes for a, b in zip(plain, kept, strict=True))
    line = Timeline(plain, ComputeRates.uniform())
    report = made.report()
    assert line.total_us == pytest.approx(sum(t.cost_us for t in report.traffic.values()) + sum(report.compute_us.values()), rel=0.2)
    assert len(line.lanes) == 4 and line.critical_path[-1][3] == pytest.approx(line.total_us)
    hoisted = Timeline([made.compile(rank, in_flight_bytes=1 << 20) for rank in range(4)])
    assert hoisted.total_us <= line.total_us
    assert [c.name or c.rule for c in plain[0].calls][:2] == ["mm", "relu"]
    assert {name for name, _ in plain[0].exchanges} >= {"x.1", "y"}


def test_passes_change_no_number():
    made = reshard.program(LAYER)
    rng = np.random.default_rng(2)
    inputs = {name: rng.normal(size=made[name].shape) for name in made.inputs}
    truth = made.on_ranks(inputs)
    again = made.rematerialize(["a"])
    assert "a.again" in str(again)
    least = made.report().peak_bytes - 1
    passes = [again, made.overlap_all(2), made.overlap(in_flight_bytes=1 << 20)]
    try:
        passes.append(made.rematerialize_to_fit(least))
    except ReshardError as refused:
        assert refused.kind
    for other in passes:
        ranks = other.on_ranks(inputs)
        for name in ("loss", "w'", "v'"):
            assert ranks.whole(name).tobytes() == truth.whole(name).tobytes()
    piece = Program("mesh tp=2\nx: f32[8,16] S(0)\nw: f32[16,4] S(1)\ng: R = x\nh = mm(g, w)\n")
    given = {"x": rng.normal(size=(8, 16)), "w": rng.normal(size=(16, 4))}
    pieces = piece.overlap_value("g", 2)
    assert len(pieces.redistributions) == 3 and pieces.on_ranks(given).whole("h").tobytes() == piece.on_ranks(given).whole("h").tobytes()
    wide = made.with_dtype("f64")
    assert wide["x"].dtype == reshard.DType("f64") and str(Program(str(wide))) == str(wide)
    with pytest.raises(ReshardError, match="computes with real numbers, not with i64"):
        made.with_dtype("i64")
    gathered = reshard.program("mesh dp=2\nx: f32[8,16] S(0)\nw: f32[16,16] S(0)\ng: R = w\nh = mm(x, g)\nl = sum(h)\ngradient l wrt w\n")
    assert gathered.gathered_parameters() == ["g"]


def test_graphs_are_built():
    graph = Graph("dp=2,tp=2")
    x = graph.input("x", "f32", (8, 16), "S(0),R")
    w = graph.input("w", "f32", (16, 32), "I,S(1)")
    [h] = graph.apply("mm", [x, w], ["h"])
    parts = graph.apply("split", [h], ["a", "b"], size=16, dim=1)
    assert parts == ["a", "b"] and graph.shape("a") == (8, 16) and str(graph.dtype("a")) == "f32"
    graph.constrain("a", "S(0),R")
    assert graph.constraint("a") == "S(0),R" and graph.constraint("h") is None
    [loss] = graph.apply("sum", ["a"], ["loss"])
    assert graph.gradient(loss, ["w"]) == ["dw"] and graph.gradients == [("loss", [("w", "dw")])]
    graph.no_grad()
    graph.apply("sgd", ["w", "dw"], ["w'"], lr=0.5)
    assert graph.inputs == ["x", "w"] and "w'" in graph and graph.values == 8
    assert Graph.parse(str(graph)) == graph
    assert Graph.parse("mesh dp=1,tp=2\nx: f32[64] S(0),R", axes=[("dp", 64)]).mesh.size == 128
    made = graph.solve(ShardingSolver("allow", "h100", beam_width=64))
    assert str(made["w'"].sharding) == "R,S(1)" and made["w'"].gradient is None and made.optimality_gap_us >= 0
    assert str(made["w"].gradient) == "R,S(1)" and made["w"].type == "I,S(1)"
    with pytest.raises(TypeError):
        hash(graph)


@pytest.mark.parametrize(
    ("source", "moves", "kind", "said"),
    [
        ("mesh tp=2\ny = relu(x)", "allow", "parse", "line 2: there is no value `x`"),
        ("mesh tp=4\nx: f32[64,32] R\nw: f32[32,16] S(0)\ny = mm(x, w)", "deny", "needs_redistribute", "write"),
        ("mesh tp=4\nx: f32[8,16] I\nw: f32[16,64] S(1)\nh = mm(x, w)\nl = sum(h)\ngradient l wrt x, w", "deny", "needs_gradient_redistribute", "write `x.1: R = x`"),
        ("mesh tp=2\nx: f32[8,8] R\ny = cholesky(x)\nl = sum(y)\ngradient l wrt x", "allow", "no_gradient", "no gradient"),
        ("mesh tp=2\nx: f32[8] S(1)", "allow", "no_such_dim", "line 2: x"),
        ("mesh tp=2\nx: f32[8] R\ny = relu(x, x)", "allow", "rule", "line 3: relu"),
        ("nonsense", "allow", "parse", "line 1"),
        ("mesh tp=4\nx: f32[8,16] S(1)\nlocal tp\n  in x: S(1)\n  h = sum(x, dims=[1])\n  out y: R = h\nend", "allow", "out_spec_mismatch", "line 6: `y` varies over tp"),
        ("mesh tp=4\nx: f32[8] S(0)\np: f32[2] P\nlocal tp\n  in x: S(0)\n  in p: P\n  h = mul(x, p)\nend", "allow", "program", "line 7: mul: along tp"),
    ],
)
def test_what_is_refused_is_one_sentence_with_a_kind(source, moves, kind, said):
    with pytest.raises(ReshardError, match=said) as refused:
        reshard.program(source, implicit_redistribution=moves)
    assert refused.value.kind == kind and "\n" not in str(refused.value)


def test_other_refusals():
    made = reshard.program(LAYER)
    for call, said in [
        (lambda: made["nothing"], "no value nothing"),
        (lambda: made.compile(9), "rank 9 is outside"),
        (lambda: made.compile(0, order="fast"), "unknown order"),
        (lambda: ShardingSolver("some"), "expected one of"),
        (lambda: made.on_ranks({}), "the input `x` is missing"),
        (lambda: made.on_one_device({"x": 1, "w": 2, "v": 3, "q": 3}), "x must be"),
        (lambda: made.on_ranks({}, kernels="fast"), "unknown kernels"),
        (lambda: made.check_replicas(["nonsense"]), "expected the rank"),
        (lambda: Timeline([made.compile(0), made.compile(0)]), "two schedules"),
        (lambda: reshard.program(LAYER).on_ranks({"x": np.ones((8, 16)), "w": np.ones((16, 32)), "v": np.ones((32, 16))}).whole("h"), "no longer live"),
    ]:
        with pytest.raises(ReshardError, match=said) as refused:
            call()
        assert refused.value.kind and "\n" not in str(refused.value)
    assert eval(repr(ComputeRates.h100()), {"ComputeRates": ComputeRates}) == ComputeRates.h100()
    assert pickle.loads(pickle.dumps(ComputeRates.h100())) == ComputeRates.h100()
    assert repr(ShardingSolver("local-only", "h100")).startswith("ShardingSolver('local-only', '")


def test_integers_and_truth_values_keep_their_types():
    source = "mesh tp=2\ni: i64[6] S(0)\nt: f32[8,4] R\ne = embedding(t, i)\nm = gt(e, e)\ny: R = e\nj: R = i\n"
    made = reshard.program(source)
    inputs = {"i": np.arange(6) % 4, "t": np.arange(32).reshape(8, 4)}
    one, ranks = made.on_one_device(inputs), made.on_ranks(inputs)
    assert (one["y"] == inputs["t"][inputs["i"]]).all() and one["m"].dtype == np.bool_ and one["j"].dtype == np.int64
    assert (ranks.whole("y") == one["y"]).all() and (ranks.whole("j") == inputs["i"]).all()
    with pytest.raises(ReshardError, match="not an integer dtype"):
        made.on_one_device({**inputs, "i": np.ones(6)})


def test_importing_loads_nothing_that_takes_time():
    # Times depend on the machine; the list of loaded modules does not.
    code = "import sys; before = set(sys.modules); import reshard; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    slow = {"numpy", "typing", "inspect", "dataclasses", "re", "tempfile", "ctypes", "json", "asyncio", "reshard._trace", "reshard.checkpoint"}
    assert "reshard._reshard" in loaded and not slow & set(loaded), loaded


def test_kernels_see_their_operands_where_they_lie():
    made = Program("mesh tp=2\nx: f32[8,4] S(0)\ny = relu(x)\nz = neg(y)\nt = permute(z, dims=[1,0])\n")
    seen = []

    def relu(call, x):
        seen.append(x)
        with pytest.raises(ValueError, match="read-only"):
            x[...] = 0
        return np.maximum(x, 0)

    # A result may be an input, or a view of one.
    kernels = {"relu": relu, "neg": lambda call, y: y}
    x = np.random.default_rng(3).normal(size=(8, 4)).astype("f4")
    ranks = made.on_ranks({"x": x}, kernels=kernels, liveness=False)
    assert np.array_equal(ranks.whole("t"), np.maximum(x, 0).T)
    assert len(seen) == 2 and all(of.base is not None for of in seen)
    # A kernel that holds on to an operand also holds its memory.
    del ranks
    assert sorted(of.tobytes() for of in seen) == sorted(half.tobytes() for half in np.split(x, 2))
