"""A plan as traced code of one rank: every exchange is one call of `jax.lax` between two strided views.

Ranks differ only in offsets: rows of tables with ranks x peers numbers, indexed by the rank. No table holds
elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from reshard import Plan, SpmdCall
from reshard._refusals import refused
from reshard.jax import strided
from reshard.jax.specs import dtype as our_dtype

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {"sum": jnp.add, "prod": jnp.multiply, "min": jnp.minimum, "max": jnp.maximum}


def identity(op: str, dtype: Any) -> Any:
    """Returns the identity of a reduction; minus zero for float sums, to preserve the sign of zeros."""
    kind = np.dtype(dtype)
    floats = jnp.issubdtype(kind, jnp.inexact)
    match op:
        case "sum":
            return np.asarray(-0.0 if floats else 0, kind)
        case "prod":
            return np.asarray(1, kind)
        case "min" | "max":
            limits = None if floats else jnp.iinfo(kind)
            least = -np.inf if limits is None else limits.min
            most = np.inf if limits is None else limits.max
            return np.asarray(most if op == "min" else least, kind)
    raise refused("op", f"JAX has no reduction {op}; expected one of: sum, prod, min, max")


def combined(op: str) -> Callable[[Any, Any], Any]:
    """Returns the function that combines two partial values."""
    if op not in _COMBINE:
        raise refused("op", f"JAX has no reduction {op}; expected one of: {', '.join(_COMBINE)}")
    return _COMBINE[op]


class _Table:
    """A table with a row of numbers for every rank; if all rows are equal, its columns are plain numbers."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.rows = np.asarray(rows, dtype=np.int32)
        self.columns = int(self.rows.shape[1])
        self.is_constant = bool((self.rows == self.rows[:1]).all())

    def column(self, number: int) -> list[int]:
        """Returns the numbers of all ranks in a column."""
        return [int(value) for value in self.rows[:, number]]

    def at(self, rank: Any, number: int) -> Any:
        """Returns this rank's number in a column: a plain number if it is equal on all ranks."""
        column = self.rows[:, number]
        return int(column[0]) if (column == column[0]).all() else jnp.asarray(column)[rank]

    def row(self, rank: Any) -> Any:
        """Returns this rank's row."""
        return self.rows[0] if self.is_constant else jnp.asarray(self.rows)[rank]


class Exchange:
    """One exchange of all ranks, as this rank's code."""

    def __init__(self, call: SpmdCall) -> None:
        self.kind = call.kind
        self.groups = call.groups
        self.rounds = call.rounds
        self.op = call.op
        self.block = _outermost_first(call.block.leaves())
        self.block_size = math.prod(extent for extent, _ in self.block)
        self.packs = _Table(call.source_offsets)
        self.lands = _Table(call.arrival_order)
        self.unpack = [(view.offset, view.loops, len(view)) for view in call.unpack]
        self.combine = call.combine
        self.fill = call.fill
        self.divisor = call.divisor
        self.source_len = call.source_len
        self.target_len = call.target_len

    def run(self, source: Any, rank: Any, axes: tuple[str, ...]) -> Any:
        """Returns the buffer after the exchange, given the buffer before it."""
        received = self._call(self._packed(source, rank), axes)
        target = self._landed(received, rank, source.dtype)
        return target if self.divisor == 1 else target / jnp.asarray(self.divisor, target.dtype)

    def _packed(self, source: Any, rank: Any) -> Any:
        """Packs this rank's blocks, a row for each."""
        columns = self.packs.columns
        apart = self.packs.rows - self.packs.rows[:, :1]
        peers = strided.progression([int(n) for n in apart[0]]) if columns and (apart == apart[:1]).all() else None
        if peers is not None:
            loops = [*peers, *self.block]
            read = strided.read(source, loops, self.packs.at(rank, 0), self.packs.column(0))
            return read.reshape(columns, self.block_size)
        blocks = [
            strided.read(source, self.block, self.packs.at(rank, n), self.packs.column(n)) for n in range(columns)
        ]
        return jnp.stack(blocks) if blocks else jnp.zeros((0, self.block_size), source.dtype)

    def _call(self, packed: Any, axes: tuple[str, ...]) -> Any:
        """Runs the collective and returns the received blocks, a row for each."""
        match self.kind:
            case "local":
                return packed
            case "all_gather":
                return lax.all_gather(packed[0], axes, axis_index_groups=self.groups)
            case "all_to_all":
                return _to_all(packed, axes, self.groups)
            case "reduce_scatter" if self.op == "sum":
                return lax.psum_scatter(packed, axes, scatter_dimension=0, axis_index_groups=self.groups)[None]
            case "reduce_scatter":
                return self._reduced(_to_all(packed, axes, self.groups))[None]
            case "all_reduce" if self.op in _OF_ALL:
                return _OF_ALL[self.op](packed, axes, axis_index_groups=self.groups)
            case "all_reduce":
                return self._all_reduced(packed[0], axes)[None]
            case "permute":
                rounds = [
                    lax.ppermute(block, axes, pairs) for block, pairs in zip(packed, self.rounds, strict=True)
                ]
                return jnp.stack(rounds) if rounds else packed
        raise refused("calls", f"JAX has no call {self.kind}")

    def _reduced(self, terms: Any) -> Any:
        """Combines rows in their order."""
        return functools.reduce(combined(self.op or "sum"), list(terms))

    def _all_reduced(self, block: Any, axes: tuple[str, ...]) -> Any:
        """Reduces by an op without a JAX collective: each rank combines a part, then parts are gathered."""
        members = len(self.groups[0])
        part = -(-block.size // members)
        padded = jnp.pad(block, (0, part * members - block.size)).reshape(members, part)
        mine = self._reduced(_to_all(padded, axes, self.groups))
        return lax.all_gather(mine, axes, axis_index_groups=self.groups).reshape(-1)[: block.size]

    def _landed(self, received: Any, rank: Any, dtype: Any) -> Any:
        """Unpacks the received blocks into the buffer after the exchange."""
        count = int(received.shape[0])
        row, rows = self.lands.row(rank), self.lands.rows
        in_order = self.lands.is_constant and list(rows[0]) == list(range(count))
        landed = received
        if not in_order and self.lands.columns:
            landed = received.at[row].get(mode="clip") if count else jnp.zeros((self.lands.columns, self.block_size), dtype)
            if (rows >= count).any():
                nothing = identity(self.combine or self.fill or "sum", dtype)
                landed = jnp.where((row < count)[:, None], landed, nothing)
        if self.combine is not None:
            landed = functools.reduce(combined(self.combine), list(landed))
        elements = landed.reshape(-1)
        value = np.zeros((), dtype) if self.fill is None else identity(self.fill, dtype)
        target = lax.full((self.target_len,), value, dtype)
        begin = 0
        for offset, loops, size in self.unpack:
            target = strided.write(target, loops, offset, elements[begin : begin + size])
            begin += size
        return target


def _to_all(rows: Any, axes: tuple[str, ...], groups: Any) -> Any:
    """Sends row n to the n-th rank of the group.

    JAX cannot batch this call with groups: the rows of a batch are sent as longer rows.
    """

    def exchange(rows: Any) -> Any:
        return lax.all_to_all(rows, axes, 0, 0, axis_index_groups=groups)

    def of_batch(size: int, is_batched: Any, rows: Any) -> tuple[Any, bool]:
        if not is_batched[0]:
            return exchanged(rows), False
        wide = jnp.moveaxis(rows, 0, 1)
        return jnp.moveaxis(exchanged(wide.reshape(wide.shape[0], -1)).reshape(wide.shape), 1, 0), True

    exchanged = jax.custom_batching.custom_vmap(exchange)
    exchanged.def_vmap(of_batch)
    return exchanged(rows)


_OF_ALL: dict[str | None, Callable[..., Any]] = {"sum": lax.psum, "min": lax.pmin, "max": lax.pmax}


def _outermost_first(leaves: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [leaf for leaf in reversed(leaves) if leaf[0] != 1]


@functools.lru_cache(maxsize=4096)
def exchanges(plan: Plan) -> tuple[Exchange, ...]:
    """Returns the plan as one program for all ranks; raises an error if ranks differ by more than offsets."""
    if plan.max_shard_bytes // plan.dtype.element_bytes >= 2**31:
        raise refused("size", f"a rank holds {plan.max_shard_bytes} B, but JAX counts the elements of one buffer in 32 bits")
    return tuple(Exchange(call) for call in plan.spmd().calls)


def moved(x: Any, plan: Plan, axes: tuple[str, ...]) -> Any:
    """Runs a plan on this rank's shard and returns the shard after it."""
    flat = x.reshape(-1)
    rank = lax.axis_index(axes)
    for exchange in exchanges(plan):
        flat = exchange.run(flat, rank, axes)
    return flat.reshape(plan.to.local_shape(plan.ranks[0]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _differentiable(x: Any, plan: Plan, axes: tuple[str, ...]) -> Any:
    return moved(x, plan, axes)


def _forward(x: Any, plan: Plan, axes: tuple[str, ...]) -> tuple[Any, None]:
    return _differentiable(x, plan, axes), None


def _backward(plan: Plan, axes: tuple[str, ...], _: None, gradient: Any) -> tuple[Any]:
    return (_differentiable(gradient, plan.transposed(), axes),)


_differentiable.defvjp(_forward, _backward)


def local(x: Any, plan: Plan, axis_names: str | Sequence[str]) -> Any:
    """Runs a plan on this rank's shard inside of the caller's `shard_map(.., check_vma=False)`.

    `axis_names` are all axes of the mesh in the order in which they number the plan's ranks. The gradient
    uses the transposed plan: the gradient of a replica on one rank is a partial value.
    """
    axes = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    sizes = [int(lax.axis_size(name)) for name in axes]
    if plan.ranks != list(range(math.prod(sizes))):
        raise refused("ranks", f"the plan is for the ranks {plan.ranks}, but the axes {axes} have {math.prod(sizes)} ranks from 0")
    before = plan.from_.common_local_shape
    if before is None or plan.to.common_local_shape is None:
        raise refused("uneven", f"ranks have shards of different shapes before or after: {plan.from_} -> {plan.to}")
    if tuple(x.shape) != before:
        raise refused("shape", f"the shard has the shape {list(x.shape)}, but every shard of {plan.from_} has {list(before)}")
    if our_dtype(x.dtype) != plan.dtype:
        raise refused("dtype", f"the shard is {x.dtype}, but the plan is for {plan.dtype.name}")
    return _differentiable(x, plan, axes)
