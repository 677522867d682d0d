#!/usr/bin/env python3
"""Random numbers by JAX on one thread, as `benches/benches/random.rs` draws them:

    pip install jax==0.10.2
    taskset -c 0 python benches/peers/random_jax.py

Compiled functions of 2^20 elements; median and least of 40, in ns an element.
"""

import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax

jax.config.update("jax_threefry_partitionable", True)
jax.config.update("jax_enable_x64", True)
N = 1 << 20
key = jax.random.key(0)
print(f"jax {jax.__version__}")
for name, draw in [
    ("bits u32", lambda k: jax.random.bits(k, (N,), "uint32")),
    ("uniform f32", lambda k: jax.random.uniform(k, (N,), "float32")),
    ("uniform(-0.3,2.7) f32", lambda k: jax.random.uniform(k, (N,), "float32", -0.3, 2.7)),
    ("uniform bf16", lambda k: jax.random.uniform(k, (N,), "bfloat16")),
    ("uniform f64", lambda k: jax.random.uniform(k, (N,), "float64")),
    ("normal f32", lambda k: jax.random.normal(k, (N,), "float32")),
    ("bernoulli bool", lambda k: jax.random.bernoulli(k, jax.numpy.float32(0.1), (N,))),
    ("randint i32", lambda k: jax.random.randint(k, (N,), 0, 1000, "int32")),
]:
    run = jax.jit(draw)
    run(key).block_until_ready()
    times = []
    for _ in range(40):
        begin = time.perf_counter()
        run(key).block_until_ready()
        times.append(time.perf_counter() - begin)
    times.sort()
    print(f"{name}: {times[20] / N * 1e9:.2f}, {times[0] / N * 1e9:.2f}")
