"""The network of plan_bench.py as its measurements have it: tables of collectives, profiles, planners and prices."""

import functools
import json
import pathlib
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

from reshard import Plan, Planner, Sharding, Step
from reshard._reshard import command_line

SIZES = [1 << 16, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24]
REPEATS = 4


def spreads(nodes: int, per_node: int) -> Iterator[tuple[int, int, list[list[int]]]]:
    """Yields the spreads of groups over the nodes: nodes, ranks on each, and the groups that cover all ranks."""
    inside = [1 << i for i in range(per_node.bit_length()) if 1 << i <= per_node]
    for over in (1 << i for i in range(nodes.bit_length()) if 1 << i <= nodes):
        for width in inside:
            if over * width > 1:
                yield over, width, [
                    [node * per_node + rank for node in range(first, first + over) for rank in range(low, low + width)]
                    for first in range(0, nodes, over)
                    for low in range(0, per_node, width)
                ]  # fmt: skip


def timed(run: Callable[[], Any], turn: int) -> tuple[float, Any]:
    """Returns the seconds of a call on this rank, and its result; ranks start half a millisecond after one another.

    Ranks of a real program are never in step. gloo's exchange between two ranks mostly needs twice the time: it sends
    before it receives, and a connection that is receiving sends only afterwards. Without the delay both times occur.
    """
    import torch.distributed as dist

    dist.barrier()
    time.sleep((dist.get_rank() + turn) % dist.get_world_size() * 5e-4)
    start = time.perf_counter()
    made = run()
    return time.perf_counter() - start, made


def slowest(seconds: list[float]) -> list[float]:
    """Returns each time of the slowest rank."""
    import torch
    import torch.distributed as dist

    made = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(made, dist.ReduceOp.MAX)
    return list(map(float, made))


def calibrated(nodes: int, per_node: int) -> list[dict[str, Any]]:
    """Measures the plain collectives over every spread, on all its groups at once as the steps of plans run.

    The ranks of a node share its link, so that a group alone would be quicker than the same group in a plan.
    """
    import torch
    import torch.distributed as dist

    rows = []
    for over, width, groups in spreads(nodes, per_node):
        ranks = over * width
        made = [dist.new_group(members) for members in groups]
        group = made[next(i for i, members in enumerate(groups) if dist.get_rank() in members)]
        for size in SIZES:
            whole, part = torch.ones(size // 4), torch.ones(size // 4 // ranks)
            into = torch.empty(size // 4)
            calls: dict[str, Callable[[], Any]] = {
                "all_gather": lambda: dist.all_gather_into_tensor(into, part, group=group),
                "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
                "all_reduce": lambda: dist.all_reduce(into, group=group),
                "all_to_all": lambda: dist.all_to_all_single(into, whole, group=group),
            }
            for name, call in calls.items():
                if size == SIZES[0]:
                    call()
                for seconds in slowest([timed(call, turn)[0] for turn in range(REPEATS if size > 1 << 21 else 2 * REPEATS - 1)]):
                    rows.append({"collective": name, "nodes": over, "ranks": ranks, "bytes": size, "us": round(seconds * 1e6, 1)})
    return rows


class Network:
    """A profile: the planners for it, and the prices of single steps."""

    def __init__(self, profile: str) -> None:
        self.profile = profile
        contents = tomllib.loads(profile)
        whole = Sharding("x=2", (2,), "S(0)")
        stored = json.loads(Planner(arithmetic="framework").plan(whole, "R").to_json())

        def planner(objective: str) -> Planner:
            # A stored plan has its network, and this may be any profile.
            return Plan.from_json(json.dumps(stored | {"topology": contents, "objective": objective})).planner

        self.planner, self.lean = planner("time"), planner("bytes")

    def price_us(self, step: Step, per_node: int) -> float | None:
        """Returns the time of a step by the curves; None for a spread of ranks that no table has."""
        if not step.communicates:
            return 0.0
        prices = [self.curve(*load) if load else None for load in loads(step, per_node)]
        return None if None in prices else max(price for price in prices if price is not None)

    @functools.cache
    def curve(self, collective: str, nodes: int, ranks: int, size: int) -> float:
        """Returns the time of a collective, as `reshard calibrate --check` predicts it."""
        row = {"collective": collective, "nodes": nodes, "ranks": ranks, "bytes": size, "us": 1.0}
        with tempfile.TemporaryDirectory() as folder:
            table, profile = pathlib.Path(folder, "table.jsonl"), pathlib.Path(folder, "profile.toml")
            table.write_text(json.dumps(row), encoding="utf-8")
            profile.write_text(self.profile, encoding="utf-8")
            return float(json.loads(run("calibrate", "--check", str(table), "--topology", str(profile), "--json"))["worst"]["predicted_us"])


def loads(step: Step, per_node: int) -> set[tuple[str, int, int, int] | None]:
    """Returns the collectives, nodes, ranks and tensor bytes that the ranks of a step take part in; None where nodes are uneven."""
    found: set[tuple[str, int, int, int] | None] = set()
    is_exchange = step.op == "exchange"
    for rank in sorted({*step.before.mesh.ranks, *step.after.mesh.ranks}):
        if is_exchange:
            peers = {message.peer for phase in step.phases(rank) for message in phase.receives} | {rank}
        else:
            peers = next(set(members) for members in step.before.mesh.groups(*step.axes).members() if rank in members)
        nodes, ranks = len({peer // per_node for peer in peers}), len(peers)
        if ranks == 1:
            continue
        size = step.received_bytes * ranks // ((ranks - 1) * (2 if step.op == "all_reduce" else 1))
        found.add(None if ranks % nodes else ("all_to_all" if is_exchange else step.op, nodes, ranks, size))
    return found


def run(*arguments: str) -> str:
    """Returns the output of the command line."""
    status, out, err = command_line.run(["reshard", *arguments])
    if status:
        sys.exit(f"reshard {arguments[0]}: {err or out}")
    return str(out)


def profile_of(rows: list[dict[str, Any]], name: str) -> tuple[str, str]:
    """Returns the profile of a table of measurements, and the report of its making."""
    with tempfile.TemporaryDirectory() as folder:
        table, profile = pathlib.Path(folder, "table.jsonl"), pathlib.Path(folder, "profile.toml")
        table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        report = run("calibrate", "--from", str(table), "--write", str(profile), "--name", name)
        return profile.read_text(encoding="utf-8"), report
