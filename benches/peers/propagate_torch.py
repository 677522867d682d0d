"""Times the choice of an op's strategy in torch's DTensor, on the inputs of `benches/src/propagating.rs`.

    python3 -m venv venv
    venv/bin/pip install torch
    venv/bin/python benches/peers/propagate_torch.py [SECONDS]

One process stands for the mesh by the fake process group; nothing communicates. Meshes of 1 to 5 axes of 2
ranks, two inputs of 1024 x 1024 elements, each axis one of R, S(0), S(1), P: all pairs, or 64 of them spread
evenly. The timed calls are `propagate_op_sharding_non_cached` on a schema of the op, whose inner caches stay
warm, and `propagate_op_sharding` on the same schema when its answer is in the cache (of one pair, if an
answer takes seconds). If all pairs would take longer than SECONDS (default 60) for an op and a mesh, fewer
are taken, spread evenly; the table has their number. Figures are microseconds: the median, mean and worst
over the pairs, each the least of its runs.
"""

import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.testing._internal.distributed.fake_pg import FakeStore

CHOICES = (Replicate(), Shard(0), Shard(1), Partial())
SIDE = 1024
PAIRS = 64
OPS = {"mm": torch.ops.aten.mm.default, "add": torch.ops.aten.add.Tensor}


def pairs(axes):
    """The pairs of placements of `propagating.rs`, in its order."""
    every = 16**axes
    step = -(-every // PAIRS)
    if step > 1:
        step |= 1
    side = 4**axes
    word = lambda code: tuple(CHOICES[code // 4**i % 4] for i in range(axes))
    return [(word(code % side), word(code // side)) for code in range(0, every, step)]


def spec(mesh, placements):
    return DTensorSpec(mesh, placements, TensorMeta(torch.Size((SIDE, SIDE)), (SIDE, 1), torch.float32))


def once(function):
    begin = time.perf_counter()
    function()
    return (time.perf_counter() - begin) * 1e6


def least(function, first, seconds=0.05):
    """The least time of some runs more, where they are short."""
    times = [first]
    while len(times) < 7 and sum(times) < seconds * 1e6:
        times.append(once(function))
    return min(times)


def spread(items, count):
    return [items[(2 * i + 1) * len(items) // (2 * count)] for i in range(count)] if count < len(items) else items


def row(times):
    return " | ".join(f"{f(times):.1f}" for f in (statistics.median, statistics.mean, max)) if times else "- | - | -"


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    print(f"| torch {torch.__version__} | pairs | rejected | uncached: median us | mean us | worst us "
          "| cached: median us | mean us | worst us |\n|---|---|---|---|---|---|---|---|---|")
    for axes in range(1, 6):
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2**axes)
        mesh = init_device_mesh("cpu", (2,) * axes, mesh_dim_names=tuple("abcde"[:axes]))
        propagator = DTensor._op_dispatcher.sharding_propagator
        for name, op in OPS.items():
            every = pairs(axes)
            uncached, cached, rejected, taken = [], [], 0, 0.0
            schema_of = lambda a, b: OpSchema(op, (spec(mesh, a), spec(mesh, b)), {})
            # The first call of an op on a mesh also imports and registers.
            propagator.propagate_op_sharding_non_cached(schema_of(*every[0]))
            warm = once(lambda: propagator.propagate_op_sharding_non_cached(schema_of(*every[0])))
            chosen = spread(every, max(4, min(len(every), int(seconds * 1e6 / (2 * warm)))))
            for a, b in chosen:
                schema = schema_of(a, b)
                ask = lambda: propagator.propagate_op_sharding_non_cached(schema)
                try:
                    first = once(ask)
                except Exception as error:
                    rejected += 1
                    if "-v" in sys.argv:
                        print(a, b, error)
                    continue
                uncached.append(least(ask, first))
                # Filling the cache takes as long again.
                if not cached or first < 1e6:
                    hit = lambda: propagator.propagate_op_sharding(schema)
                    hit()
                    cached.append(min(once(hit) for _ in range(200)))
            print(f"| {name}, {axes} axes | {len(uncached)} of {len(every)} | {rejected} | {row(uncached)} | {row(cached)} |", flush=True)
        dist.destroy_process_group()


main()
