"""What works with the installed PyTorch, on eight ranks over gloo: one row of the table of versions in docs/torch.md.

    python -P python/tests/with_torch/torch_versions.py            prints the row
    python -P python/tests/with_torch/torch_versions.py --write    also puts it into the page
    python -P python/tests/with_torch/torch_versions.py --compare  also fails if the page has another row
"""

import contextlib
import io
import itertools
import pathlib
import random
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from definition import R, Counted, device_mesh, dtensor, kept_graphs, shard, whole_of  # noqa: E402
from ranks import Ranks  # noqa: E402
from reshard.torch import OPS, audit, check, planned, redistribute, redistribute_state, rules  # noqa: E402
from reshard.torch.rules import _overload, is_known  # noqa: E402
from reshard.torch.version import _StridedShard  # noqa: E402

PAGE = HERE.parents[2] / "docs/torch.md"
COLUMNS = (
    "PyTorch", "example", "`planned`", "`redistribute`", "calls", "bytes", "gradient", "state", "`audit`", "`check`", "`rules`", "`compile`", "FSDP2",
)  # fmt: skip
PAIRS = 60


def pairs() -> list[tuple[tuple[Placement, ...], tuple[Placement, ...]]]:
    """Returns the pairs of placements, partial and strided ones included, which are the same for every version."""
    plain: list[Placement] = [R, Shard(0), Shard(1)]
    sources = itertools.product([*plain, Partial(), Partial("max"), _StridedShard(0, split_factor=2)], repeat=2)
    found = [(before, after) for before in sources for after in itertools.product(plain, repeat=2) if before != after]
    # Partial values with different ops are PyTorch's error.
    kept = [pair for pair in found if len({one.reduce_op for one in pair[0] if isinstance(one, Partial)}) < 2]
    return random.Random(1).sample(kept, PAIRS)


def _mesh() -> Any:
    return device_mesh((2, 4), ("dp", "tp"))


def example(rank: int) -> str:
    """Runs the first example of the page, and compares its output."""
    (imports, _), (code, said) = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", PAGE.read_text(), re.DOTALL)[:2]
    names: dict[str, object] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(imports, str(PAGE), "exec"), names)
        plans: Any = names["plans"]
        try:
            exec(compile(code, str(PAGE), "exec"), names)
        except RuntimeError:
            plans.disable()
            x: Any = names["x"]
            try:
                x.redistribute(placements=[Shard(1), Shard(0)]).redistribute(placements=[Partial(), R])
            except RuntimeError:
                return "PyTorch's error"
            raise
    # The page has rank 0's output; ranks receive different numbers of bytes.
    assert rank or [line.rstrip() for line in str(plans.report()).splitlines()] == said.splitlines(), plans.report()
    return "right"


def by_planned(rank: int) -> tuple[str, int, int]:
    whole, right, plans, counted = whole_of((16, 8)), 0, planned(strict=True), Counted()
    for before, after in pairs():
        given = dtensor(whole, before, _mesh())
        with plans, counted:
            made = given.redistribute(placements=after).to_local()
        right += torch.equal(made, shard(whole, after, _mesh()))
    assert plans.report().plans == PAIRS
    return f"{right}/{PAIRS}", len(counted.calls), counted.bytes


def by_redistribute(rank: int) -> str:
    whole, right = whole_of((16, 8)), 0
    for before, after in pairs():
        made = redistribute(dtensor(whole, before, _mesh()), placements=after).to_local()
        right += torch.equal(made, shard(whole, after, _mesh()))
    return f"{right}/{PAIRS}"


def gradient(rank: int) -> str:
    whole = whole_of((16, 8)) / 16
    for use in (planned(strict=True), contextlib.nullcontext()):
        x = dtensor(whole, [Shard(0), Shard(1)], _mesh(), requires_grad=True)
        with use:
            y = x.redistribute(placements=[Shard(1), Shard(0)]) if isinstance(use, planned) else redistribute(x, placements=[Shard(1), Shard(0)])
            (found,) = torch.autograd.grad((y * y).sum().full_tensor(), x)
        assert torch.equal(found.full_tensor(), 2 * whole)
    return "right"


def state(rank: int) -> str:
    wholes = {f"{i}.w": whole_of((16, 8), seed=i) for i in range(10)}
    made = redistribute_state({name: dtensor(whole, [Shard(0), R], _mesh()) for name, whole in wholes.items()}, [R, Shard(1)])
    for name, whole in wholes.items():
        assert torch.equal(made[name].to_local(), shard(whole, [R, Shard(1)], _mesh())), name
    return "right"


def audited(rank: int) -> str:
    x = dtensor(whole_of((16, 8)), [Shard(0), Shard(1)], _mesh())
    with audit() as seen:
        x.redistribute(placements=[Shard(1), Shard(0)])
    (one,) = seen.moved
    assert one.better is not None and one.better.received_bytes == one.bound_bytes
    return f"{one.received_bytes} B"


def checked(rank: int) -> str:
    block = torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 16), torch.nn.Softmax(-1))
    types = {"1.*": "I,S(0)", "3.weight": "I,S(1)", "input": "S(0),R"}
    made = check(block, [torch.ones(65536, 16)], "dp=2,tp=4", types, pinned={"output": "S(0),R"})
    assert made.beside.stopped is None, made.beside.stopped
    ours, theirs = made.beside.received_bytes("forward")
    return f"{ours}, {theirs} B"


def registered(rank: int) -> str:
    # Earlier tests of these ranks may have registered them.
    rules()
    assert rules() == []
    x = dtensor(whole_of((16, 8)), [Shard(0), R], _mesh())
    windows = x.unfold(1, 2, 2)
    assert isinstance(windows, DTensor) and torch.equal(windows.full_tensor(), whole_of((16, 8)).unfold(1, 2, 2))
    return str(sum(is_known(_overload(name)) for name in OPS))


def compiled(rank: int) -> str:
    from torch._dynamo.backends.common import aot_autograd

    graphs, keep = kept_graphs()

    def change(x: DTensor) -> DTensor:
        return (x * 2).redistribute(placements=[Shard(1), Shard(0)])

    whole = whole_of((16, 8))
    torch._dynamo.reset()
    with planned(strict=True):
        made = torch.compile(change, backend=aot_autograd(fw_compiler=keep), fullgraph=True)(dtensor(whole, [Shard(0), Shard(1)], _mesh()))
    assert torch.equal(made.to_local(), shard(whole * 2, [Shard(1), Shard(0)], _mesh()))
    assert len(graphs) == 1 and graphs[0].count("all_to_all_single") == 1 and "all_gather" not in graphs[0], graphs
    return "right"


def fsdp2(rank: int) -> str:
    """One step of a model with FSDP2 and tensor parallelism under `planned`, compared with the same step on one device."""
    torch.manual_seed(0)
    alone = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    parallelize_module(model, _mesh()["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=_mesh()["dp"])
    x = torch.randn(8, 16)
    plans = planned()
    for one, batch in ((alone, x), (model, x.chunk(2)[rank // 4])):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.5)
        with plans if one is model else contextlib.nullcontext():
            one(batch).square().mean().backward()
            optimizer.step()
    for theirs, ours in zip(alone.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.full_tensor().detach(), theirs.detach(), rtol=1e-5, atol=1e-6)
    assert plans.report().plans > 0
    return "right"


def cell(rank: int, name: str) -> tuple[Any, str]:
    """Returns the cell of a column on one rank, and the error if there is one."""
    try:
        return CELLS[name](rank), ""
    except Exception as error:
        return f"{type(error).__name__}", traceback.format_exc()


CELLS: dict[str, Callable[[int], Any]] = {
    "example": example,
    "`planned`": by_planned,
    "`redistribute`": by_redistribute,
    "gradient": gradient,
    "state": state,
    "`audit`": audited,
    "`check`": checked,
    "`rules`": registered,
    "`compile`": compiled,
    "FSDP2": fsdp2,
}


def row(ranks: Ranks) -> str:
    """Returns the row of the installed version; bytes and calls of pairs are those of all ranks."""
    cells = {"PyTorch": torch.__version__.partition("+")[0]}
    for name in CELLS:
        found = ranks.run(cell, name)
        for rank, (_, error) in enumerate(found):
            if error:
                print(f"{name}, rank {rank}: {error}", file=sys.stderr)
        failed = [made for made, error in found if error]
        if name == "`planned`" and not failed:
            cells |= {"calls": str(sum(calls for (_, calls, _), _ in found)), "bytes": f"{sum(size for (_, _, size), _ in found):,}"}
        values = sorted({made[0] if isinstance(made, tuple) else made for made, _ in found})
        cells[name] = failed[0] if failed else ", ".join(values)
    return "| " + " | ".join(cells.get(name, "") for name in COLUMNS) + " |"


def written(page: str, made: str) -> str:
    """Returns the page with a row put in place of the one of the same version; the newest version is the last row."""
    title = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
    before, found, after = page.partition(title)
    assert found, f"{PAGE} has no table with the columns {COLUMNS}"
    rows = list(itertools.takewhile(lambda line: line.startswith("|"), after.splitlines(keepends=True)))
    lines = {line.split()[1]: line for line in [*rows, made + "\n"]}
    newest_last = sorted(lines, key=lambda version: [int(part) for part in version.split(".")])
    return before + title + "".join(lines[version] for version in newest_last) + after[len("".join(rows)) :]


if __name__ == "__main__":
    eight = Ranks(8)
    try:
        made = row(eight)
    finally:
        eight.close()
    print(made)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(written(PAGE.read_text(), made))
    if "--compare" in sys.argv[1:] and made not in PAGE.read_text().splitlines():
        sys.exit(f"docs/torch.md has another row for PyTorch {torch.__version__}; --write updates it")
    broken = [name for name, text in zip(COLUMNS, made.strip("| ").split(" | "), strict=True) if text.endswith("Error")]
    sys.exit(f"PyTorch {torch.__version__} fails in {', '.join(broken)}" if broken else 0)
