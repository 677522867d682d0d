"""The types that `parallelize` chooses: the answer is a program that takes as long, fits, and is not below the bound."""

import functools
import signal

import pytest

import reshard
from reshard import ComputeRates, Graph, Parallelized, Program, ReshardError, ShardingSolver, ShardingType, parallelize

STEP = """
mesh a=2,b=2
x: f32[512,128] ?
w: f32[128,512] ?
v: f32[512,128] ?
h = mm(x, w)
u = silu(h)
y = mm(u, v)
r = silu(y)
g = mm(r, w)
s = silu(g)
z = mm(s, v)
loss = sum(z)
gradient loss wrt w, v
no_grad
m: f32[128,512] ?
n: f32[512,128] ?
w', m' = sgd_momentum(w, dw, m)
v', n' = sgd_momentum(v, dv, n)
"""


@functools.cache
def limited(percent: int = 100, topology: str | None = None) -> Parallelized:
    """Returns the answer with this part of the peak that it has without a limit."""
    if percent == 100:
        return parallelize(STEP, topology=topology)
    return parallelize(STEP, topology=topology, memory=limited(100, topology).peak_bytes * percent // 100)


def total_us(program: Program, rates: ComputeRates) -> float:
    report = program.report(rates)
    return sum(report.compute_us.values()) + sum(traffic.cost_us for traffic in report.traffic.values())


@pytest.mark.parametrize("topology", [None, "h100"])
@pytest.mark.parametrize("percent", [100, 80])
def test_the_answer_is_a_program_without_implicit_redistributions(topology: str | None, percent: int) -> None:
    found = limited(percent, topology)
    rates = ComputeRates.uniform() if topology is None else ComputeRates.for_topology(topology)
    explicit = ShardingSolver("deny", topology).solve(Graph.parse(str(found.program)))
    assert total_us(explicit, rates) == pytest.approx(found.time_us, abs=1e-6)
    assert explicit.report(rates).peak_bytes == found.peak_bytes == found.program.report(rates).peak_bytes
    assert 0 < found.bound_us <= found.time_us
    assert found.gap == pytest.approx(1 - found.bound_us / found.time_us)
    assert list(found.types) == ["x", "w", "v", "m", "n"]
    for name, chosen in found.types.items():
        assert isinstance(chosen, ShardingType) and chosen.value == found.program[name].sharding
    # A state has the sharding of its parameter's gradient.
    assert found.types["m"].value == found.types["w"].gradient and found.types["m"].gradient is None


def test_less_memory_takes_longer() -> None:
    answers = [limited(percent) for percent in (100, 90, 80, 70)]
    for percent, found in zip((100, 90, 80, 70), answers, strict=True):
        assert found.peak_bytes <= answers[0].peak_bytes * percent / 100 and found.bound_us >= answers[0].bound_us
    times, peaks = [found.time_us for found in answers], [found.peak_bytes for found in answers]
    assert times == sorted(times) and peaks == sorted(peaks, reverse=True) and times[0] < times[-1]


def test_a_limit_is_a_number_or_a_text() -> None:
    limit = limited().peak_bytes
    for memory in (limit, f"{limit}", f"{limit / 1000} kB", f"{limit / 1024}KiB"):
        found = parallelize(STEP, memory=memory)
        assert found.time_us == limited().time_us and f"bytes of {limit}>" in repr(found)
    with pytest.raises(ReshardError, match="invalid memory `lots`: expected bytes such as 80GB, 16GiB or 1000000"):
        parallelize(STEP, memory="lots")
    with pytest.raises(ReshardError, match="out of range"):
        parallelize(STEP, memory=-1)
    with pytest.raises(TypeError):
        parallelize(STEP, memory=1.5)  # type: ignore[arg-type]


def test_a_limit_that_cannot_be_met_is_rejected() -> None:
    with pytest.raises(ReshardError, match="no types were found for which the program fits in 1000 bytes per rank; .* use more ranks, or raise the limit") as error:
        parallelize(STEP, memory=1000)
    assert error.value.kind == "memory"


def test_programs_without_a_gradient_are_rejected() -> None:
    with pytest.raises(ReshardError, match="one `gradient`; this program has 0"):
        parallelize("mesh a=2\nx: f32[4] ?\ny = relu(x)\n")
    with pytest.raises(TypeError, match="expected the text of a program or a Graph, found int"):
        parallelize(3)  # type: ignore[arg-type]


def test_a_graph_is_taken_too() -> None:
    graph = Graph.parse(STEP)
    assert str(parallelize(graph).program) == str(limited().program)
    with pytest.raises(ReshardError, match="open"):
        reshard.program(graph)


def test_recomputed_values_are_those_of_forward() -> None:
    free, found = limited(), limited(80)
    assert free.recomputed == [] and found.recomputed
    forward = {name for statement in found.program.statements[: found.program.forward] for name in statement.outputs}
    assert set(found.recomputed) <= forward
    assert all(f"{name}.again" in found.program for name in found.recomputed)


def test_a_signal_ends_the_search() -> None:
    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    try:
        # A search that finds nothing takes seconds.
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stopped):
            parallelize(STEP, memory=1_000_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
