"""Forgotten reductions: results that are declared as replicas, and differ among ranks."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from reshard._finding import Finding, FindingKind
from reshard.jax.hlo import Module
from reshard.jax.numbering import Numbering, Value
from reshard.jax.specs import mesh as our_mesh


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A result that is declared equal on two ranks, and may differ."""

    number: int
    path: str
    ranks: tuple[int, int]
    source: tuple[str, int] | None


def suspects(module: Module, numbering: Numbering, compiled: Any) -> list[Suspect]:
    """Returns the results whose replicas come from different values."""
    shardings = jax.tree_util.tree_flatten_with_path(compiled.output_shardings)[0]
    values: list[Value] = list(numbering.result) if isinstance(numbering.result, list) else [numbering.result]
    root = module.entry.root
    shapes = [shape.dims for shape in root.shapes]
    if not len(shardings) == len(values) == len(shapes):
        return []
    found = []
    for number, ((path, of), value, local) in enumerate(zip(shardings, values, shapes, strict=True)):
        if not isinstance(of, NamedSharding) or of.spec.unreduced or not isinstance(value, tuple):
            continue
        region = _region_of_ranks(of, local)
        first: dict[str, int] = {}
        for rank, what in enumerate(region):
            other = first.setdefault(what, rank)
            if value[other] != value[rank]:
                at = root.operands[number] if root.opcode == "tuple" else root.name
                source = module.source(module.entry.instructions[at])
                found.append(Suspect(number, jax.tree_util.keystr(path), (other, rank), source))
                break
    return found


def _region_of_ranks(of: NamedSharding, local: Sequence[int]) -> list[str]:
    """Describes each rank's region by a text; ranks with equal regions have equal texts."""
    axes = our_mesh(of.mesh)
    cuts: list[tuple[str, ...]] = []
    for entry in of.spec.partitions:
        cuts.append(() if entry is None else entry if isinstance(entry, tuple) else (entry,))
    used = [name for names in cuts for name in names]
    places = [dict(zip(axes.names, axes.coordinate(rank), strict=True)) for rank in axes.ranks]
    return [repr([place[name] for name in used]) for place in places]


def confirmed(found: list[Suspect], compiled: Any, args: Any, kwargs: Any) -> tuple[Finding, ...]:
    """Runs the function, and reports the suspects whose replicas differ."""
    args, kwargs = jax.tree.map(_given, (args, kwargs))
    results = jax.tree.leaves(compiled(*args, **kwargs))
    made = []
    for suspect in found:
        result = results[suspect.number]
        if jax.dtypes.issubdtype(result.dtype, jax.dtypes.prng_key):
            result = jax.random.key_data(result)
        shards = {shard.device: np.asarray(shard.data) for shard in result.addressable_shards}
        devices = list(result.sharding.mesh.devices.flat)
        a, b = (shards[devices[rank]] for rank in suspect.ranks)
        if not _near(a, b):
            where = "" if suspect.source is None else f" ({os.path.basename(suspect.source[0])}:{suspect.source[1]})"
            message = (
                f"forgotten reduction: result{suspect.path}{where} is declared as {result.sharding.spec}, but ranks "
                f"{suspect.ranks[0]} and {suspect.ranks[1]} have different numbers for the same elements"
            )
            code = "x = jax.lax.psum(x, axis)  # before it is returned, or declare it as sharded"
            made.append(Finding(FindingKind.FORGOTTEN_REDUCTION, message, code, 0, line=suspect.source))
    return tuple(made)


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    """Compares two shards up to rounding.

    Another order of summation changes a few bits; a forgotten reduction changes more.
    """
    if a.dtype.kind not in "fcV":
        return np.array_equal(a, b)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return np.allclose(a.astype(wide), b.astype(wide), rtol=1e-3, atol=1e-5, equal_nan=True)


def _given(leaf: Any) -> Any:
    """Returns the argument, as a copy if it may be donated; random numbers if only its shape was given."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            seeds = jax.random.key(0) if leaf.shape == () else jax.random.split(jax.random.key(0), leaf.shape)
            return jax.device_put(seeds, leaf.sharding)
        rng = np.random.default_rng(math.prod(leaf.shape))
        whole = rng.integers(0, 2, leaf.shape) if not jax.numpy.issubdtype(leaf.dtype, np.inexact) else rng.normal(size=leaf.shape)
        return jax.device_put(whole.astype(leaf.dtype), leaf.sharding)
    return leaf.copy() if isinstance(leaf, jax.Array) else leaf
