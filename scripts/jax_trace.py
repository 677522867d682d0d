#!/usr/bin/env python3
"""How long JAX takes to trace and lower transformer layers with their gradient: what `reshard check` types and differentiates.

    pip install jax
    scripts/jax_trace.py --program 24 > layers.txt     the same layers as a program of reshard
    scripts/jax_trace.py 24                             JAX, on eight devices of the host: dp=2, tp=4
    time reshard check layers.txt --explicit free-moves --json
"""

import sys
import time

B, S, D, H, F = 8, 512, 1024, 16, 4096
WEIGHTS = [
    ("g1", (D,), "I,I", ()),
    ("wq", (D, H, D // H), "I,S(1)", (None, "tp")),
    ("wk", (D, H, D // H), "I,S(1)", (None, "tp")),
    ("wv", (D, H, D // H), "I,S(1)", (None, "tp")),
    ("wo", (H, D // H, D), "I,S(0)", ("tp",)),
    ("g2", (D,), "I,I", ()),
    ("w1", (D, F), "I,S(1)", (None, "tp")),
    ("w3", (D, F), "I,S(1)", (None, "tp")),
    ("w2", (F, D), "I,S(0)", ("tp",)),
]


def program(layers):
    """Megatron's moves written, sequences cut between products."""
    lines = ["mesh dp=2,tp=4", f"x0: f32[{B},{S},{D}] S(0),S(1)"]
    names = [f"{name}_{n}" for n in range(layers) for name, *_ in WEIGHTS]
    for n in range(layers):
        for name, shape, kept, _ in WEIGHTS:
            lines.append(f"{name}_{n}: f32[{','.join(map(str, shape))}] {kept}")
            lines.append(f"{name}r_{n}: {kept.replace('I', 'R')} = {name}_{n}")
        lines.append(f"n1_{n} = rms_norm(x{n}, g1r_{n})")
        lines.append(f"n1r_{n}: S(0),R = n1_{n}")
        lines += [f"{c}_{n} = bsd,dhe->bhse(n1r_{n}, w{c}r_{n})" for c in "qkv"]
        lines.append(f"o_{n} = scaled_dot_product_attention(q_{n}, k_{n}, v_{n})")
        lines.append(f"p_{n} = bhse,hed->bsd(o_{n}, wor_{n})")
        lines.append(f"ps_{n}: S(0),S(1) = p_{n}")
        lines.append(f"y_{n} = add(x{n}, ps_{n})")
        lines.append(f"n2_{n} = rms_norm(y_{n}, g2r_{n})")
        lines.append(f"n2r_{n}: S(0),R = n2_{n}")
        lines += [f"h{c}_{n} = bsd,df->bsf(n2r_{n}, w{c}r_{n})" for c in "13"]
        lines.append(f"s_{n} = silu(h1_{n})")
        lines.append(f"h_{n} = mul(s_{n}, h3_{n})")
        lines.append(f"m_{n} = bsf,fd->bsd(h_{n}, w2r_{n})")
        lines.append(f"ms_{n}: S(0),S(1) = m_{n}")
        lines.append(f"x{n + 1} = add(y_{n}, ms_{n})")
    lines += [f"loss = sum(x{layers})", f"gradient loss wrt {', '.join(names)}"]
    print("\n".join(lines))


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
    weights = [{name: array(shape, spec) for name, shape, _, spec in WEIGHTS} for _ in range(layers)]
    x = jax.ShapeDtypeStruct((B, S, D), jnp.float32, sharding=cut)
    for turn in range(3):
        step = jax.jit(lambda w, x: jax.grad(loss)(w, x))
        # Beside other work the time of the processor is what can be compared.
        now = lambda: (time.perf_counter(), time.process_time())
        begin = now()
        traced = step.trace(weights, x)
        middle = now()
        traced.lower()
        end = now()
        took = lambda a, b: f"{b[0] - a[0]:.3f} s, {b[1] - a[1]:.3f} of the processor"
        print(f"jax {jax.__version__}, {layers} layers: traced {took(begin, middle)}; lowered {took(middle, end)}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["--program"]:
        program(int(arguments[1]))
    else:
        jax_times(int(arguments[0]))
