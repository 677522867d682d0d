#!/usr/bin/env python3
"""Writes random numbers as JAX and PyTorch draw them, for the test `kernels/tests/laws/random_facts.rs`:

    pip install jax==0.10.2 torch==2.15.0
    python scripts/jax_random.py > kernels/tests/data/jax_random.jsonl

The first line names the versions. Every further line is a fact: a key (two words), a generator, and

    draw, dtype, shape        the bits of all elements in hexadecimal, the lowest index first
    from, step                of a large tensor only every `step`-th element from an index on
    split, fold_in            the keys that come of it

JAX runs with `jax_threefry_partitionable` and 64-bit types, PyTorch on the CPU by `torch.func._random`.
"""

import json
import math
import sys

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)
import jax.numpy as jnp
import numpy as np
import torch
import torch.func._random as torch_random

SEEDS = [0, 1, 42, 2**31 + 7, 0x0123456789ABCDEF]
# One element, none, odd numbers of them, more than a block of the generator, and ranges that begin inside of
# a block.
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 4)]
LARGE = (17, 61)
FLOATS = ["f64", "f32", "bf16", "f16"]
NAMES = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16", "bool": "bool"}
for bits in (8, 16, 32, 64):
    NAMES[f"u{bits}"], NAMES[f"i{bits}"] = f"uint{bits}", f"int{bits}"

UNIFORM = [(0, 1), (-1, 1), (-0.3, 2.7), (0.001, 1000), (-5, -4.5), (0, 3), (100, 100.5)]
RANDINT = [(0, 2), (0, 10), (-7, 9), (0, 100), (-128, 127), (3, 4)]
WIDE = {
    "u8": [(0, 256), (5, 256)], "i8": [(-128, 128)],
    "u16": [(0, 65536), (1000, 60000)], "i16": [(-32768, 32768)],
    "u32": [(0, 2**32 - 1), (5, 3_000_000_000)], "i32": [(-(2**31), 2**31), (-(2**31), 2**31 - 1), (-1000, 1_999_999_999)],
    "u64": [(0, 2**64 - 1), (7, 10**19)], "i64": [(-(2**63), 2**63 - 1), (-1000, 10**18)],
}


def hexadecimal(elements):
    """Returns the bits of every element in hexadecimal, without spaces."""
    array = np.ascontiguousarray(np.asarray(elements))
    digits = array.dtype.itemsize * 2
    words = array.reshape(-1).view(f"u{array.dtype.itemsize}")
    return "".join(f"{int(word):0{digits}x}" for word in words)


def write(fact):
    json.dump(fact, sys.stdout, separators=(",", ":"))
    print()


def fact(generator, key, draw, dtype, shape, elements, first=0, step=1):
    line = {"generator": generator, "key": [int(word) for word in key], "draw": draw, "dtype": dtype, "shape": list(shape)}
    if (first, step) != (0, 1):
        line |= {"from": first, "step": step}
    write(line | {"bits": hexadecimal(elements)})


def number(x):
    return f"{x:.17g}" if isinstance(x, float) else str(x)


def jax_draws():
    """Yields the draws: a text, a dtype, and a function of key and shape."""
    for dtype in ("u8", "u16", "u32", "u64"):
        yield "bits", dtype, lambda k, s, d=dtype: jax.random.bits(k, s, NAMES[d])
    for dtype in FLOATS:
        for low, high in UNIFORM:
            yield (f"uniform({number(low)},{number(high)})", dtype,
                   lambda k, s, d=dtype, a=low, b=high: jax.random.uniform(k, s, NAMES[d], a, b))
        yield "normal(0,1)", dtype, lambda k, s, d=dtype: jax.random.normal(k, s, NAMES[d])
        yield ("truncated_normal(-2,2)", dtype,
               lambda k, s, d=dtype: jax.random.truncated_normal(k, -2.0, 2.0, s, NAMES[d]))
        yield "exponential", dtype, lambda k, s, d=dtype: jax.random.exponential(k, s, NAMES[d])
        yield "gumbel", dtype, lambda k, s, d=dtype: jax.random.gumbel(k, s, NAMES[d])
    for p in (0.0, 0.1, 0.5, 0.9, 1.0):
        yield f"bernoulli({number(p)})", "bool", lambda k, s, p=p: jax.random.bernoulli(k, jnp.float32(p), s)
    for dtype, wide in WIDE.items():
        for low, high in RANDINT + wide:
            if low < 0 and dtype[0] == "u":
                continue
            # JAX has no separate type for an end as large as the dtype allows.
            ends = [np.uint64(x) if x >= 2**63 else x for x in (low, high)]
            yield (f"randint({low},{high})", dtype,
                   lambda k, s, d=dtype, e=ends: jax.random.randint(k, s, e[0], e[1], NAMES[d]))


def torch_draws():
    types = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    for dtype in FLOATS:
        for low, high in UNIFORM:
            yield (f"uniform({number(low)},{number(high)})", dtype,
                   lambda k, s, d=dtype, a=low, b=high: torch_random.uniform(k, s, dtype=types[d], low=a, high=b))
    for dtype in WIDE:
        of = getattr(torch, NAMES[dtype])
        if dtype[0] == "u":
            yield "bits", dtype, lambda k, s, d=of: torch_random.bits(k, s, dtype=d)
        for low, high in RANDINT + WIDE[dtype]:
            span = high - low
            narrow = dtype[1:] != "64" and span >= 2**28 and span & (span - 1)
            if (low < 0 and dtype[0] == "u") or narrow:
                continue
            yield (f"randint({low},{high})", dtype,
                   lambda k, s, d=of, a=low, b=high: torch_random.randint(k, s, dtype=d, low=a, high=b))


def bits_of(tensor):
    if tensor.dtype in (torch.bfloat16, torch.float16):
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def facts(generator, draws, key_of, words_of, bits):
    for number_of_draw, (draw, dtype, drawn) in enumerate(draws):
# Every draw by two seeds and one small shape each, and from the middle of a large tensor.
        for i in range(2):
            seed = SEEDS[(number_of_draw + i * 2) % len(SEEDS)]
            key = key_of(seed)
            shape = SHAPES[(number_of_draw + i) % len(SHAPES)]
            fact(generator, words_of(key), draw, dtype, shape, bits(drawn(key, shape)))
        key = key_of(SEEDS[number_of_draw % len(SEEDS)])
        first, step = 200 + number_of_draw % 61, 1 + number_of_draw % 3
        whole = bits(drawn(key, LARGE)).reshape(-1)
        fact(generator, words_of(key), draw, dtype, LARGE, whole[first::step][:48], first, step)


write({"jax": jax.__version__, "jaxlib": jax.lib.__version__, "torch": torch.__version__.split("+")[0]})
for seed in SEEDS:
    key = jax.random.key(np.uint64(seed))
    data = jax.random.key_data
    write({
        "generator": "threefry", "seed": seed, "key": [int(x) for x in data(key)],
        "split": [[int(x) for x in data(k)] for k in jax.random.split(key, 5)],
        "fold_in": [[i, [int(x) for x in data(jax.random.fold_in(key, i))]] for i in (0, 1, 77, 2**32 - 1)],
    })
    key = torch_random.key(seed)
    write({
        "generator": "philox", "seed": seed, "key": key.tolist(), "split": torch_random.split(key, 5).tolist(),
        "fold_in": [[i, torch_random.fold_in(key, i).tolist()] for i in (0, 1, 77, 2**32 - 1, 2**64 - 1)],
    })
facts("threefry", jax_draws(), lambda seed: jax.random.key(np.uint64(seed)), lambda k: jax.random.key_data(k), np.asarray)
# A key that was folded in has an offset, too.
folded = lambda seed: torch_random.fold_in(torch_random.key(seed), 3)
facts("philox", torch_draws(), folded, lambda k: k.tolist(), bits_of)
# Indices beyond 32 bits: the counter's block is computed directly, because no tensor has that many elements.
for seed in SEEDS:
    key = jax.random.key_data(jax.random.key(np.uint64(seed)))
    high, low = np.array([1, 7, 2**31], np.uint32), np.array([0, 2**32 - 1, 12345], np.uint32)
    from jax.extend.random import threefry2x32_p

    a, b = threefry2x32_p.bind(key[0], key[1], jnp.asarray(high), jnp.asarray(low))
    write({
        "generator": "threefry", "key": [int(x) for x in key],
        "indices": [int(h) << 32 | int(l) for h, l in zip(high, low)],
        "words": [[int(x), int(y)] for x, y in zip(a, b)],
    })
