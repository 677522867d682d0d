"""Times torch's DTensor redistribute planning, uncached, on pairs like those of `benches/planner.rs`.

    python3 -m venv venv
    venv/bin/pip install torch
    venv/bin/python benches/peers/planner_torch.py [PAIRS]

One process stands for the mesh by the fake process group; nothing communicates. Both planners of torch 2.15
are timed: the greedy one, axis by axis, which is its default, and the search over placements. Figures are
microseconds per plan: the median, mean and worst over the pairs. Pairs in which every axis changes, drawn at
fixed distances from all of them, as in `benches/src/planning.rs`.
"""

import itertools
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor import _redistribute as planning
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.testing._internal.distributed.fake_pg import FakeStore

CHOICES = (Replicate(), Shard(0), Shard(1), Partial())
SHAPE = (4096, 4096)


def pairs(axes, terms, count):
    words = list(itertools.product(CHOICES, repeat=axes))
    owes = lambda word: any(isinstance(p, Partial) for p in word)
    asked = {"none": lambda a, b: not owes(a) and not owes(b), "source": lambda a, b: owes(a) and not owes(b),
             "target": lambda a, b: owes(b)}[terms]
    every = [(a, b) for a in words for b in words if asked(a, b) and all(x != y for x, y in zip(a, b))]
    return [every[(2 * i + 1) * len(every) // (2 * count)] for i in range(count)]


def spec(mesh, placements):
    return DTensorSpec(mesh, placements, TensorMeta(torch.Size(SHAPE), (SHAPE[1], 1), torch.float32))


def time_us(function, budget=0.2):
    times = []
    end = time.perf_counter() + budget
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 50):
        begin = time.perf_counter()
        function()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def planners(mesh):
    """The two planning functions: name and a function of two specs."""
    meta = TensorMeta(torch.Size(SHAPE), (SHAPE[1], 1), torch.float32)
    # A planner caches its results, so each plan gets a new one.
    fresh = lambda: planning.DTensorRedistributePlanner(mesh, meta)
    return {
        "greedy": lambda a, b: fresh().generate_greedy_transform_infos(a, b),
        "graph": lambda a, b: fresh().generate_graph_based_transform_infos(a, b, SHAPE),
    }


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    print("| torch", torch.__version__, "| pairs | median us | mean us | worst us | rejected |\n|---|---|---|---|---|---|")
    for sizes in ((2, 2, 2), (2, 2, 2, 2)):
        world = 1
        for n in sizes:
            world *= n
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=tuple("xyzw"[: len(sizes)]))
        for name, plan in planners(mesh).items():
            for partial in ("none", "source", "target"):
                times, rejected = [], 0
                for a, b in pairs(len(sizes), partial, count):
                    source, target = spec(mesh, a), spec(mesh, b)
                    try:
                        plan(source, target)
                    except Exception as error:
                        rejected += 1
                        if "-v" in sys.argv:
                            print(a, b, error)
                        continue
                    times.append(time_us(lambda: plan(source, target)))
                figures = [f(times) if times else float("nan") for f in (statistics.median, statistics.mean, max)]
                print(f"| {name}, {sizes}, partial: {partial} | {len(times)} | " +
                      " | ".join(f"{x:.0f}" for x in figures) + f" | {rejected} |")
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
