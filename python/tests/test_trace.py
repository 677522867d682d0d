"""Programs from functions: checked by hand and by finite differences, and on ranks against one device."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reshard
from reshard import Graph, Program, ReshardError

RNG = np.random.default_rng(5)
X, W1, W2 = (RNG.normal(size=s) for s in [(8, 16), (16, 12), (12, 4)])


def mlp(x, w1, w2):
    h = reshard.relu(x @ w1)
    return (h @ w2).sum()


def by_hand(x, w1, w2):
    return (np.maximum(x @ w1, 0) @ w2).sum()


def step(x, w1, w2):
    loss = mlp(x, w1, w2)
    dw1, dw2 = reshard.gradient(loss, [w1, w2])
    return {"loss": loss, "w1'": reshard.ops.sgd(w1, dw1, lr=0.1), "w2'": reshard.ops.sgd(w2, dw2, lr=0.1)}


def differences(f, arrays, at, h=1e-6):
    made = np.zeros_like(arrays[at])
    for index in np.ndindex(made.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[at][index] += sign * h
            ends.append(f(*moved))
        made[index] = (ends[0] - ends[1]) / (2 * h)
    return made


SHARDED = [
    ("dp=2,tp=2", "S(0),I", "I,S(1)", "I,S(0)"),
    ("dp=4", "S(0)", "I", "I"),
    ("dp=4", "S(0)", "R|S(0)", "R|S(0)"),
    ("dp=2", "S(0)", "S(0)", "S(0)"),
    ("tp=3", "R", "S(1)", "S(0)"),
    ("tp=1", "R", "R", "R"),
    ("dp=2,tp=3", "S(0),S(1)", "R,S(0)", "R,S(1)"),
]


def program(mesh, x, w1, w2, dtype="f64"):
    return reshard.program(step, mesh, x=(dtype, X.shape, x), w1=(dtype, W1.shape, w1), w2=(dtype, W2.shape, w2))


@pytest.mark.parametrize("sharded", SHARDED)
def test_a_step_is_numpy_by_hand_and_its_gradients_are_differences(sharded):
    made = program(*sharded)
    inputs = {"x": X, "w1": W1, "w2": W2}
    one = made.on_one_device(inputs)
    assert one["loss"] == pytest.approx(by_hand(X, W1, W2))
    for at, name in [(1, "w1"), (2, "w2")]:
        slope = differences(by_hand, [X, W1, W2], at)
        np.testing.assert_allclose(one[f"d{name}"], slope, atol=1e-7)
        np.testing.assert_allclose(one[f"{name}'"], [X, W1, W2][at] - 0.1 * slope, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"liveness": False}, {"in_flight_bytes": 1 << 20, "bucket_bytes": 1 << 20}, {"order": "1f1b"}, {"kernels": "reference"}])
@pytest.mark.parametrize("sharded", SHARDED)
def test_ranks_mean_what_one_device_has(sharded, options):
    made = program(*sharded)
    inputs = {"x": X, "w1": W1, "w2": W2}
    one = made.on_one_device(inputs)
    ranks = made.on_ranks(inputs, **options)
    assert {"loss", "w1'", "w2'"} <= set(ranks.names)
    if options.get("liveness") is False:
        assert set(ranks.names) == {value.name for value in made.values}
    for name in ranks.names:
        np.testing.assert_allclose(ranks.whole(name), one[name], rtol=1e-12, atol=1e-12, err_msg=name)
        value = made[name]
        assert [s.shape for s in ranks.shards(name)] == [value.sharding.local_shape(r) for r in range(made.mesh.size)]
    total = sum(t.received_bytes for t in made.report().traffic.values())
    if "bucket_bytes" not in options:
        assert ranks.received_bytes == total


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_element_types(dtype):
    made = program("dp=2,tp=2", "S(0),I", "I,S(1)", "I,S(0)", dtype)
    inputs = {"x": X, "w1": W1, "w2": W2}
    one, ranks = made.on_one_device(inputs), made.on_ranks(inputs)
    assert str(one["w1'"].dtype) == {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[dtype]
    tolerance = {"f32": 1e-5, "bf16": 0.1, "f16": 0.02}[dtype]
    for name in ("w1'", "w2'"):
        mine, whole = np.asarray(ranks.whole(name), "f8"), np.asarray(one[name], "f8")
        np.testing.assert_allclose(mine, whole, rtol=tolerance, atol=tolerance)
    # A sum of 32 rounded numbers of up to 30.
    for loss in (one["loss"], ranks.whole("loss")):
        assert float(np.asarray(loss, "f8")) == pytest.approx(by_hand(X, W1, W2), abs=tolerance * 30)


def operators(x, y, m):
    a = -x + 2 - y * 3 + (1 - x) / 2 + x / (y * y + 1) + 1 / (y * y + 2)
    b = abs(a) ** 0.5 + a**2 + (y * y) ** (x * 0 + 1)
    c = reshard.where(x < y, b, x) + reshard.where(x >= 0.5, y, x)
    d = (c @ m.T).reshape(-1, 2).T.permute(1, 0)
    e = c[1:3, None].expand(2, 5, 6).transpose(0, 1).sum(dims=1, keepdim=True)
    f = reshard.softmax(x[..., 2:], dim=1).mean(dims=[0]).exp()
    g = x[0] + x[:, 1].sum()
    return d, e, f, g, reshard.cat([x, y], dim=0), x.tanh().sum(-1), x.T


def operators_by_hand(x, y, m):
    a = -x + 2 - y * 3 + (1 - x) / 2 + x / (y * y + 1) + 1 / (y * y + 2)
    b = np.abs(a) ** 0.5 + a**2 + (y * y) ** (x * 0 + 1)
    c = np.where(x < y, b, x) + np.where(x >= 0.5, y, x)
    d = (c @ m.T).reshape(-1, 2)
    e = np.broadcast_to(c[1:3, None], (2, 5, 6)).swapaxes(0, 1).sum(1, keepdims=True)
    p = np.exp(x[..., 2:])
    f = np.exp((p / p.sum(1, keepdims=True)).mean(0))
    return d, e, f, x[0] + x[:, 1].sum(), np.concatenate([x, y]), np.tanh(x).sum(-1), x.T


KINDS = st.sampled_from(["R", "S(0)", "S(1)"])


@settings(max_examples=25)
@given(st.tuples(KINDS, KINDS), st.tuples(KINDS, KINDS), st.tuples(KINDS, KINDS), st.integers(0, 2**32 - 1))
def test_operators_are_those_of_numpy_on_any_sharding(x, y, m, seed):
    rng = np.random.default_rng(seed)
    inputs = {"x": rng.normal(size=(4, 6)), "y": rng.normal(size=(4, 6)), "m": rng.normal(size=(4, 6))}
    of = {name: ("f64", (4, 6), ",".join(p)) for name, p in [("x", x), ("y", y), ("m", m)]}
    made = reshard.program(operators, "a=2,b=2", **of)
    truth = operators_by_hand(**inputs)
    one, ranks = made.on_one_device(inputs), made.on_ranks(inputs)
    for n, whole in enumerate(truth):
        np.testing.assert_allclose(one[f"out{n}"], whole, rtol=1e-9, atol=1e-9, err_msg=str(n))
        np.testing.assert_allclose(ranks.whole(f"out{n}"), whole, rtol=1e-9, atol=1e-9, err_msg=str(n))


def test_moves_pins_and_strategies_are_written():
    def f(x, w):
        h = reshard.strategy(x @ w, ["S(1)", "S(0)"], ["P"])
        return reshard.constrain(h.to("I").relu(), "I")

    graph = reshard.trace(f, "tp=4", x=("f32", (8, 16), "S(1)"), w=("f32", (16, 8), "S(0)"))
    assert "by S(1); S(0) -> P(sum)" in str(graph) and "out: I = relu" in str(graph)
    assert isinstance(graph, Graph) and Graph.parse(str(graph)) == graph and eval(repr(graph), {"Graph": Graph}) == graph
    made = reshard.program(f, "tp=4", x=("f32", (8, 16), "S(1)"), w=("f32", (16, 8), "S(0)"), implicit_redistribution="deny")
    assert [item.kind for item in made.statements] == ["input", "input", "op", "move", "op"]
    assert made["out"].type == "I" and sum(item.received_bytes[0] for item in made.statements) > 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_wrong_for_two_ranks_is_rejected_for_one(ranks):
    def solved(weight, f=lambda x, w: x @ w):
        mesh = f"dp={ranks}"
        shapes = {"x": ((8, 4), "S(0)"), "w": ((4, 4), weight)}
        inputs = {name: ("f32", shape, reshard.ShardingType(mesh, shape, text)) for name, (shape, text) in shapes.items()}
        return reshard.program(f, mesh, implicit_redistribution="deny", **inputs)

    right = solved("R")
    assert [right[name].type for name in ("x", "w", "out")] == ["S(0)", "R", "S(0)"]
    assert str(reshard.program(str(right), implicit_redistribution="deny")) == str(right)
    moved = solved("R", lambda x, w: reshard.constrain((x @ w).to("S(1)").relu(), "S(1)"))
    assert moved["out"].type == "S(1)"
    region = f"mesh dp={ranks}\nx: f32[8,4] S(0)\nlocal dp\n  in x: S(0)\n  s = sum(x, dims=[0])\n  out y: P = s\nend\nz = relu(y)\n"
    for wrong in (lambda: solved("S(0)"), lambda: solved("R", lambda x, w: x.to("S(1)") @ w), lambda: reshard.program(region, implicit_redistribution="deny")):
        with pytest.raises(ReshardError, match="along dp") as refused:
            wrong()
        assert refused.value.kind == "needs_redistribute"


def test_ones_own_kernels_and_ops():
    table = reshard.OpTable()
    table.add("gated", "ij,ij->ij {multilinear}")

    def f(x, y):
        return x.gated(y).sum()

    made = reshard.program(f, "dp=2", table=table, x=("f64", (4, 6), "S(0)"), y=("f64", (4, 6), "S(0)"))
    called = []

    def gated(call, x, y):
        called.append(call.inputs[0].shape)
        return x * y

    inputs = {"x": X[:4, :6], "y": X[4:, :6]}
    ranks = made.on_ranks(inputs, kernels={"gated": gated})
    assert ranks.whole("out") == pytest.approx((inputs["x"] * inputs["y"]).sum())
    assert sorted(called) == [(2, 6), (2, 6)]
    with pytest.raises(ReshardError, match="does not implement `gated`"):
        made.on_ranks(inputs)


def test_a_kernel_that_fails_says_so_and_stops_all_ranks():
    made = program("dp=2,tp=2", "S(0),I", "I,S(1)", "I,S(0)")

    def wrong(call, x):
        raise ZeroDivisionError("by hand")

    with pytest.raises(ZeroDivisionError, match="by hand"):
        made.on_ranks({"x": X, "w1": W1, "w2": W2}, kernels={"relu": wrong})
    with pytest.raises(ReshardError, match="a result of `relu` must be f64"):
        made.on_ranks({"x": X, "w1": W1, "w2": W2}, kernels={"relu": lambda call, x: x[:1]})


def test_replicas_that_are_none_are_found():
    made = reshard.program(lambda x: x.exp(), "tp=2", x=("f64", (4,), "I"))
    good = made.on_ranks({"x": X[0, :4]}, hashed=True)
    assert len(good.hashes) == 2 and made.check_replicas(good.hashes) == 2
    drawn = np.random.default_rng(1)
    bad = made.on_ranks({"x": X[0, :4]}, hashed=True, kernels={"exp": lambda call, x: drawn.normal(size=x.shape)})
    with pytest.raises(ReshardError, match="`out` is the same over tp by its type") as refused:
        made.check_replicas(bad.hashes)
    assert refused.value.kind == "replicas"


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (lambda x: bool(x > 0), "`if` and `while` cannot test it"),
        (lambda x: x.nothing(), "no op of that name"),
        (lambda x: np.exp(x), "does not support ufuncs"),
        (lambda x: float(x), "has no numbers"),
        (lambda x: reshard.softmax(x, 1), "give arguments by name"),
        (lambda x: reshard.softmax(x, dim=5), "out of range for a tensor"),
        (lambda x: x @ x, "2 dims|k is|mm"),
        (lambda x: 3, "returns int"),
        (lambda x: {"y": 3}, "is not a tensor"),
        (lambda x: x, "returns its input x"),
        (lambda x: (lambda y: (y, y))(x.exp()), "returns one tensor"),
        (lambda x: [row for row in x], "unbind"),
        (lambda x: {"x": x.exp()}, "`x` is defined twice"),
    ],
)
def test_what_cannot_be_written_down_is_said_in_a_sentence(f, said):
    with pytest.raises((ReshardError, AttributeError, TypeError), match=said) as refused:
        reshard.program(f, "tp=2", x=("f32", (4, 6), "S(0)"))
    assert "\n" not in str(refused.value)


def test_tensors_are_of_their_function():
    kept = []
    reshard.trace(lambda x: kept.append(x.exp()), "tp=2", x=("f32", (4,), "R"))
    with pytest.raises(ReshardError, match="has returned"):
        kept[0] + 1
    with pytest.raises(ReshardError, match="belong to two traced functions|has returned"):
        reshard.trace(lambda x: kept[0] + x, "tp=2", x=("f32", (4,), "R"))
    with pytest.raises(ReshardError, match="the parameter y has no type"):
        reshard.trace(lambda x, y: x, "tp=2", x=("f32", (4,), "R"))
    with pytest.raises(ReshardError, match="no parameter z"):
        reshard.trace(lambda x: x.exp(), "tp=2", x=("f32", (4,), "R"), z=("f32", (4,), "R"))
    with pytest.raises(ReshardError, match="invalid input x"):
        reshard.trace(lambda x: x.exp(), "tp=2", x="S(0)")
    with pytest.raises(ReshardError, match="needs a mesh"):
        reshard.program(lambda x: x.exp(), x=("f32", (4,), "R"))


def test_several_meshes():
    def f(x, w):
        e = x.to("S(0) on experts")
        return (e @ w).to("R,R")

    made = reshard.program(f, "dp=2,tp=2", meshes={"experts": "ep=4"}, x=("f64", (8, 16), "S(0),R"), w=("f64", (16, 12), "R on experts"))
    assert list(made.meshes) == ["default", "experts"] and "on experts" in str(made)
    ranks = made.on_ranks({"x": X, "w": W1})
    np.testing.assert_allclose(ranks.whole("out"), X @ W1)
    assert isinstance(made, Program)


def test_training_goes_down():
    made = program("dp=2,tp=2", "S(0),I", "I,S(1)", "I,S(0)")
    values, losses = {"x": X, "w1": W1, "w2": W2}, []
    for _ in range(5):
        ranks = made.on_ranks(values)
        losses.append(float(ranks.whole("loss")))
        values = {"x": X, "w1": ranks.whole("w1'"), "w2": ranks.whole("w2'")}
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


def test_regions_are_per_device_code():
    def ring(region, x, w):
        assert region.shape(x) == (8, 4) and region.local_type(x, "tp") == "V"
        h = region.op("mm", x, w)
        parts = region.op("split", h, size=6, dim=1)
        h = region.op("cat", *parts, dim=1)
        return region.all_reduce(h, "tp", "R")

    def f(x, w):
        [y] = reshard.shard_map(ring, "tp", [(x, "S(1)"), (w, "S(0)")], ["R"])
        return {"y": y, "z": y * 2}

    made = reshard.program(f, "tp=4", x=("f64", (8, 16), "S(1)"), w=("f64", (16, 12), "S(0)"))
    inputs = {"x": X, "w": W1}
    ranks = made.on_ranks(inputs)
    np.testing.assert_allclose(ranks.whole("z"), 2 * X @ W1)
    np.testing.assert_allclose(made.on_one_device(inputs)["y"], X @ W1)


def test_a_region_says_what_is_wrong_and_changes_nothing():
    graph = Graph("tp=4")
    graph.input("x", "f32", (8, 16), "S(1)")
    before = str(graph)
    kept = []

    def forgotten(region, x):
        kept.append((region, x))
        return region.op("sum", x, dims=[1])

    with pytest.raises(ReshardError, match="varies over tp but is declared R") as refused:
        graph.shard_map("tp", [("x", "S(1)")], ["R"], forgotten)
    assert refused.value.kind == "out_spec_mismatch"
    with pytest.raises(ReshardError, match="has returned"):
        kept[0][0].op("exp", kept[0][1])

    def fails(region, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        graph.shard_map("tp", [("x", "S(1)")], ["R"], fails)
    with pytest.raises(ReshardError, match="dp"):
        graph.shard_map("dp", [("x", "S(1)")], ["R"], forgotten)
    with pytest.raises(TypeError, match="must return its values"):
        graph.shard_map("tp", [("x", "S(1)")], ["R"], lambda region, x: [3])
    assert str(graph) == before


def test_collectives_of_regions():
    def body(region, x):
        last = region.shift(x, "cp", 1)
        both = region.op("add", x, last)
        gathered = region.all_gather(both, "cp", 0, "R")
        assert region.shape(gathered) == (4, 6) and region.local_type(gathered, "cp") == "R"
        summed = region.reduce_scatter(both, "cp", 0)
        return both, summed, region.all_to_all(both, "cp", 1, 0)

    graph = Graph("cp=2")
    graph.input("x", "f64", (4, 6), "S(0)")
    names = graph.shard_map("cp", [("x", "S(0)")], ["S(0)", "S(0)", "S(1)"], body)
    ranks = graph.solve().on_ranks({"x": X[:4, :6]})
    both = X[:4, :6] + np.roll(X[:4, :6], 2, 0)
    np.testing.assert_allclose(ranks.whole(names[0]), both)
    np.testing.assert_allclose(ranks.whole(names[1]), both[:2] + both[2:])
    np.testing.assert_allclose(ranks.whole(names[2]), both)


@given(
    counts=st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=n, max_size=n)),
    more=st.none() | st.integers(0, 2),
)
def test_exchanges_by_counts_are_the_slices(counts, more):
    ranks = len(counts)
    rows = max(1, max(map(sum, counts)))
    received = [sum(column) for column in zip(*counts, strict=True)]
    room = None if more is None else max(received) + more
    seen = []

    def body(region, x):
        made = region.all_to_all_v(x, "ep", 0, counts, room)
        seen.append(region.shape(made))
        return made

    graph = Graph(f"ep={ranks}")
    graph.input("x", "f64", (ranks * rows, 2), "S(0)")
    if not sum(received):
        return
    [name] = graph.shard_map("ep", [("x", "S(0)")], ["S(0)"], body)
    x = np.arange(1.0, 1 + ranks * rows * 2).reshape(ranks * rows, 2)
    shards = graph.solve().on_ranks({"x": x}).shards(name)
    starts = [np.cumsum([0, *row]) for row in counts]
    for j, shard in enumerate(shards):
        whole = np.zeros((max(received) if room is None else room, 2))
        parts = [x[i * rows + starts[i][j] : i * rows + starts[i][j + 1]] for i in range(ranks)]
        whole[: received[j]] = np.concatenate(parts)
        assert seen == [whole.shape]
        np.testing.assert_array_equal(shard, whole)


def test_a_region_gathers_parts_of_their_own_sizes():
    def body(region, x):
        return region.all_gather(x, "cp", 0, "R", sizes=[1, 4])

    graph = Graph("cp=2")
    graph.input("x", "f64", (5, 6), "RG(0,[1,4])")
    [name] = graph.shard_map("cp", [("x", "RG(0,[1,4])")], ["R"], body)
    np.testing.assert_array_equal(graph.solve().on_ranks({"x": X[:5, :6]}).whole(name), X[:5, :6])
    with pytest.raises(ReshardError, match="only one of `zigzag`, `tiles` and `sizes`") as refused:
        graph.shard_map("cp", [("x", "RG(0,[1,4])")], ["R"], lambda region, x: region.all_gather(x, "cp", 0, "R", sizes=[1, 4], zigzag=True))
    assert refused.value.kind == "usage"



def test_threads_write_down_functions_of_their_own() -> None:
    def masked(x):
        time.sleep(0.002)  # so that the other threads are in the middle of a trace
        return x * reshard.ops.ones(shape=[8, 16])

    failed = []

    def work() -> None:
        try:
            for _ in range(5):
                reshard.program(masked, "dp=2", x=("f32", (8, 16), "S(0)"))
        except ReshardError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
