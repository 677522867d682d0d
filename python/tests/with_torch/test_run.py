"""Programs by PyTorch's ops and c10d: ranks run their schedules, and their shards equal one device's."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import Replicate, Shard

import reshard
from definition import device_mesh
from ranks import Ranks
from reshard import EngineError, Op, Program, ReshardError, OpTable, _kernels
from reshard._reshard import local_call
from reshard.torch import RankEvent, Groups, Runner, run
from reshard.torch.kernels import KERNELS, kernel_of
from reshard.torch.run import cut

# Columns and then rows of the weights over tp, the batch over dp; weights are updated where they are stored.
MEGATRON = """
mesh dp=2,tp=2
x: f64[8,16] S(0),I
w: f64[16,32] I,S(1)
v: f64[32,16] I,S(0)
h = mm(x, w)
a = silu(h)
y: S(0),I = mm(a, v)
z = mul(y, y)
loss = sum(z)
gradient loss wrt w, v
w' = sgd(w, dw, lr=0.01)
v' = sgd(v, dv, lr=0.01)
"""

# One layer of data-parallel training, for a given type of the weights.
ZERO = """
mesh dp=4
x: f64[8,12] S(0)
w: f64[12,20] {w}
v: f64[20,3] {v}
h = mm(x, w)
a = tanh(h)
y = mm(a, v)
p = log_softmax(y, dim=1)
loss = sum(p)
gradient loss wrt w, v
w' = sgd(w, dw, lr=0.1)
v' = sgd(v, dv, lr=0.1)
"""

STAGES = """
mesh pp=2,tp=2
mesh first: tp=2
mesh second: tp=2@2
x: f64[8,16] I on first
w: f64[16,32] S(1) on first
v: f64[32,16] S(0) on second
h = mm(x, w)
a = relu(h)
y: I on second = mm(a, v)
loss = sum(y)
gradient loss wrt w, v
"""

# Extents that axes do not divide: some ranks have empty shards.
UNEVEN = """
mesh dp=2,tp=2
x: f64[3,5] S(0),S(1)
w: f64[5,1] S(0),R
h: R,S(0) = mm(x, w)
s: S(0),R = exp(h)
t: R,R = s
out: S(1),R = t
"""

WIRE = """
mesh dp=4
x: f32[8,12] S(0)
w: f32[12,20] S(0)
wr: R via bf16 = w
h = mm(x, wr)
loss = sum(h)
gradient loss wrt w
w' = sgd(w, dw, lr=0.1)
"""

PROGRAMS = {
    "megatron": MEGATRON,
    "zero 0": ZERO.format(w="I", v="I"),
    "zero 2": ZERO.format(w="R|S(0)", v="R|S(0)"),
    "zero 3": ZERO.format(w="S(0)", v="S(0)"),
    "stages": STAGES,
    "uneven": UNEVEN,
    "wire": WIRE,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "as written": {},
    "all values": {"liveness": False},
    "early": {"in_flight_bytes": 1 << 20},
    "buckets": {"bucket_bytes": 1 << 20},
    "1f1b": {"order": "1f1b"},
}


def given_to(program: Program, seed: int = 3) -> dict[str, np.ndarray]:
    """Returns whole inputs of a program."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=program[name].shape).astype({"f32": "f4", "f64": "f8"}[program[name].dtype.name]) for name in program.inputs}


def ran(rank: int, text: str, options: dict[str, Any]) -> tuple[dict[str, np.ndarray], list[RankEvent], int]:
    """Runs a program, and returns a rank's results and its events."""
    program = reshard.program(text)
    runner = Runner(program, **options)
    shards = {name: runner.shard(name, torch.from_numpy(whole)) for name, whole in given_to(program).items() if rank in program[name].sharding.mesh}
    made = runner(shards)
    again = runner(shards)
    for name, tensor in made.items():
        assert torch.equal(tensor, again[name]), f"{name} is another the second time"
    return {name: tensor.numpy() for name, tensor in made.items() if name in program}, runner.trace, runner.received_bytes


@pytest.mark.parametrize("options", list(OPTIONS))
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_all_ranks_are_one_device_and_the_kernels_of_numpy(four: Ranks, name: str, options: str) -> None:
    text, chosen = PROGRAMS[name], OPTIONS[options]
    program = reshard.program(text)
    answers = four.run(ran, text, chosen)
    given = given_to(program)
    one, by_numpy = program.on_one_device(given), program.on_ranks(given, **chosen)
    compared = 0
    tolerance = 1e-12 if name != "wire" else 2e-2
    for value in by_numpy.names:
        if value not in program:
            continue  # a value in the communication dtype
        of = program[value]
        shards = [answers[rank][0][value] for rank in of.sharding.mesh.ranks]
        whole = of.sharding.assemble(shards)
        np.testing.assert_allclose(whole, one[value], rtol=tolerance, atol=tolerance, err_msg=value)
        for mine, theirs in zip(shards, by_numpy.shards(value), strict=True):
            near = 1e-12 if name != "wire" else 1e-5
            # Of partial values only the sum is determined: the plan chooses how it is distributed over ranks.
            if "P(" not in str(of.sharding):
                np.testing.assert_allclose(mine, theirs, rtol=near, atol=near, err_msg=value)
        compared += 1
    assert compared >= len(program.inputs)


@pytest.mark.parametrize("options", ["as written", "early", "buckets", "1f1b"])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_what_a_rank_does_is_what_the_typed_program_says(four: Ranks, name: str, options: str) -> None:
    text, chosen = PROGRAMS[name], OPTIONS[options]
    program = reshard.program(text)
    for rank, (_, did, received) in enumerate(four.run(ran, text, chosen)):
        events = program.trace(rank) if options in ("as written", "1f1b") else program.compile(rank, **chosen).trace()
        calls = [(e.call, [(n, tuple(s)) for n, _, s in e.inputs], [(n, tuple(s)) for n, _, s in e.outputs]) for e in events if e.kind == "call"]
        mine = [(one.what, list(one.takes), list(one.makes)) for one in did if one.what != "exchange"]
        if options == "1f1b":
            calls, mine = sorted(calls), sorted(mine)
        assert mine == calls
        brought: dict[str, int] = {}
        for event in events:
            if event.kind != "call":
                key = ", ".join(made for made, _, _ in event.outputs)
                brought[key] = brought.get(key, 0) + event.received_bytes
        ours = {", ".join(made for made, _ in one.makes): one.received_bytes for one in did if one.what == "exchange"}
        if options != "buckets":
            assert {key: n for key, n in ours.items() if n} == {key: n for key, n in brought.items() if n}
        assert received == sum(brought.values())


def in_f32(rank: int, text: str) -> dict[str, np.ndarray]:
    return ran(rank, text, {})[0]


@pytest.mark.parametrize("name", ["megatron", "zero 0", "zero 2", "zero 3"])
def test_in_f32_all_ranks_are_one_device(four: Ranks, name: str) -> None:
    text = PROGRAMS[name].replace("f64", "f32")
    program = reshard.program(text)
    answers, one = four.run(in_f32, text), program.on_one_device(given_to(program))
    for value in answers[0]:
        whole = program[value].sharding.assemble([answers[rank][value] for rank in range(4)])
        np.testing.assert_allclose(whole, one[value], rtol=1e-5, atol=1e-5, err_msg=value)


def trained(rank: int, text: str, steps: int) -> dict[str, np.ndarray]:
    """Returns the weights after some steps, of which only the first gets them as inputs."""
    program = reshard.program(text)
    runner = Runner(program)
    inputs = {name: runner.shard(name, torch.from_numpy(whole)) for name, whole in given_to(program).items()}
    made = runner(inputs)
    for step in range(1, steps):
        made = runner({"x": runner.shard("x", torch.from_numpy(given_to(program, step)["x"]))})
    return {name: tensor.numpy() for name, tensor in made.items()}


@pytest.mark.parametrize("name", ["megatron", "zero 0", "zero 2", "zero 3"])
def test_steps_go_on_where_the_last_one_ended(four: Ranks, name: str) -> None:
    program = reshard.program(PROGRAMS[name])
    answers = four.run(trained, PROGRAMS[name], 4)
    given = given_to(program)
    one = program.on_one_device(given)
    for step in range(1, 4):
        one = program.on_one_device({"x": given_to(program, step)["x"], "w": one["w'"], "v": one["v'"]})
    for value in ("w'", "v'"):
        whole = program[value].sharding.assemble([answers[rank][value] for rank in range(4)])
        np.testing.assert_allclose(whole, one[value], rtol=1e-11, atol=1e-11)
        assert not np.allclose(whole, given[value[0]])


def by_dtensors(rank: int) -> None:
    """Inputs may be DTensors, and are rejected if they have another sharding."""
    mesh = device_mesh((2, 2), ("dp", "tp"))
    program = reshard.program("mesh dp=2,tp=2\nx: f32[8,4] S(0),R\ny: S(0),R = exp(x)\n")
    whole = torch.arange(32.0).reshape(8, 4) / 32
    given = torch.distributed.tensor.distribute_tensor(whole, mesh, [Shard(0), Replicate()], src_data_rank=None)
    runner = Runner(program, groups=Groups(mesh))
    torch.testing.assert_close(runner({"x": given})["y"], given.to_local().exp())
    with pytest.raises(ReshardError, match="redistribute it first"):
        runner({"x": given.redistribute(placements=[Replicate(), Replicate()])})
    with pytest.raises(ReshardError, match=r"x is torch.float32\[4, 4\] on rank"):
        runner({"x": whole})
    with pytest.raises(ReshardError, match="the input x is missing"):
        Runner(program)({})
    with pytest.raises(ReshardError, match="the program has no input z; it has the inputs x"):
        runner({"x": given, "z": whole})


def test_inputs_are_dtensors_or_shards(four: Ranks) -> None:
    four.run(by_dtensors)


def with_unknown(text: str) -> Program:
    """A program with an op that only its table knows."""
    table = OpTable.standard()
    table.add("unknown", "...->... {none}")
    return reshard.Graph.parse(text, table=table).solve()


def own_functions(rank: int) -> None:
    """A custom function replaces PyTorch's or adds a missing one; otherwise the error names op and remedy."""
    program = with_unknown("mesh dp=4\nx: f64[8,4] S(0)\ny = unknown(x)\nz = exp(y)\n")
    with pytest.raises(ReshardError, match=r"no PyTorch function for unknown; give one as kernels=\{'unknown'"):
        Runner(program)
    called = []

    def doubled(call: Any, x: torch.Tensor) -> torch.Tensor:
        called.append(str(call))
        return 2 * x

    x = torch.full((2, 4), 0.5, dtype=torch.float64)
    made = run(program, {"x": x}, kernels={"unknown": lambda call, x: torch.erf(x), "exp": doubled})
    torch.testing.assert_close(made["z"], 2 * torch.erf(x))
    assert called == ["exp"]


def by_the_reference(rank: int) -> None:
    """An op without a PyTorch function, and one on a shard of its table, are computed by the reference."""
    program = reshard.Graph.parse("mesh tp=4\nw: f32[8,4] S(0)\nt: i64[6] R\nx = embedding(w, t)\ny: R = x\nz = erfc(y)\nk = cast(y, dtype=i64)\n").solve()
    torch.manual_seed(0)
    w, t = torch.randn(8, 4), torch.tensor([0, 7, 3, 3, 5, 1])
    runner = Runner(program)
    made = runner({"w": runner.shard("w", w), "t": t})
    torch.testing.assert_close(made["z"], cut(program["z"].sharding, torch.erfc(w[t]), rank))
    assert made["k"].dtype == torch.int64 and torch.equal(made["k"], cut(program["k"].sharding, w[t].long(), rank))


def test_ops_without_a_function_are_computed_by_the_reference(four: Ranks) -> None:
    four.run(by_the_reference)


def test_ops_without_a_function_are_named(four: Ranks) -> None:
    four.run(own_functions)


def one_raises(rank: int) -> tuple[str, str, int | None, float]:
    """Rank 2's function raises in the first step; then all ranks continue."""
    program = reshard.program(PROGRAMS["megatron"])

    def broken(call: Any, x: torch.Tensor) -> torch.Tensor:
        if rank == 2 and is_broken:
            raise ZeroDivisionError("on purpose")
        return torch.nn.functional.silu(x)

    runner = Runner(program, kernels={"silu": broken})
    inputs = {name: runner.shard(name, torch.from_numpy(whole)) for name, whole in given_to(program).items()}
    is_broken, start = True, time.monotonic()
    with pytest.raises(ZeroDivisionError if rank == 2 else EngineError) as error:
        runner(inputs)
    took, is_broken = time.monotonic() - start, False
    made = runner(inputs)
    fresh = Runner(program)(inputs)
    for name, tensor in made.items():
        torch.testing.assert_close(tensor, fresh[name], rtol=1e-12, atol=1e-12)
    return type(error.value).__name__, str(error.value), getattr(error.value, "rank", None), took


def test_a_rank_that_raises_is_named_to_the_others_at_once_and_all_go_on(four: Ranks) -> None:
    for rank, (kind, text, named, seconds) in enumerate(four.run(one_raises)):
        assert seconds < 60  # longer means that it hangs
        if rank == 2:
            assert (kind, text) == ("ZeroDivisionError", "on purpose")
        else:
            assert (kind, named) == ("EngineError", 2) and text == "rank 2 raised in a step: ZeroDivisionError: on purpose"


def one_disagrees(rank: int) -> list[tuple[str, int | None]]:
    """Rank 1 has another program, or cannot run its own."""
    seen = []
    text = PROGRAMS["megatron"]
    with pytest.raises(EngineError) as error:
        Runner(reshard.program(text.replace("silu", "relu") if rank == 1 else text))
    seen.append((str(error.value), error.value.rank))
    program = with_unknown("mesh dp=4\nx: f64[8,4] S(0)\ny = unknown(x)\n")
    with pytest.raises(ReshardError if rank == 1 else EngineError) as other:
        Runner(program, kernels={} if rank == 1 else {"unknown": lambda call, x: torch.erf(x)})
    seen.append((str(other.value), getattr(other.value, "rank", None)))
    return seen


def test_a_rank_that_disagrees_is_named_to_the_others(four: Ranks) -> None:
    for rank, seen in enumerate(four.run(one_disagrees)):
        assert seen[0] == ("rank 1 has another program, or other options, than the 3 others: nothing ran", 1)
        if rank != 1:
            assert seen[1][1] == 1 and "rank 1 cannot run the program: ReshardError: there is no PyTorch function for unknown" in seen[1][0]


ARGUMENTS: list[dict[str, Any]] = [
    {}, {"dim": 1}, {"dim": -1}, {"dims": [0]}, {"dims": [0, -1], "keepdim": True}, {"dims": [1, 0]}, {"value": 1.5}, {"exponent": 3},
    {"start": 0, "end": 1}, {"start": 1}, {"approximate": "tanh"},
    {"shape": [4, 3]}, {"shape": [12]}, {"shape": [2, 3, 4]}, {"dim0": 0, "dim1": 1}, {"lr": 0.5}, {"dim": 0, "sizes": [3, 1]}, {"dtype": "f32"},
]
SHAPES: list[list[tuple[int, ...]]] = [
    [], [(3, 4)], [(3, 4), (3, 4)], [(3, 4), (4,)], [(3, 4)] * 3, [(3, 4), (4, 5)], [(2, 3, 4), (2, 4, 5)], [(3, 4), (5, 4), (5,)], [(4,), (4,)], [(4,), (5,)], [(1, 4)], [(3, 1)],
]


def test_the_table_has_what_that_of_numpy_has() -> None:
    assert set(_kernels.KERNELS) <= set(KERNELS)


def test_every_argument_of_a_function_is_tried() -> None:
    tried = {key for arguments in ARGUMENTS for key in arguments}
    for name in KERNELS:
        assert set(OpTable.standard().parameters(name) or {}) <= tried, name


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_function_of_pytorch_is_the_reference(name: str, dtype: str) -> None:
    rng, compared = np.random.default_rng(1), 0
    for shapes in SHAPES:
        for arguments in ARGUMENTS:
            try:
                op = Op(name, shapes, **arguments)
            except ReshardError:
                continue
            arrays = [(rng.integers(-40, 40, size=s) / 16 + 1 / 64).astype(dtype) for s in op.inputs]
            if name == "where":
                arrays[0] = arrays[0] > 0
            call = local_call(str(op), [a.shape for a in arrays], [a.dtype for a in arrays])
            try:
                truth = call.reference(*arrays)
            except ReshardError:
                continue
            made = kernel_of(call, torch.device("cpu"), {})([torch.from_numpy(a) for a in arrays])
            assert len(made) == len(truth)
            near = 2e-6 if dtype == "f4" else 1e-12
            for mine, reference in zip(made, truth, strict=True):
                assert tuple(mine.shape) == reference.shape
                np.testing.assert_allclose(mine.numpy(), reference, rtol=near, atol=near, err_msg=str(op))
            compared += 1
    assert compared > 0, "no call of it was tried"


@pytest.mark.parametrize("rule", ["ij,jk->ik", "mn,kn->mk", "bij->bji", "ij->", "i,j->ij", "bhqd,bhkd->bhqk"])
def test_a_rule_is_the_reference(rule: str) -> None:
    letters = sorted(set(rule) - set(",->"))
    sizes = dict(zip(letters, [2, 3, 4, 5, 3, 2], strict=False))
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=tuple(sizes[letter] for letter in part)) for part in rule.split("->")[0].split(",")]
    call = local_call(rule, [a.shape for a in arrays], [a.dtype for a in arrays])
    (made,) = kernel_of(call, torch.device("cpu"), {})([torch.from_numpy(a) for a in arrays])
    (truth,) = call.reference(*arrays)
    np.testing.assert_allclose(made.numpy(), truth, rtol=1e-12, atol=1e-12)
