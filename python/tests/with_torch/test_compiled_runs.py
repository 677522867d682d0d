"""The report under `torch.compile`: every run of a forward or backward graph counts, and traces do not."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import aot_module_simplified, make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.utils import fresh_cache
from torch.distributed.tensor import DTensor, Shard
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from definition import R, device_mesh, dtensor, kept_graphs, shard, whole_of
from ranks import Ranks
from reshard.torch import Report, planned

BACKENDS = ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor"]


def change(x: DTensor) -> DTensor:
    """Three redistributions, of which one is a copy without a call, and their gradients."""
    y = (x * 2).redistribute(placements=[Shard(1), Shard(0)])
    z = (y * y).redistribute(placements=[R, R])
    return z.sin().redistribute(placements=[Shard(0), R])


def counts(report: Report, times: int = 1) -> dict[str, int]:
    return {name: line.calls * times for name, line in report.lines.items() if line.calls}


def added(*of: dict[str, int]) -> dict[str, int]:
    return {name: sum(one.get(name, 0) for one in of) for name in {name for one in of for name in one}}


def step(function: Callable[[DTensor], DTensor], shape: tuple[int, int]) -> torch.Tensor:
    """Runs a function forward and backward, and returns its gradient."""
    x = dtensor(whole_of(shape) / 64, [Shard(0), Shard(1)], device_mesh((2, 4), ("dp", "tp")), requires_grad=True)
    (gradient,) = torch.autograd.grad(function(x).to_local().sum(), x)
    assert isinstance(gradient, DTensor)
    return gradient.to_local()


def runs(rank: int, backend: str) -> None:
    one, other = (16, 8), (32, 8)
    by_shape, gradients = {}, {}
    for shape in (one, other):
        with planned(strict=True) as plans:
            gradients[shape] = step(change, shape)
        by_shape[shape] = counts(plans.report())
    assert sum(by_shape[one].values()) >= 5 and any(not line.kinds for line in plans.report().lines.values())

    torch.compiler.reset()
    plans = planned(strict=True)
    function = torch.compile(change, backend=backend, fullgraph=True, dynamic=False)

    def run(shape: tuple[int, int]) -> None:
        torch.testing.assert_close(step(function, shape), gradients[shape])

    with plans:
        for _ in range(3):
            run(one)
        assert counts(plans.report()) == added(*3 * [by_shape[one]]), plans.report()
        # Another graph, and the first one again.
        for shape in (other, other, one):
            run(shape)
    total = added(*4 * [by_shape[one]], *2 * [by_shape[other]])
    assert counts(plans.report()) == total, plans.report()
    if backend != "eager":
        # No report is entered; the graphs have plans in any case.
        run(one)
        assert counts(plans.report()) == total, plans.report()
    # Cached graphs count for the innermost report.
    with plans, planned(strict=True) as within:
        run(other)
    with plans:
        run(one)
    assert counts(within.report()) == by_shape[other], within.report()
    assert counts(plans.report()) == added(total, by_shape[one]), plans.report()
    with torch.no_grad(), planned(strict=True) as forward:
        x = dtensor(whole_of(one), [Shard(0), Shard(1)], device_mesh((2, 4), ("dp", "tp")))
        for _ in range(2):
            function(x)
    assert sorted(counts(forward.report()).values()) == [2, 2, 2], forward.report()
    for report in (plans.report(), within.report(), forward.report()):
        assert "+?" not in str(report), report
    torch.compiler.reset()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_run_counts(eight: Ranks, backend: str) -> None:
    eight.run(runs, backend)


def project(x: DTensor, w: DTensor) -> DTensor:
    return torch.nn.functional.linear(x, w).sin()


def train(function: Callable[..., DTensor], dp: int, tp: int) -> None:
    mesh = device_mesh((dp, tp), ("dp", "tp"))
    x = dtensor(whole_of((16, 16)), [Shard(0), Shard(1)], mesh)
    w = dtensor(whole_of((16, 16)), [R, Shard(0)], mesh, requires_grad=True)
    torch.autograd.grad(function(x, w).to_local().sum(), w)


def merged(rank: int) -> None:
    """A graph has fewer calls than eager code if PyTorch merges equal ones: the report has those of the graph."""

    def calls(graphs: list[str]) -> int:
        kinds = ("all_gather_into_tensor", "all_reduce", "reduce_scatter_tensor", "all_to_all_single")
        return sum(graph.count(f"{kind}.default") for graph in graphs for kind in kinds)

    torch.compiler.reset()
    graphs, keep = kept_graphs()
    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep, partition_fn=min_cut_rematerialization_partition)
    function = torch.compile(project, backend=backend, fullgraph=True)
    with planned(strict=True) as eager:
        train(project, 2, 4)
    with planned(strict=True) as plans:
        for _ in range(3):
            train(function, 2, 4)
    assert len(graphs) == 2 and plans.report().collectives == 3 * calls(graphs) > 0, (graphs, plans.report())
    assert plans.report().collectives < 3 * eager.report().collectives

    # Calls that the backward pass recomputes count twice.
    graphs.clear()
    again = torch.compile(lambda x: checkpoint(change, x, use_reentrant=False), backend=backend, fullgraph=True)
    with planned(strict=True) as plans:
        for _ in range(2):
            step(again, (16, 8))
    assert len(graphs) == 2 and plans.report().collectives == 2 * calls(graphs), (graphs, plans.report())
    with planned(strict=True) as plain:
        step(change, (16, 8))
    assert calls(graphs) > plain.report().collectives
    torch.compiler.reset()


def test_the_calls_of_a_graph_are_those_of_the_report(eight: Ranks) -> None:
    eight.run(merged)


def cached(rank: int) -> list[int]:
    """Graphs that the default backend has compiled and cached without plans are not used under `planned`."""
    hits = []
    # PyTorch's cache may return the graph of another rank, whose groups have other names: each rank has a folder.
    with fresh_cache():
        for use in (False, False, True, False):
            torch.compiler.reset()
            counters.clear()
            with planned(strict=True) if use else contextlib.nullcontext() as plans:
                train(torch.compile(project, fullgraph=True), 1, 2)
            hits.append(counters["aot_autograd"]["autograd_cache_hit"])
            if plans is not None:
                assert plans.report().collectives > 0, plans.report()
    torch.compiler.reset()
    return hits


def test_cached_graphs_without_plans_are_not_used(two: Ranks) -> None:
    for _, second, under_plans, last in two.run(cached):
        assert second == last == 1 and under_plans == 0


def uncounted(rank: int) -> str:
    """Graphs that are compiled by other functions of PyTorch: the report states that their runs are not counted."""
    mesh = device_mesh((2, 4), ("dp", "tp"))
    x, wanted = dtensor(whole_of((16, 8)), [Shard(0), Shard(1)], mesh), shard(whole_of((16, 8)), [Shard(1), Shard(0)], mesh)

    def other(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        return aot_module_simplified(graph, inputs, fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward))

    torch.compiler.reset()
    with planned(strict=True) as plans:
        function = torch.compile(lambda x: x.redistribute(placements=[Shard(1), Shard(0)]), backend=other, fullgraph=True)
        for _ in range(2):
            assert torch.equal(function(x).to_local(), wanted)
    assert counts(plans.report()) == {}
    text = str(plans.report())
    with planned(strict=True) as plans:
        make_fx(lambda x: x.redistribute(placements=[Shard(1), Shard(0)]).to_local())(x)
        x.redistribute(placements=[Shard(1), Shard(0)])
    assert list(counts(plans.report()).values()) == [1] and " 1+? " in str(plans.report()), plans.report()
    torch.compiler.reset()
    return text


def test_runs_that_are_not_counted_are_in_the_report(eight: Ranks) -> None:
    for text in eight.run(uncounted):
        assert " 0+? " in text and text.endswith("+?: also in graphs whose runs are not counted"), text
