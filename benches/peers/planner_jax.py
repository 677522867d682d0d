"""Times the partitioning of redistributions in jax, on pairs without partial sums as in `benches/planner.rs`.

    python3 -m venv venv
    venv/bin/pip install jax
    venv/bin/python benches/peers/planner_jax.py [PAIRS]

Neither Shardy nor GSPMD plans outside of a compilation. The time is therefore that of lowering and compiling
the identity from one sharding to the other on 8 host devices, next to that of the identity between equal
shardings, which plans nothing. Milliseconds: median, mean and worst over the pairs. Pairs in which every axis
changes, drawn at fixed distances from all of them, as in `benches/src/planning.rs`.
"""

import itertools
import os
import statistics
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

SHAPE = (4096, 4096)
AXES = ("x", "y", "z")


def spec(word):
    dims = [tuple(a for a, c in zip(AXES, word) if c == dim) or None for dim in range(2)]
    return PartitionSpec(*dims)


def pairs(count):
    words = list(itertools.product((None, 0, 1), repeat=3))
    every = [(a, b) for a in words for b in words if all(x != y for x, y in zip(a, b))]
    return [every[(2 * i + 1) * len(every) // (2 * count)] for i in range(count)]


def compile_ms(mesh, a, b):
    jax.clear_caches()
    x = jax.ShapeDtypeStruct(SHAPE, numpy.float32)
    shardings = [NamedSharding(mesh, spec(word)) for word in (a, b)]
    begin = time.perf_counter()
    jax.jit(lambda x: x, in_shardings=shardings[0], out_shardings=shardings[1]).lower(x).compile()
    return (time.perf_counter() - begin) * 1e3


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    mesh = Mesh(numpy.array(jax.devices()).reshape(2, 2, 2), AXES)
    print(f"| jax {jax.__version__} | pairs | median ms | mean ms | worst ms |\n|---|---|---|---|---|")
    for name, shardy in (("Shardy", True), ("GSPMD", False)):
        jax.config.update("jax_use_shardy_partitioner", shardy)
        compile_ms(mesh, (0, None, None), (1, None, None))
        for what, end in (("redistribution", lambda a, b: b), ("nothing to redistribute", lambda a, b: a)):
            times = [compile_ms(mesh, a, end(a, b)) for a, b in pairs(count)]
            figures = " | ".join(f"{f(times):.1f}" for f in (statistics.median, statistics.mean, max))
            print(f"| {name}, {what} | {len(times)} | {figures} |")


if __name__ == "__main__":
    main()
