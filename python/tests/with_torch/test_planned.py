"""DTensor under `planned`: forward, backward, twice, compiled; fallbacks and their reasons; a clean exit."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.tensor._api as _api
import torch.distributed.tensor._dispatch as _dispatch
import torch.distributed.tensor._redistribute as _redistribute
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _MaskPartial
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from definition import Counted, R, device_mesh, dtensor, kept_graphs, shard, whole_of
from ranks import Ranks
from reshard import ReshardError
from reshard.torch import FALLBACKS, Groups, FallbackError, planned, redistribute_local, sharding

AXES = ("a", "b", "c")
PLAIN = [R, Shard(0), Shard(1)]
# Every pair of placements on two axes; the first one may have partial values.
PAIRS = list(itertools.product(itertools.product([*PLAIN, Partial()], repeat=2), itertools.product(PLAIN, repeat=2)))
OWN = _redistribute.redistribute_local_tensor


def group_count() -> int:
    return len(dist.distributed_c10d._world.pg_map)


def every_dtype(rank: int) -> None:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    names = "float64 float32 float16 bfloat16 int8 uint8 int16 int32 int64 bool complex64 float8_e4m3fn uint16 uint32 uint64".split()
    before, after = [Shard(0), Shard(1)], [Shard(1), Shard(0)]
    with planned(strict=True) as plans:
        for name in names:
            dtype = getattr(torch, name)
            whole = (whole_of((8, 8)) % 7).to(dtype)
            made = dtensor(whole, before, mesh).redistribute(placements=after).to_local()
            assert made.dtype == dtype
            assert torch.equal(made.view(torch.uint8), shard(whole, after, mesh).view(torch.uint8)), name
    assert plans.report().plans == len(names)


def test_every_dtype_moves(eight: Ranks) -> None:
    eight.run(every_dtype)


def every_op(rank: int) -> None:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    for op, dtype in itertools.product(["sum", "avg", "min", "max", "product"], [torch.float32, torch.float64, torch.int64]):
        if op in ("avg", "product") and not dtype.is_floating_point:
            continue
        whole = whole_of((13, 7), dtype)
        for before in [(Partial(op), R), (Partial(op), Shard(0)), (Partial(op), Partial(op)), (Shard(1), Partial(op))]:
            for after in [(R, R), (Shard(0), R), (Shard(1), Shard(0)), (Shard(0), Shard(0))]:
                with planned(strict=True):
                    made = dtensor(whole, before, mesh).redistribute(placements=after).to_local()
                assert torch.equal(made, shard(whole, after, mesh)), (op, dtype, before, after)
    terms = whole_of((8, 8)).to(torch.complex64) * (1 + 2j)
    with planned(strict=True):
        made = dtensor(terms, (Partial(), R), mesh).redistribute(placements=(Shard(0), R)).to_local()
    assert torch.equal(made, shard(terms, (Shard(0), R), mesh))


def test_every_op_of_terms(eight: Ranks) -> None:
    eight.run(every_op)


def derivatives(rank: int) -> None:
    mesh = device_mesh((2, 2, 2), AXES)
    whole = whole_of((8, 8), torch.float64) / 64
    chains = [
        [(Shard(0), Shard(1), R), (Shard(1), Shard(0), R), (R, Shard(0), Shard(0))],
        [(Partial(), Shard(0), R), (Shard(0), Shard(0), Shard(1)), (R, R, R)],
        [(R, R, R), (Shard(0), Shard(0), Shard(0)), (Shard(1), Shard(1), Shard(1))],
    ]
    for chain in chains:
        results, calls = [], []
        for use in (False, True):
            x = dtensor(whole, chain[0], mesh, requires_grad=True)
            leaf = x
            leaf.retain_grad() if not leaf.is_leaf else None
            with Counted() as counted:
                with planned(strict=True) if use else _nothing():
                    y = x
                    for placements in chain[1:]:
                        y = y.redistribute(placements=placements)
                        y = y * y
                    loss = y.sum().full_tensor()
                    (first,) = torch.autograd.grad(loss, x, create_graph=True)
                    # Still strict: the second pass may not fall back either.
                    (second,) = torch.autograd.grad((first * first).sum().full_tensor(), x)
            results.append([loss.detach(), first.full_tensor().detach(), second.full_tensor().detach()])
            calls.append(len(counted.calls))
        for theirs, ours in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        assert calls[1] <= calls[0], calls
    assert _redistribute.redistribute_local_tensor is OWN


def _nothing() -> Any:
    return contextlib.nullcontext()


def test_first_and_second_derivatives_are_pytorchs_own(eight: Ranks) -> None:
    eight.run(derivatives)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def training(rank: int) -> None:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    made = []
    for use in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(Block(), Block())
        plan = {f"{i}.{name}": style for i in range(2) for name, style in [("up", ColwiseParallel()), ("down", RowwiseParallel())]}
        parallelize_module(model, mesh["tp"], plan)
        fully_shard(model, mesh=mesh["dp"])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(100 + rank // 4)
        with planned() if use else _nothing() as plans:
            for _ in range(3):
                loss = model(torch.randn(4, 16)).square().mean()
                loss.backward()
                optimizer.step()
                gradients = [p.grad.full_tensor() for p in model.parameters()]
                optimizer.zero_grad()
        if use:
            # PyTorch divides a bias to add it to partial values.
            assert plans.report().plans > 0 and set(plans.report().fallbacks) <= {"into terms"}
        made.append([loss.detach(), *gradients, *(p.full_tensor().detach() for p in model.parameters())])
    for theirs, ours in zip(*made, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_training_with_fsdp2_and_tensor_parallel(eight: Ranks) -> None:
    eight.run(training)


def compiled(rank: int) -> None:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    graphs, keep = kept_graphs()

    from torch._dynamo.backends.common import aot_autograd

    def change(x: DTensor) -> DTensor:
        return (x * 2).redistribute(placements=[Shard(1), Shard(0)])

    whole = whole_of((16, 8)) / 16
    torch._dynamo.reset()
    with planned(strict=True):
        function = torch.compile(change, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True)
        x = dtensor(whole, [Shard(0), Shard(1)], mesh, requires_grad=True)
        y = function(x)
        assert torch.equal(y.to_local(), shard(whole * 2, [Shard(1), Shard(0)], mesh))
        (y * y).sum().full_tensor().backward(inputs=[x] if not x.is_leaf else None)
    gradient = x.grad
    assert gradient is not None and tuple(gradient.placements) == (Shard(0), Shard(1))
    assert torch.equal(gradient.to_local(), shard(whole * 8, [Shard(0), Shard(1)], mesh))
    assert len(graphs) == 2
    for graph in graphs:
        assert graph.count("all_to_all_single") == 1 and "all_gather" not in graph, graph


def test_compiled_graphs_have_the_plans_calls(eight: Ranks) -> None:
    eight.run(compiled)


def for_all_ranks(rank: int) -> None:
    """A graph that one rank compiles for all is equal on all ranks, and correct on this one."""
    mesh = device_mesh((2, 4), ("dp", "tp"))
    whole = whole_of((16, 8)) / 16
    x = dtensor(whole, [Shard(0), Shard(1)], mesh)

    def change(x: DTensor) -> DTensor:
        return (x * 2).redistribute(placements=[R, Shard(0)])

    def graph_of() -> str:
        graphs: list[str] = []

        def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            graphs.append(graph.code)
            return graph.forward

        from torch._dynamo.backends.common import aot_autograd

        torch._dynamo.reset()
        y = torch.compile(change, backend=aot_autograd(fw_compiler=keep), fullgraph=True)(x)
        assert torch.equal(y.to_local(), shard(whole * 2, [R, Shard(0)], mesh))
        assert len(graphs) == 1
        return graphs[0]

    with torch.compiler.config.patch(compile_on_one_rank=True):
        own = graph_of()
        with planned() as plans:
            assert graph_of() == own
            assert set(plans.report().fallbacks) == {"one rank"} and plans.report().plans == 0, plans.report()
            # Code that is not compiled uses a plan.
            assert torch.equal(change(x).to_local(), shard(whole * 2, [R, Shard(0)], mesh))
            assert plans.report().plans == 1
        # Plans that are requested explicitly have no fallback.
        before, after = sharding(x), sharding(x.redistribute(placements=[R, R]))
        with FakeTensorMode(), pytest.raises(ReshardError, match="compile_on_one_rank"):
            redistribute_local(torch.empty(8, 2), before, after, groups=Groups(mesh))
    everyones: list[Any] = [None] * 8
    dist.all_gather_object(everyones, own)
    assert everyones == [own] * 8
    with planned():
        dist.all_gather_object(everyones, graph_of())
    assert len(set(everyones)) > 1, "a plan's graph is one rank's"


def test_a_graph_for_all_ranks_has_no_plan(eight: Ranks) -> None:
    eight.run(for_all_ranks)


def orders(rank: int) -> int:
    mesh = device_mesh((2, 2, 2), AXES)
    done = 0
    for shape in [(8, 8), (17, 5)]:
        whole = whole_of(shape)
        meta = TensorMeta(whole.shape, whole.stride(), whole.dtype)

        def placed(order: tuple[int, ...]) -> DTensorSpec:
            return DTensorSpec(mesh, (Shard(0),) * 3, tensor_meta=meta, shard_order=(ShardOrderEntry(0, order),))

        others = [DTensorSpec(mesh, (R, Shard(1), Shard(0)), tensor_meta=meta), DTensorSpec(mesh, (R, R, R), tensor_meta=meta)]
        specs = [(placed(order), order) for order in itertools.permutations(range(3))] + [(other, (0, 1, 2)) for other in others]
        for (before, first), (after, second) in itertools.permutations(specs, 2):
            local = shard(whole, before.placements, mesh, first)
            with planned(strict=True):
                made = _redistribute.redistribute_local_tensor(local, before, after)
            assert torch.equal(made, shard(whole, after.placements, mesh, second)), (before, after)
            done += 1
    return done


def test_shard_orders(eight: Ranks) -> None:
    assert eight.run(orders) == [112] * 8


def specs_left_behind(rank: int) -> None:
    """An in-place op may leave a spec with other dims than its shard; results then have PyTorch's shape."""
    mesh = device_mesh((8,), ("dp",))
    row, weight = whole_of((8,), torch.float64), whole_of((8, 8), torch.float64)
    for first, second in itertools.product([R, Shard(0)], [R, Shard(0), Shard(1)]):
        made = []
        for use in (False, True):
            x, w = dtensor(row, [first], mesh), dtensor(weight, [second], mesh)
            with planned(strict=True) if use else _nothing():
                y = torch.nn.functional.linear(x, w)
                made.append((y.full_tensor(), y.redistribute(placements=[R]).to_local()))
        for own, ours in zip(*made, strict=True):
            assert own.shape == ours.shape and torch.equal(own, ours), (first, second, own.shape, ours.shape)
        assert made[1][0].shape == (8,)
    terms = dtensor(weight[:1], [Partial()], mesh)
    terms.squeeze_(0)
    with planned(strict=True):
        assert torch.equal(terms.full_tensor(), weight[0])


def test_specs_that_ops_in_place_leave_behind(eight: Ranks) -> None:
    eight.run(specs_left_behind)


def any_order_of_devices(rank: int) -> None:
    groups = torch.tensor([[5, 1, 3, 0], [2, 7, 4, 6]])
    mesh = DeviceMesh("cpu", groups, mesh_dim_names=("dp", "tp"))
    before_count = group_count()
    for shape in [(16, 8), (13, 7)]:
        whole = whole_of(shape)
        for before, after in PAIRS:
            with planned(strict=True):
                made = dtensor(whole, before, mesh).redistribute(placements=after)
            assert torch.equal(made.to_local(), shard(whole, after, mesh)), (before, after)
    assert group_count() == before_count


def test_device_meshes_in_any_order(eight: Ranks) -> None:
    eight.run(any_order_of_devices)


def fallbacks(rank: int) -> None:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    cube = DeviceMesh("cpu", torch.arange(4).reshape(2, 2), mesh_dim_names=("x", "y"))
    whole = whole_of((8, 8))
    meta = TensorMeta(whole.shape, whole.stride(), whole.dtype)

    def spec(*placements: Any, on: DeviceMesh = mesh) -> DTensorSpec:
        return DTensorSpec(on, placements, tensor_meta=meta)

    cases: list[tuple[str, DTensorSpec, DTensorSpec]] = [
        ("into terms", spec(R, R), spec(R, Partial())),
        ("into terms", spec(R, Shard(0)), spec(R, Partial())),
        ("terms", spec(R, Partial()), spec(R, Partial("max"))),
        ("terms", spec(Partial("sum"), Partial("max")), spec(R, R)),
        ("placement", spec(R, Partial("bor")), spec(R, R)),
        ("placement", spec(R, _MaskPartial()), spec(R, R)),
        ("dtype", spec(R, Partial("avg")), spec(R, R)),
        ("dtype", spec(R, Shard(0)), spec(R, R)),
        ("meshes", spec(Shard(0), R), spec(R, Shard(0), on=device_mesh((4, 2)))),
    ]
    if rank >= 4:
        cases.append(("outside", spec(Shard(0), R, on=cube), spec(R, R, on=cube)))
    for reason, before, after in cases:
        local = torch.zeros(8, 8)
        if reason == "dtype":
            local = torch.zeros(2, 8, dtype=torch.complex128) if before.placements[1] == Shard(0) else local.to(torch.int64)
        plans = planned()
        with plans:
            try:
                _redistribute.redistribute_local_tensor(local, before, after)
            except BaseException:
                pass  # PyTorch's own error, which is expected
        assert plans.report().fallbacks == {reason: 1}, (reason, before, after, plans.report())
        assert plans.report().plans == 0 and reason in str(plans.report())
        if reason != "outside":
            with planned(strict=True), pytest.raises(FallbackError) as refused:
                _redistribute.redistribute_local_tensor(local, before, after)
            assert refused.value.reason == reason and FALLBACKS[reason] in str(refused.value)
    # The same specs for a shard of another type, after a plan.
    with planned(strict=True), pytest.raises(FallbackError, match="no type"):
        _redistribute.redistribute_local_tensor(torch.zeros(2, 8), spec(R, Shard(0)), spec(R, R))
        _redistribute.redistribute_local_tensor(torch.zeros(2, 8, dtype=torch.complex128), spec(R, Shard(0)), spec(R, R))
    # A symbolic shape, and a mode.
    unknown = TensorMeta((ShapeEnv().create_unbacked_symint(), 8), (8, 1), torch.float32)  # type: ignore[arg-type]
    symbolic = [DTensorSpec(mesh, placements, tensor_meta=unknown) for placements in ((R, Shard(1)), (R, R))]
    for reason, pair, mode in [("symbolic", symbolic, _nothing()), ("local tensor", [spec(R, Shard(0)), spec(R, R)], LocalTensorMode(frozenset({rank})))]:
        with planned(strict=True), mode, pytest.raises(FallbackError) as refused:
            _redistribute.redistribute_local_tensor(torch.zeros(8, 2), *pair)
        assert refused.value.reason == reason
    # And a device mesh without any group.
    alone = DeviceMesh("cpu", torch.arange(8).reshape(4, 2), _init_backend=False)
    with _no_default_group(), planned(strict=True), pytest.raises(FallbackError) as refused:
        _redistribute.redistribute_local_tensor(torch.zeros(2, 8), spec(Shard(0), R, on=alone), spec(R, R, on=alone))
    assert refused.value.reason == "groups"
    assert {reason for reason, _, _ in cases} | {"outside", "symbolic", "local tensor", "one rank", "groups"} == set(FALLBACKS)


@contextlib.contextmanager
def _no_default_group() -> Iterator[None]:
    """Hides the default group: device meshes have only their axes' groups, as on meshes below the world."""
    own = Groups.__init__

    def without(self: Groups, device_mesh: DeviceMesh, *extra: DeviceMesh) -> None:
        own(self, device_mesh, *extra)
        self._all.pop(tuple(range(8)), None)
        self._finish()

    Groups.__init__ = without  # type: ignore[method-assign]
    try:
        yield
    finally:
        Groups.__init__ = own  # type: ignore[method-assign]


def test_what_falls_back_is_the_table(eight: Ranks) -> None:
    eight.run(fallbacks)


def no_group(rank: int) -> None:
    """On 2x2x2 of a larger world no group has two axes: plans use one axis at a time, or fall back."""
    half = DeviceMesh("cpu", torch.arange(4).reshape(2, 2), mesh_dim_names=("x", "y"))
    before_count = group_count()
    whole = whole_of((8, 8))
    with planned() as plans:
        if rank < 4:
            for before, after in PAIRS:
                made = dtensor(whole, before, half).redistribute(placements=after)
                assert torch.equal(made.to_local(), shard(whole, after, half)), (before, after)
    assert group_count() == before_count
    assert set(plans.report().fallbacks) <= {"groups"}
    # With the two axes flattened there is a group of both, which is used.
    flat = half._flatten("xy")
    del flat
    with planned(strict=True) as plans:
        if rank < 4:
            made = dtensor(whole, (Partial(), Partial()), half).redistribute(placements=(R, R))
            assert torch.equal(made.to_local(), whole)
            assert plans.report().collectives == 1


def test_no_group_is_made(eight: Ranks) -> None:
    eight.run(no_group)


def undone(rank: int) -> None:
    mesh = device_mesh((8,))

    def bound() -> list[Any]:
        return [module.redistribute_local_tensor for module in (_redistribute, _dispatch, _api)]

    before = bound()
    assert set(before) == {OWN}
    with pytest.raises(ZeroDivisionError), planned():
        assert OWN not in bound()
        with planned(strict=True):
            pass
        assert OWN not in bound()
        raise ZeroDivisionError
    assert bound() == before

    @planned(strict=True)
    def decorated() -> DTensor:
        assert OWN not in bound()
        return dtensor(whole_of((8,)), [Shard(0)], mesh).redistribute(placements=[R])

    assert torch.equal(decorated().to_local(), whole_of((8,)))
    assert bound() == before
    plans = planned().enable()
    assert OWN not in bound()
    plans.disable()
    assert bound() == before
    # A function of other arguments is not replaced.
    _redistribute.redistribute_local_tensor = lambda tensor, spec: tensor  # type: ignore[assignment]
    try:
        with pytest.raises(RuntimeError, match=r"redistribute_local_tensor takes \(tensor, spec\) instead of"):
            planned(strict=True).enable()
        with pytest.warns(RuntimeWarning, match="PyTorch's own code runs instead of plans") as warned:
            plans = planned().enable()
            planned().enable()
        assert len(warned) == 1 and "nothing was replaced" in str(plans.report())
    finally:
        _redistribute.redistribute_local_tensor = OWN
    assert bound() == before


def test_undone_after_an_exception(eight: Ranks) -> None:
    eight.run(undone)


def asynchronous(rank: int) -> None:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    whole = whole_of((16, 8))
    with planned(strict=True):
        open_ = dtensor(whole, [Shard(0), R], mesh).redistribute(placements=[R, R], async_op=True)
        assert isinstance(open_._local_tensor, AsyncCollectiveTensor)
        assert torch.equal(open_.to_local() + 0, whole)
        shut = dtensor(whole, [Shard(1), R], mesh).redistribute(placements=[R, R], async_op=True)
        assert not isinstance(shut._local_tensor, AsyncCollectiveTensor)
        assert torch.equal(shut.to_local(), whole)


def test_a_wait_stays_open_where_nothing_is_unpacked(eight: Ranks) -> None:
    eight.run(asynchronous)


def compared_with_pytorch(rank: int) -> int:
    """PyTorch itself makes the calls that the report lists next to ours, and receives those bytes."""
    mesh = device_mesh((2, 4), ("dp", "tp"))
    whole, seen = whole_of((16, 8)), 0
    for before, after in [*PAIRS, ((R, Shard(0)), (R, Partial()))]:
        x = dtensor(whole, before, mesh)
        with Counted() as counted:
            x.redistribute(placements=after)
        with planned() as plans:
            for _ in range(2):
                x.redistribute(placements=after)
        made = plans.report()
        for row in made.lines.values():  # none if nothing changes
            assert (list(row.pytorch_kinds or ()), row.pytorch_bytes) == (counted.calls, counted.bytes), (before, after, str(made))
            totals = (made.pytorch_collectives, made.pytorch_bytes)
            assert totals == ((2 * len(counted.calls), 2 * counted.bytes) if row.fallback is None else (0, 0))
            seen += 1
    return seen


def test_the_report_has_pytorchs_calls_too(eight: Ranks) -> None:
    assert min(eight.run(compared_with_pytorch)) > 100


def report(rank: int) -> str:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    with planned() as plans:
        x = distribute_tensor(whole_of((16, 8)), mesh, [Shard(0), Shard(1)], src_data_rank=None)
        for _ in range(2):
            x.redistribute(placements=[Shard(1), Shard(0)])
        x.redistribute(placements=[R, R])
        x.redistribute(placements=[Partial(), Shard(1)])
    made = plans.report()
    assert made.plans == 3 and made.fallbacks == {"into terms": 1}
    # Every rank has 16 elements of 128: half of them stay in a change of dims.
    assert made.received_bytes > 0 and made.collectives == 3
    assert made.pytorch_collectives > made.collectives and made.pytorch_bytes > made.received_bytes, made
    assert f"PyTorch instead of plans: {made.pytorch_collectives} calls, {made.pytorch_bytes} B" in str(made)
    return str(made)


def test_report_is_a_table(eight: Ranks) -> None:
    tables = eight.run(report)
    assert "PyTorch: into terms" in tables[0] and "3 by plans" in tables[0]
    print(tables[0])
