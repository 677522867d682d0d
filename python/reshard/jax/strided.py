"""Strided views of flat arrays in traced code: packing before a call, and unpacking after it.

Loops are (extent, stride), the outermost first. If their strides divide one another, as those of nested
shardings do, a view is a reshape, a slice and a transpose. Otherwise it is a gather, whose indices are
computed and are not constants of the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp 
from jax import lax

Loops = Sequence[tuple[int, int]]


class Box:
    """A buffer as a box of several dims, in which views with these loops and any of these starts are boxes too."""

    def __init__(self, sizes: list[int], strides: list[int], taken: list[int], order: list[int]) -> None:
        self.sizes = sizes  # the extents of the dims, the outermost first
        self.strides = strides  # the elements that one step along each dim advances
        self.taken = taken  # the extent of the view in each dim: 1 in dims that are not loops
        self.order = order  # the dim of each loop with an extent above 1

    def at(self, start: Any) -> list[Any]:
        """Returns the begin of a view along each dim."""
        return [start // stride % size for size, stride in zip(self.sizes, self.strides, strict=True)]


def box(loops: Loops, starts: Iterable[int], length: int) -> Box | None:
    """Returns the box of these loops in a buffer of this length, or None."""
    known = [(extent, stride) for extent, stride in loops if extent > 1]
    sizes: list[int] = []
    strides: list[int] = []
    taken: list[int] = []
    dims: dict[int, int] = {}
    above = length
    # From the outermost stride inward; the ratio of two strides is the extent of the outer one's dim.
    for number in sorted(range(len(known)), key=lambda number: -known[number][1]):
        extent, stride = known[number]
        if stride <= 0 or above % stride or above // stride < extent:
            return None
        dims[number] = len(sizes)
        sizes.append(above // stride)
        strides.append(stride)
        taken.append(extent)
        above = stride
    if above > 1 or not sizes:
        sizes.append(above)
        strides.append(1)
        taken.append(1)
    made = Box(sizes, strides, taken, [dims[number] for number in range(len(known))])
    fits = all(
        digit + count <= size
        for start in set(starts)
        for digit, count, size in zip(made.at(start), made.taken, made.sizes, strict=True)
    )
    return made if fits else None


def _indices(loops: Loops, start: Any) -> Any:
    """Computes the index of each element of a view."""
    shape = tuple(extent for extent, _ in loops)
    made = jnp.asarray(start, dtype="int32")
    for dim, (_, stride) in enumerate(loops):
        made = made + stride * lax.broadcasted_iota("int32", shape, dim)
    return jnp.broadcast_to(made, shape).reshape(-1)


def read(buffer: Any, loops: Loops, start: Any, starts: Iterable[int]) -> Any:
    """Reads the elements of a view in order; its start is one of `starts`, known or traced."""
    size = math.prod(extent for extent, _ in loops)
    if size == 0:
        return buffer[:0]
    found = box(loops, starts, buffer.size)
    if found is None:
        return buffer[_indices(loops, start)]
    whole = buffer.reshape(found.sizes)
    begin = found.at(start)
    if isinstance(start, int):
        part = lax.slice(whole, begin, [b + n for b, n in zip(begin, found.taken, strict=True)])
    else:
        part = lax.dynamic_slice(whole, begin, found.taken)
    # Drop the dims of one element, and put the others in the order of the loops.
    dims = sorted(found.order)
    part = part.reshape([found.taken[dim] for dim in dims])
    return part.transpose([dims.index(dim) for dim in found.order]).reshape(size)


def write(buffer: Any, loops: Loops, start: int, elements: Any) -> Any:
    """Returns the buffer with these elements written to a view."""
    if elements.size == 0:
        return buffer
    found = box(loops, [start], buffer.size)
    if found is None:
        return buffer.at[_indices(loops, start)].set(elements, unique_indices=True)
    dims = sorted(found.order)
    part = elements.reshape([found.taken[dim] for dim in found.order])
    part = part.transpose([found.order.index(dim) for dim in dims]).reshape(found.taken)
    if found.taken == found.sizes:
        return part.reshape(buffer.size)
    return lax.dynamic_update_slice(buffer.reshape(found.sizes), part, found.at(start)).reshape(buffer.size)


def progression(numbers: Sequence[int]) -> list[tuple[int, int]] | None:
    """Returns the loops that enumerate these numbers relative to the first, or None."""
    if len(numbers) == 1:
        return []
    step = numbers[1] - numbers[0]
    extent = 1
    while extent < len(numbers) and numbers[extent] == numbers[0] + extent * step:
        extent += 1
    while len(numbers) % extent:
        extent -= 1
    if extent == 1 or any(numbers[i] != numbers[i - i % extent] + i % extent * step for i in range(len(numbers))):
        return None
    outer = progression(numbers[::extent])
    return None if outer is None else [*outer, (extent, step)]
