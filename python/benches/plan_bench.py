"""Plans judged by the clock: redistributions over limited links, by our plans and by those of others, in turns.

    python python/benches/plan_bench.py [--layouts 2x1 2x2 4x2] [--mbit 200] [--rounds 4] [--rows FILE] [--report FILE]

Needs root, and what scripts/shaped_nodes.sh needs: each node is a network namespace whose link sends and receives at a
limited rate. Per layout, one job of gloo ranks first measures the plain collectives, makes a profile of them, and plans
all pairs of plan_pairs.py under it. Then the plans of a pair run in turns by the same engine, PyTorch's own
`DTensor.redistribute` with them, and every result is compared with the expected shard. A time runs from a barrier to
the end of the slowest rank; medians count. `--report FILE` prints the tables of a stored run.
"""

import argparse
import functools
import json
import logging
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import results
from plan_network import Network, calibrated, profile_of, slowest, timed
from plan_pairs import Pair, chains, pairs, route, signature
from plan_report import by, promises, report, shape_of, tables
from results import header, measured

SHAPED = pathlib.Path(__file__).parents[2] / "scripts/shaped_nodes.sh"
LAYOUTS = {"2x1": (2, 1), "2x2": (2, 2), "4x2": (4, 2)}


class Job:
    """The ranks of one layout: its planners, and the existing groups."""

    def __init__(self, profile: str, device: str) -> None:
        from reshard.torch.groups import Groups

        self.network, self.groups, self.device = Network(profile), Groups.world(), device

    def link_bytes(self) -> tuple[int, int]:
        """Returns the bytes that this node has received and sent."""
        with open("/proc/net/dev", encoding="ascii") as devices:
            words = next(line.split(":")[1].split() for line in devices if line.strip().startswith(f"{self.device}:"))
        return int(words[0]), int(words[8])

    def routes(self, pair: Pair) -> dict[str, list[Any]]:
        """Returns the shardings through which peers redistribute, where their plans are known."""
        import torch.distributed as dist

        found: dict[str, list[str]] = {}
        if dist.get_rank() == 0:
            for name, calls, received in pair.peers:
                way = route(pair, calls, received, self.network.lean) if name in ("xla", "shardy") and calls else None
                if way is not None:
                    found[name] = [one.to_json() for one in way]
        sent = [found]
        dist.broadcast_object_list(sent, src=0)
        from reshard import Sharding

        made = {name: [Sharding.from_json(text) for text in way] for name, way in sent[0].items()}
        return made | by_pytorch(pair)

    def measured(self, pair: Pair, rounds: int) -> dict[str, Any]:
        """Runs the plans of a pair in turns; times and bytes are those of the slowest rank and of the busiest link."""
        import numpy as np
        import torch
        import torch.distributed as dist

        from reshard.torch.execute import Executor
        from reshard.torch.groups import wanted

        rank = dist.get_rank()
        source, target = pair.source(), pair.target()
        made = chains(pair, self.network.planner, self.routes(pair))
        by_plan: dict[Any, list[str]] = {}
        for name, chain in made.items():
            by_plan.setdefault(signature(chain), []).append(name)
        plans = {tuple(names): made[names[0]] for names in by_plan.values()}
        self.groups = self.groups.with_members([members for chain in plans.values() for plan in chain for members in wanted(plan)])
        whole = (np.arange(source.numel, dtype=np.int64) * 7919 % 65521).astype(np.float32).reshape(pair.shape)
        given, expected = shard_of(source, whole, rank), shard_of(target, whole, rank)
        runs: dict[tuple[str, ...], Callable[[], torch.Tensor]] = {}
        for names, chain in plans.items():
            legs = [Executor(plan, rank, self.groups, torch.float32) for plan in chain if rank in plan.ranks]
            runs[names] = functools.partial(functools.reduce, lambda shard, leg: leg(shard), legs, given)
        own = own_redistribution(pair, given)
        if own is not None:
            runs["DTensor",] = own
        times: dict[tuple[str, ...], list[float]] = {names: [] for names in runs}
        link = dict.fromkeys(runs, 0)
        for turn in range(rounds + 1):
            for names, run in runs.items():
                dist.barrier()
                before = self.link_bytes()
                seconds, got = timed(run, turn)
                dist.barrier()
                link[names] = max(now - then for now, then in zip(self.link_bytes(), before, strict=True))
                if turn:
                    times[names].append(seconds)
                elif not torch.equal(got.reshape(-1), expected.reshape(-1)):
                    raise AssertionError(f"rank {rank} has another shard after {pair} by {names}")
        row: dict[str, Any] = {"nodes": pair.nodes, "per_node": pair.per_node, "pair": str(pair), "shape": pair.shape, "bytes": source.numel * 4, "plans": []}
        for names in runs:
            turns, moved = slowest(times[names]), int(slowest([link[names]])[0])
            steps = [step for plan in plans.get(names, []) for step in plan.steps if step.communicates]
            # Our plans have the cost of their planner; those of others are priced step by step.
            costs = [step.cost_us if {"ours", "axis_by_axis"} & {*names} else self.network.price_us(step, pair.per_node) for step in steps] if rank == 0 else []
            row["plans"].append({
                "by": list(names), "steps": [[step.op, *step.axes, cost and round(cost / 1e3, 2)] for step, cost in zip(steps, costs, strict=False)],
                "predicted_ms": round(sum(cost or 0.0 for cost in costs) / 1e3, 2) if costs and None not in costs else None,
                "ms": round(statistics.median(turns) * 1e3, 2), "times_ms": [round(one * 1e3, 2) for one in turns], "link_bytes": moved,
            })  # fmt: skip
        return row


def shard_of(sharding: Any, whole: Any, rank: int) -> Any:
    """Returns a rank's shard; partial values are 2, 3, .. times the tensor, and the last one the rest."""
    import torch

    if rank not in sharding.mesh:
        return torch.empty(0)
    shard = torch.from_numpy(sharding.reduced().shard_all(whole, rank).copy())
    names, at = list(sharding.mesh.names), sharding.mesh.coordinate(rank)
    for axis in sharding.partial:
        place, size = at[names.index(axis)], sharding.mesh.axes[axis]
        shard = shard * (place + 2 if place < size - 1 else 2 - size * (size + 1) // 2)
    return shard


def by_pytorch(pair: Pair) -> dict[str, list[Any]]:
    """Returns the shardings through which PyTorch redistributes, axis by axis and by its search, where it knows the placements."""
    from reshard.torch import sharding
    from reshard.torch.version import DTensorSpec, _gen_transform_infos

    specs = specs_of(pair)
    if specs is None:
        return {}
    before, after = specs
    found: dict[str, list[Any]] = {}
    for name, searches in (("torch", False), ("torch_graph", True)):
        try:
            infos = _gen_transform_infos(before, after, searches)
        except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError):
            continue  # PyTorch searches only where dims divide
        at, way = list(before.placements), [pair.source()]
        for info in infos:
            at[info.mesh_dim] = info.src_dst_placements[1]
            way.append(sharding(DTensorSpec(before.mesh, tuple(at), tensor_meta=before.tensor_meta)))
        found[name] = [*way, pair.target()] if way[-1] != pair.target() else way
    return found


def specs_of(pair: Pair) -> tuple[Any, Any] | None:
    """Returns the DTensor specs of a pair; None if PyTorch has none that a user would write."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard

    from reshard import ReshardError
    from reshard.torch import sharding, spec

    source, target = pair.source(), pair.target()
    if pair.has_two_meshes or pair.ranks is not None or source.mesh.size != pair.nodes * pair.per_node:
        return None
    if source.mesh.names not in DEVICE_MESHES:
        DEVICE_MESHES[source.mesh.names] = init_device_mesh("cpu", source.mesh.shape, mesh_dim_names=source.mesh.names)
    try:
        specs = [spec(one, DEVICE_MESHES[source.mesh.names], dtype=torch.float32) for one in (source, target)]
    except ReshardError:
        return None
    plain = all(type(one) in (Shard, Partial, Replicate) for made in specs for one in made.placements)
    # An order of axes that placements alone do not have is lost by `DTensor.from_local`.
    from reshard.torch.version import DTensorSpec

    kept = all(sharding(DTensorSpec(one.mesh, one.placements, tensor_meta=one.tensor_meta)) == of for one, of in zip(specs, (source, target), strict=True))
    return (specs[0], specs[1]) if plain and kept else None


DEVICE_MESHES: dict[tuple[str, ...], Any] = {}


def own_redistribution(pair: Pair, given: Any) -> Callable[[], Any] | None:
    """Returns PyTorch's own redistribution of the pair, if it has one."""
    from torch.distributed.tensor import DTensor

    specs = specs_of(pair)
    if specs is None:
        return None
    before, after = specs
    tensor = DTensor.from_local(given, before.mesh, before.placements, run_check=False, shape=before.tensor_meta.shape, stride=before.tensor_meta.stride)
    return lambda: tensor.redistribute(placements=after.placements).to_local()


def rank_of(given: argparse.Namespace) -> None:
    """Runs one rank, whose rank and addresses are in the environment, as torchrun sets them."""
    import torch
    import torch.distributed as dist

    warnings.filterwarnings("ignore")
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    nodes, per_node = LAYOUTS[given.layouts[0]]
    start = time.monotonic()
    table = calibrated(nodes, per_node)
    sent: list[Any] = [None]
    is_first = dist.get_rank() == 0
    if is_first:
        sent[0], report = profile_of(table, f"shaped-{given.layouts[0]}")
        print(report, f"calibrated in {time.monotonic() - start:.0f} s", sep="", flush=True)
        write(given.rows, measured(f"calibration of {given.layouts[0]}", time.monotonic() - start, "s"), {"profile": sent[0]})
    dist.broadcast_object_list(sent, src=0)
    job = Job(sent[0], os.environ["GLOO_SOCKET_IFNAME"])
    for pair in pairs():
        if (pair.nodes, pair.per_node) == (nodes, per_node):
            row = job.measured(pair, given.rounds) | {"mbit": given.mbit, "load": round(os.getloadavg()[0], 1)}
            if is_first:
                print(row["pair"], *(f"{'/'.join(one['by'])} {one['ms']} ({one['predicted_ms']})" for one in row["plans"]), sep="  ", flush=True)
                ours = by(row, "ours")
                assert ours is not None
                write(given.rows, measured(f"{given.layouts[0]} {row['pair']}, {shape_of(row)}", ours["ms"], "ms"), row)
    dist.destroy_process_group()


def write(path: str, line: dict[str, Any], details: dict[str, Any]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line | {"details": details}) + "\n")


def started(given: argparse.Namespace, layout: str) -> list[subprocess.Popen[bytes]]:
    """Starts this program once for each rank, in the namespaces of the nodes."""
    nodes, per_node = LAYOUTS[layout]
    processes = []
    for rank in range(nodes * per_node):
        variables = {"RANK": rank, "WORLD_SIZE": nodes * per_node, "MASTER_ADDR": "10.78.0.1", "MASTER_PORT": 29578}
        variables |= {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1}
        command = [sys.executable, "-P", __file__, "--layouts", layout, "--mbit", str(given.mbit), "--rounds", str(given.rounds)]
        command += ["--rows", given.rows]
        environment = os.environ | {key: str(value) for key, value in variables.items()}
        processes.append(subprocess.Popen(["ip", "netns", "exec", f"shaped{rank // per_node}", *command], env=environment))
    return processes


def ended(processes: list[subprocess.Popen[bytes]]) -> int:
    """Waits for all ranks, and ends the others once one has failed."""
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            time.sleep(1)
            for process in processes:
                process.kill()
        time.sleep(0.2)
    return max((process.returncode for process in processes), key=abs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures plans and those of others over limited links.")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), metavar="NODESxRANKS", help="default: all of %(choices)s")
    parser.add_argument("--mbit", type=int, default=200, help="rate of the links (default: 200)")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each plan (default: 4)")
    parser.add_argument("--rows", metavar="FILE", help="write a JSON object of each profile and pair as soon as it is measured")
    parser.add_argument("--report", metavar="FILE", help="print the tables of such a file, and measure nothing")
    given = parser.parse_args()
    if given.report:
        return print(report(given.report))
    if "RANK" in os.environ:
        return rank_of(given)
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        sys.exit("limited links need root and iproute2 (ip, tc): nothing was measured")
    import torch

    run = header("plan_bench", "make plan-bench", "clock.md", PyTorch=torch.__version__, Python=platform.python_version())
    rows = pathlib.Path(given.rows or tempfile.mkstemp()[1])
    rows.write_text("", encoding="utf-8")
    given.rows = str(rows)
    for layout in given.layouts:
        made = subprocess.run([str(SHAPED), "up", str(LAYOUTS[layout][0]), str(given.mbit)], capture_output=True, text=True, check=False)
        try:
            if made.returncode:
                sys.exit(f"this machine makes no network namespaces with limited links, so nothing was measured: {made.stderr.strip()}")
            status = ended(started(given, layout))
        finally:
            subprocess.run([str(SHAPED), "down"], check=False)
        if status:
            sys.exit(status)
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    pairs_only = [line["details"] for line in lines if "pair" in line["details"]]
    print(tables(pairs_only))
    results.write(run, [*promises(pairs_only), *lines])


if __name__ == "__main__":
    main()
