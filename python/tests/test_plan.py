"""Plans: their inputs, their costs, and that a run gives the shards of the target."""

import os
import threading
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
import reshard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reshard import DType, Mesh, Plan, Planner, Sharding, Topology
from values import MESHES, round_trips, shapes, shardings

ml_dtypes = pytest.importorskip("ml_dtypes")

# The array type of every element type that has one.
ARRAYS = {
    "bool": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
    "u16": np.uint16,
    "i16": np.int16,
    "u32": np.uint32,
    "i32": np.int32,
    "u64": np.uint64,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "bf16": ml_dtypes.bfloat16,
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
    "f8_e8m0": ml_dtypes.float8_e8m0fnu,
    "f8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}

MOVED_ONLY = {"bool", "c64", "f8_e4m3", "f8_e5m2", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz"}


def whole(shape: tuple[int, ...], dtype: str) -> Any:
    """Returns a tensor whose elements are its indices, as far as the type can represent them.

    Types without arithmetic get arbitrary bytes, the others small whole numbers.
    """
    numel = int(np.prod(shape))
    kind = np.dtype(ARRAYS[dtype])
    if dtype in MOVED_ONLY - {"bool"}:
        return np.arange(numel * kind.itemsize, dtype=np.uint32).astype(np.uint8).view(kind).reshape(shape)
    return (np.arange(numel) % 120 + 1).astype(kind).reshape(shape)


def same(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def test_every_element_type_is_tried() -> None:
    assert {dtype.name for dtype in DType.all() if dtype.bits >= 8} == set(ARRAYS)


@pytest.mark.parametrize("dtype", list(ARRAYS))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_running_a_plan_is_scattering_to_its_target(dtype: str, data: st.DataObject) -> None:
    shape = data.draw(shapes())
    one_mesh = data.draw(st.booleans())
    mesh = data.draw(st.sampled_from(MESHES))
    other = mesh if one_mesh else data.draw(st.sampled_from(MESHES))
    terms = dtype not in MOVED_ONLY
    from_ = data.draw(shardings(mesh, shape, terms=terms))
    to = data.draw(shardings(other, shape, terms=False))
    tensor = whole(shape, dtype)
    plan = reshard.plan(from_, to, dtype)
    out = plan.run(from_.shard_all(tensor))
    expected = to.shard_all(tensor)
    assert len(out) == len(expected)
    assert all(same(a, b) for a, b in zip(out, expected, strict=True))
    # Into existing arrays, the result is the same.
    targets = [np.full_like(shard, 1) for shard in expected]
    written = plan.run(from_.shard_all(tensor), out=targets)
    assert all(a is b and same(a, c) for a, b, c in zip(written, targets, expected, strict=True))
    assert same(to.assemble(out), tensor)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_terms_are_reduced_to_their_meaning(data: st.DataObject) -> None:
    mesh = data.draw(st.sampled_from(MESHES))
    shape = data.draw(shapes(2))
    from_, to = data.draw(shardings(mesh, shape)), data.draw(shardings(mesh, shape))
    # Every partial value is a different one; its replicas are equal.
    shards: list[Any] = []
    terms: dict[tuple[int, ...], Any] = {}
    partial = from_.partial
    for rank in from_.mesh.ranks:
        place = dict(zip(from_.mesh.names, from_.mesh.coordinate(rank), strict=True))
        term = tuple(place[axis] for axis in partial)
        tensor = terms.setdefault(term, np.arange(from_.numel, dtype=np.int64).reshape(shape) * 7 + 1000 * len(terms))
        shards.append(from_.reduced().shard_all(tensor, rank))
    value = sum(terms.values()) if partial else terms[()]
    np.testing.assert_array_equal(from_.assemble(shards), value)
    np.testing.assert_array_equal(to.assemble(reshard.plan(from_, to, "i64").run(shards)), value)


@settings(max_examples=60, deadline=None)
@given(shardings(), st.data())
def test_plans_are_values(from_: Sharding, data: st.DataObject) -> None:
    to = data.draw(shardings(str(from_.mesh), from_.shape))
    plan = reshard.plan(from_, to, "f32", objective="bytes")
    round_trips(plan)
    assert Plan.from_json(plan.to_json()) == plan
    assert (plan.from_, plan.to, plan.dtype, plan.planner) == (from_, to, DType("f32"), Planner(objective="bytes"))
    greedy = Planner(objective="bytes").axis_by_axis(from_, to)
    if greedy is not None:
        round_trips(greedy)
    try:
        turned = plan.transposed()
    except reshard.ReshardError:
        return
    round_trips(turned)
    assert (turned.from_, turned.to) == (to.cotangent(), from_.cotangent())
    with pytest.raises(reshard.ReshardError, match="transposed"):
        turned.to_json()


@pytest.mark.parametrize(
    "planner",
    [
        Planner(),
        Planner(topology="h100", objective="peak", max_peak_bytes=1 << 20, deterministic=True),
        Planner(groups=["4:1", Mesh("dp=2,tp=4").group("dp")], arithmetic="framework", budget=100),
        Planner(topology=Topology.of(2.0, 0.25, [(8, 1.0, 400.0), (None, 5.0, 50.0)]), budget="none"),
    ],
)
def test_planners_are_values(planner: Planner) -> None:
    round_trips(planner)
    round_trips(planner.topology)


@pytest.mark.parametrize(("budget", "error"), [(-1, reshard.ReshardError), (1 << 64, reshard.ReshardError), (1.5, TypeError), ([], TypeError), ("much", reshard.ReshardError)])
def test_what_is_no_budget_is_told_in_a_sentence(budget: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"budget") as refused:
        Planner(budget=budget)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_the_parts_of_a_plan() -> None:
    mesh = Mesh("dp=2,tp=4")
    from_, to = Sharding(mesh, (64, 32), "S(0),S(1)"), Sharding(mesh, (64, 32), "R,S(1)")
    planner = Planner()
    plan = planner.plan(from_, to)
    assert planner.plan(from_, to) == plan and planner.cached == 1
    (step,) = plan.steps
    assert (step.op, step.axes, step.group.members(0), step.communicates) == ("all_gather", ["dp"], [0, 4], True)
    assert (step.before, step.after, step.received_bytes) == (from_, to, 1024)
    assert plan.received_bytes == plan.lower_bound_bytes == 1024
    assert plan.cost_us == planner.cost_us(from_, to) >= plan.lower_bound_us == planner.lower_bound_us(from_, to)
    (phase,) = plan.phases(0)
    assert (phase.step, phase.source_len, phase.target_len, phase.members) == (0, 256, 512, [0, 4])
    assert [(message.peer, message.numel) for message in phase.receives] == [(0, 256), (4, 256)]
    assert [(at, way, message.peer) for at, way, message in plan.messages(0)] == [(0, "send", 4), (0, "receive", 4)]
    assert "axis by axis" in plan.explain() and str(planner.explain(from_, to)) == plan.explain()
    assert plan.transposed().steps[0].op == "reduce_scatter"
    limited = Planner(groups=[mesh.group("tp")])
    with pytest.raises(reshard.ReshardError) as refused:
        limited.plan(from_, to)
    assert refused.value.kind in ("unsupported", "incompatible")
    some = Planner(groups=[mesh.group("dp"), mesh.group("tp")])
    slow = some.plan(Sharding(mesh, (64, 32), "P,P"), Sharding(mesh, (64, 32), "R,R"))
    assert all(us > 0 for _, us in some.group_savings(slow))


@pytest.mark.parametrize(
    ("wrong", "error", "kind"),
    [
        (lambda a, b: reshard.plan(a, Sharding("x=2", (3, 4), "R")), reshard.ReshardError, "incompatible"),
        (lambda a, b: reshard.plan(a, b, "f4"), reshard.ReshardError, None),
        (lambda a, b: reshard.plan(a, b, "f99"), reshard.ReshardError, None),
        (lambda a, b: reshard.plan(a, b, objective="speed"), reshard.ReshardError, "parse"),  # type: ignore[arg-type]
        (lambda a, b: reshard.plan(a, b, max_peak_bytes=1), reshard.ReshardError, "peak_too_small"),
        (lambda a, b: Topology("cray"), reshard.ReshardError, "topology"),
        (lambda a, b: reshard.plan(Sharding("x=2", (4, 4), "P"), b, "c64"), reshard.ReshardError, None),
        (lambda a, b: Plan.from_json("{}"), reshard.ReshardError, "parse"),
        (lambda a, b: reshard.plan(a, b).phases(7), reshard.ReshardError, "no_such_rank"),
        (lambda a, b: reshard.plan(a, b).run([]), reshard.PlanMismatch, "count"),
    ],
)
def test_refusals(wrong: Any, error: type[Exception], kind: str | None) -> None:
    a, b = Sharding("x=2", (4, 4), "S(0)"), Sharding("x=2", (4, 4), "S(1)")
    with pytest.raises(error) as refused:
        wrong(a, b)
    assert kind is None or refused.value.kind == kind  # type: ignore[attr-defined]
    assert len(str(refused.value)) > 10


def test_an_engine_that_cannot_start_says_so() -> None:
    mesh = "x=70000"
    plan = reshard.plan(Sharding(mesh, (1,), "R"), Sharding(mesh, (1,), "R"), "u8")
    with pytest.raises(reshard.EngineError) as failed:
        plan.run([np.zeros(1, np.uint8)] * 70000)
    assert (failed.value.kind, failed.value.rank, failed.value.step, failed.value.group) == ("threads", None, None, None)


def test_the_interpreter_goes_on_while_a_plan_runs() -> None:
    side = 4096
    from_, to = Sharding("x=4", (side, side), "S(0)"), Sharding("x=4", (side, side), "S(1)")
    shards = from_.shard_all(np.ones((side, side), np.float32))
    plan = reshard.plan(from_, to)
    assert sum(shard.nbytes for shard in shards) == 64 << 20
    counted, done = 0, threading.Event()

    def run() -> None:
        for _ in range(5):
            plan.run(shards)
        done.set()

    runner = threading.Thread(target=run)
    runner.start()
    while not done.is_set():
        counted += 1
    runner.join()
    assert counted > 1000


def test_threads_plan_and_run_at_once() -> None:
    from_, to = Sharding("x=4", (64, 64), "S(0)"), Sharding("x=4", (64, 64), "S(1)")
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            for _ in range(20):
                tensor = np.random.default_rng(seed).normal(size=(64, 64))
                out = reshard.plan(from_, to, "f64").run(from_.shard_all(tensor))
                np.testing.assert_array_equal(to.assemble(out), tensor)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_plans_and_runs() -> None:
    from_, to = Sharding("x=4", (8, 8), "S(0)"), Sharding("x=4", (8, 8), "S(1)")
    tensor = np.arange(64, dtype=np.float32).reshape(8, 8)
    reshard.plan(from_, to).run(from_.shard_all(tensor))
    child = os.fork()
    if child == 0:
        right = False
        try:
            out = reshard.plan(from_, to).run(from_.shard_all(tensor))
            right = bool((to.assemble(out) == tensor).all())
        finally:
            os._exit(0 if right else 1)
    deadline = time.monotonic() + 60
    while (state := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state[1] == 0 and state[0] == child


def test_ten_thousand_calls_leak_nothing() -> None:
    from_, to = Sharding("x=2", (32, 32), "S(0)"), Sharding("x=2", (32, 32), "S(1)")
    tensor = np.ones((32, 32), np.float32)

    def calls(many: int) -> None:
        for _ in range(many):
            plan = reshard.plan(from_, to)
            plan.steps[0].phases(0)
            repr(plan)
            plan.run(from_.shard_all(tensor))
            reshard.Layout("(4,2):(1,4)").complement(64)
            try:
                plan.run([])
            except reshard.PlanMismatch:
                pass

    def resident() -> int:
        with open("/proc/self/statm") as status:
            return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    calls(500)
    tracemalloc.start()
    calls(200)
    before = tracemalloc.get_traced_memory()[0]
    calls(200)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 50_000
    if os.path.exists("/proc/self/statm"):
        start = resident()
        calls(10_000)
        assert resident() - start < 8 << 20


def test_a_text_is_a_target_on_the_same_mesh() -> None:
    before = Sharding("dp=2,tp=4", (64, 32), "S(0),R")
    wanted = reshard.plan(before, Sharding("dp=2,tp=4", (64, 32), "R,S(1)"))
    assert reshard.plan(before, "R,S(1)") == wanted == Planner().plan(before, "R,S(1)")
    with pytest.raises(TypeError, match="expected a target Sharding, or placements"):
        reshard.plan(before, 3)  # type: ignore[arg-type]
