#!/usr/bin/env python3
"""Measures how JAX traces and lowers transformer layers with gradients, to compare with `reshard check`.

    pip install jax
    scripts/jax_trace.py 24                             JAX, on eight devices of the host: dp=2, tp=4
    time reshard check benches/layers.txt --explicit local-only --json
"""

import sys
import time

B, S, D, H, F = 8, 512, 1024, 16, 4096
WEIGHTS = [
    ("g1", (D,), ()),
    ("wq", (D, H, D // H), (None, "tp")),
    ("wk", (D, H, D // H), (None, "tp")),
    ("wv", (D, H, D // H), (None, "tp")),
    ("wo", (H, D // H, D), ("tp",)),
    ("g2", (D,), ()),
    ("w1", (D, F), (None, "tp")),
    ("w3", (D, F), (None, "tp")),
    ("w2", (F, D), ("tp",)),
]


def jax_times(layers):
    import os

    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((2, 4), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    on = lambda *spec: NamedSharding(mesh, PartitionSpec(*spec))
    cut, whole = on("dp", "tp"), on("dp")

    def norm(x, g):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g

    def layer(x, w):
        n = jax.lax.with_sharding_constraint(norm(x, w["g1"]), whole)
        q, k, v = (jnp.einsum("bsd,dhe->bshe", n, w["w" + c]) for c in "qkv")
        o = jax.nn.dot_product_attention(q, k, v)
        x = x + jax.lax.with_sharding_constraint(jnp.einsum("bshe,hed->bsd", o, w["wo"]), cut)
        n = jax.lax.with_sharding_constraint(norm(x, w["g2"]), whole)
        h = jax.nn.silu(n @ w["w1"]) * (n @ w["w3"])
        return x + jax.lax.with_sharding_constraint(h @ w["w2"], cut)

    def loss(weights, x):
        for w in weights:
            x = layer(x, w)
        return x.sum()

    array = lambda shape, spec: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(*spec))
    weights = [{name: array(shape, spec) for name, shape, spec in WEIGHTS} for _ in range(layers)]
    x = jax.ShapeDtypeStruct((B, S, D), jnp.float32, sharding=cut)
    for turn in range(3):
        step = jax.jit(lambda w, x: jax.grad(loss)(w, x))
        # Next to other processes, only processor time is comparable.
        now = lambda: (time.perf_counter(), time.process_time())
        begin = now()
        traced = step.trace(weights, x)
        middle = now()
        traced.lower()
        end = now()
        took = lambda a, b: f"{b[0] - a[0]:.3f} s, {b[1] - a[1]:.3f} of the processor"
        print(f"jax {jax.__version__}, {layers} layers: traced {took(begin, middle)}; lowered {took(middle, end)}")


if __name__ == "__main__":
    jax_times(int(sys.argv[1]))
