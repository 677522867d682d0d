"""Real steps by PyTorch's collectives and under `planned()`, in turns in one run: calls, bytes and times.

    python real_steps.py [--ranks 4] [--best] [--rounds 7] [STEP ..]
    scripts/shaped_nodes.sh up 2 200; python real_steps.py --nodes 2 ..; scripts/shaped_nodes.sh down

The steps of steps.py run over gloo on a mesh of 2 by half the ranks. With `--nodes` the first axis is between network
namespaces with limited links; otherwise all ranks are on the loopback device. Two equal models take turns, one by
PyTorch and one under `planned()`, and their results are compared. A time is that between two barriers. Prints per step:
calls and received bytes of the busiest rank, bytes that node 0 sends, medians of both times, and their ratio. With
RESHARD_WRITE=1 it adds a run to benches/results/real_steps.jsonl.

`--best` is PyTorch with more than its defaults on CPUs: the device mesh has a flattened axis, on which DTensor merges
collectives, and dims change by gloo's all-to-all, where DTensor gathers and slices on CPUs.
"""

import argparse
import contextlib
import functools
import logging
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from results import header, write
from steps import STEPS

from reshard.torch import audit, planned


def by_all_to_all(tensor: torch.Tensor, gather: int, shard: int, mesh: DeviceMesh, axis: int) -> torch.Tensor:
    """DTensor's change of the sharded dim, as it does it on devices that are not CPUs."""
    return torch.ops._dtensor.shard_dim_alltoall(tensor, gather, shard, funcol._resolve_group((mesh, axis)))  # type: ignore[no-any-return]


def sent(device: str) -> int:
    """Returns the bytes that a network device has sent."""
    with open("/proc/net/dev", encoding="ascii") as devices:
        return next(int(line.split(":")[1].split()[8]) for line in devices if line.strip().startswith(f"{device}:"))


def difference(wanted: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> float:
    """Returns the largest difference, relative to the largest element of its tensor; 0 if all bits are equal."""
    pairs = [(one.double(), other.double()) for one, other in zip(wanted, got, strict=True)]
    return max(float((one - other).abs().max() / one.abs().max().clamp(min=1e-30)) for one, other in pairs)


def at_most(value: float) -> float:
    """Returns the largest value of any rank."""
    made = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(made, dist.ReduceOp.MAX)
    return float(made)


def measured(name: str, mesh: DeviceMesh, rounds: int, device: str) -> dict[str, Any]:
    """Measures one step; the result is equal on all ranks but for the sent bytes, which are this node's."""
    steps = STEPS[name](mesh), STEPS[name](mesh)
    plans = planned()
    contexts = contextlib.nullcontext(), plans
    row: dict[str, Any] = {"step": name, "mesh": list(mesh.shape), "worst_difference": 0.0}
    times: tuple[list[float], list[float]] = ([], [])
    bytes_sent: tuple[list[int], list[int]] = ([], [])
    made: list[list[torch.Tensor]] = [[], []]
    # PyTorch's caches are filled by the first turns without plans, so that the first time with them adds the planning.
    for turn in [0, 1, *[0, 1] * rounds]:
        with contexts[turn]:
            dist.barrier()
            before, start = sent(device), time.perf_counter()
            made[turn] = steps[turn]()
            dist.barrier()
            times[turn].append(at_most(time.perf_counter() - start))
            bytes_sent[turn].append(sent(device) - before)
        if turn:
            row["worst_difference"] = max(row["worst_difference"], at_most(difference(*made)))
    for turn, of in enumerate(("pytorch", "planned")):
        with contexts[turn], audit() as seen:
            steps[turn]()
        row |= {
            f"{of}_calls": int(at_most(sum(moved.times * len(moved.calls) for moved in seen.moved))), f"{of}_received": int(at_most(seen.received_bytes)),
            f"{of}_sent": int(statistics.median(bytes_sent[turn][1:])), f"{of}_first_s": round(times[turn][0], 4),
            f"{of}_s": round(statistics.median(times[turn][1:]), 4), f"{of}_times": [round(one, 4) for one in times[turn][1:]],
        }  # fmt: skip
    row["by_pytorch"] = plans.report().fallbacks
    return row


def line(row: dict[str, Any], best: bool, nodes: int) -> dict[str, Any]:
    """Returns the raw result of a measured step."""
    mesh = "x".join(map(str, row["mesh"]))
    return {
        "what": f"step `{row['step']}` on {mesh}" + (f", {nodes} nodes" if nodes else ""), "ours": row["planned_s"], "peer": row["pytorch_s"],
        "peer_name": "PyTorch, `--best`" if best else "PyTorch", "unit": "s", "load": round(os.getloadavg()[0], 1),
        "details": {key: value for key, value in row.items() if key not in ("planned_s", "pytorch_s")} | {"best": best, "nodes": nodes},
    }  # fmt: skip


def rank_of(given: argparse.Namespace) -> None:
    """Runs one rank, whose rank and addresses are in the environment, as torchrun sets them."""
    warnings.filterwarnings("ignore")
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
    logging.getLogger("torch._logging").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("a", "b"))
    if given.best:
        mesh._flatten("flat")
    native = mock.patch("torch.distributed.tensor.placement_types.shard_dim_alltoall", by_all_to_all)
    with native if given.best else contextlib.nullcontext():
        run = header("real_steps", "python/benches/real_steps.py", "steps.md", PyTorch=torch.__version__)
        lines = []
        for name in given.steps or STEPS:
            row = measured(name, mesh, given.rounds, os.environ["GLOO_SOCKET_IFNAME"])
            if dist.get_rank() == 0:
                lines.append(line(row, given.best, given.nodes))
                row |= {"ratio": round(row["pytorch_s"] / row["planned_s"], 3), "load": lines[-1]["load"]}
                columns = ("pytorch_calls", "planned_calls", "pytorch_received", "planned_received", "pytorch_sent", "planned_sent")
                seconds = ("pytorch_first_s", "planned_first_s", "pytorch_s", "planned_s", "ratio", "worst_difference", "load")
                print(name, *(row[column] for column in columns + seconds), flush=True)
        if dist.get_rank() == 0:
            write(run, lines, also=True)
    dist.destroy_process_group()


def started(given: argparse.Namespace) -> list[subprocess.Popen[bytes]]:
    """Starts this program once for each rank, in the namespaces of the nodes if there are any."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    of_node = given.ranks // (given.nodes or 1)
    processes = []
    for rank in range(given.ranks):
        variables = {"RANK": rank, "WORLD_SIZE": given.ranks, "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
        variables |= {"MASTER_ADDR": "10.78.0.1" if given.nodes else "127.0.0.1", "GLOO_SOCKET_IFNAME": "eth0" if given.nodes else "lo"}
        within = ["ip", "netns", "exec", f"shaped{rank // of_node}"] if given.nodes else []
        environment = os.environ | {key: str(value) for key, value in variables.items()}
        processes.append(subprocess.Popen([*within, sys.executable, *sys.argv], env=environment))
    return processes


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs steps by PyTorch's collectives and under planned(), in turns.")
    parser.add_argument("--ranks", type=int, default=4, help="4 or 8 (default: 4)")
    parser.add_argument("--nodes", type=int, default=0, help="nodes of scripts/shaped_nodes.sh (default: none)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each (default: 7)")
    parser.add_argument("--best", action="store_true", help="a flattened axis and gloo's all-to-all for PyTorch")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"default: all of {', '.join(STEPS)}")
    given = parser.parse_args()
    if "RANK" in os.environ:
        return rank_of(given)
    codes = [process.wait() for process in started(given)]
    sys.exit(max(codes, key=abs))


if __name__ == "__main__":
    main()
