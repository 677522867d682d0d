"""FSDP2 under `planned`: its own collectives in the report equal an audit of the same step, also compiled."""

import contextlib
from collections import Counter
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
import torch.distributed.fsdp._fully_shard._fsdp_param_group as param_group
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from definition import device_mesh
from ranks import Ranks
from reshard.torch import audit, planned

OWN = (param_group.foreach_all_gather, param_group.foreach_reduce)


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    pairs = [(torch.nn.Linear(16, 32, bias=False), torch.nn.Linear(32, 16, bias=False)) for _ in range(2)]
    return torch.nn.Sequential(*(torch.nn.Sequential(up, torch.nn.ReLU(), down) for up, down in pairs))


def parallel(tp: Any, dp: Any, policy: MixedPrecisionPolicy | None = None) -> torch.nn.Sequential:
    model = network()
    for block in model:
        parallelize_module(block, tp, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(block, mesh=dp, mp_policy=policy or MixedPrecisionPolicy())
    return fully_shard(model, mesh=dp, mp_policy=policy or MixedPrecisionPolicy())


def step(rank: int) -> str:
    mesh = device_mesh((2, 2), ("dp", "tp"))
    model = parallel(mesh["tp"], mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with planned(strict=True) as plans, audit() as seen:
        model(torch.ones(4, 16)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    compared(plans.report(), seen)
    assert set(plans.report().fsdp) == {"all_gather", "reduce_scatter"}
    assert (param_group.foreach_all_gather, param_group.foreach_reduce) == OWN
    return str(plans.report())


def compared(report: Any, seen: Any) -> None:
    """Compares the calls and bytes of a report with those of an audit, whose redistributions have an arrow."""
    calls, received = Counter[str](), Counter[str]()
    for row in seen.moved:
        kind = "plans" if "->" in row.title else str(row.calls[0].kind)
        calls[kind] += row.times * len(row.calls)
        received[kind] += row.times * row.received_bytes
    assert (calls.pop("plans"), received.pop("plans")) == (report.collectives, report.received_bytes), (report, seen)
    assert dict(calls) == {kind: row.calls for kind, row in report.fsdp.items()}, (report, seen)
    assert dict(received) == {kind: row.received_bytes for kind, row in report.fsdp.items()}, (report, seen)
    assert report.all_received_bytes == seen.received_bytes


def test_fsdp2s_own_calls_are_those_of_an_audit(four: Ranks) -> None:
    tables = four.run(step)
    print(tables[0])
    # Each block has 2 x 512 elements of 4 B. A rank has half of them after the gather, and receives half of that, in both passes.
    assert tables[0].endswith(
        "FSDP2 itself, no plans: all_gather 4 calls 4096 B, reduce_scatter 2 calls 2048 B\nshare of plans: 792 of 6936 B received (11.4 %)"
    ), tables[0]


def hybrid(rank: int) -> None:
    """Replicas of shards: gradients are all-reduced too, in the type of the policy, and not in the first microbatch."""
    mesh = device_mesh((2, 2, 2), ("replicas", "dp", "tp"))
    model = parallel(mesh["tp"], mesh["replicas", "dp"], MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    with planned() as plans, audit() as seen:
        for is_last in (False, True):
            model.set_requires_all_reduce(is_last)
            model(torch.ones(4, 16)).float().square().mean().backward()
    compared(plans.report(), seen)
    of = plans.report().fsdp
    assert set(of) == {"all_gather", "reduce_scatter", "all_reduce"} and of["reduce_scatter"].calls == 2 * of["all_reduce"].calls


def test_gradients_of_replicas_count_too(eight: Ranks) -> None:
    eight.run(hybrid)


def without(rank: int) -> None:
    mesh = device_mesh((2, 2), ("dp", "tp"))
    model = parallel(mesh["tp"], mesh["dp"])
    del param_group.foreach_reduce
    try:
        plans = planned().enable()
    finally:
        param_group.foreach_reduce = OWN[1]
    assert param_group.foreach_all_gather is OWN[0]
    model(torch.ones(4, 16)).square().mean().backward()
    plans.disable()
    text = str(plans.report())
    assert plans.report().plans > 0 and plans.report().unsupported is None
    assert "FSDP2's own calls are not known: PyTorch" in text and "_fsdp_param_group.foreach_reduce is missing" in text, text


def test_without_fsdp2s_names_the_report_says_so(four: Ranks) -> None:
    four.run(without)


def compiled(rank: int, backend: str, by_block: bool) -> None:
    """Compiled FSDP2 with tensor parallelism: equal to one device, and to the same without plans."""
    mesh = device_mesh((2, 2), ("dp", "tp"))
    batch = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))

    def trained(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [getattr(one, "full_tensor", lambda one=one: one)().detach() for one in model.parameters()]

    alone, made, reports = trained(network(), batch), [], []
    for use, is_compiled in ((False, True), (True, False), (True, True)):
        torch.compiler.reset()
        model = parallel(mesh["tp"], mesh["dp"])
        for one in (list(model) if by_block else [model]) if is_compiled else []:
            one.compile(backend=backend, dynamic=False)
        # Without plans, PyTorch's cache may return the graph of another rank.
        with functorch_config.patch(enable_autograd_cache=False), planned() if use else contextlib.nullcontext() as plans:
            made.append(trained(model, batch.chunk(2)[rank // 2]))
            if plans is not None:
                reports.append(plans.report())
    for of in made:
        for ours, wanted in zip(of, alone, strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)
    eager, report = reports
    # The compiler may remove redistributions that change nothing.
    calls = [{name: line.calls for name, line in of.lines.items() if line.kinds and line.calls} for of in reports]
    assert calls[0] == calls[1] != {} and report.fsdp == eager.fsdp != {}, (report, eager)
    assert not report.fallbacks and not any(line.traced for line in report.lines.values()), report
    torch.compiler.reset()


@pytest.mark.parametrize("by_block", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_fsdp2_with_tensor_parallelism_is_right(four: Ranks, backend: str, by_block: bool) -> None:
    four.run(compiled, backend, by_block)
