"""Redistribution of JAX arrays: eager, in jit with typed sources, and as functions of given shardings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from reshard import Plan, Planner, ReshardError, Sharding
from reshard._refusals import refused
from reshard.jax import transfers
from reshard.jax.specs import device_mesh, dtype, mesh, named, other_way, sharding
from reshard.jax.traced import exchanges, moved

# A target: a sharding of JAX, a spec on the array's mesh, a `Sharding`, or placements on the array's mesh.
Wanted = Any


@dataclasses.dataclass(frozen=True)
class Move:
    """A redistribution from one spec to another on one JAX mesh: a linear map, whose transpose is one too."""

    mesh: Any
    shape: tuple[int, ...]
    before: PartitionSpec
    after: PartitionSpec
    planner: Planner

    def plan(self, element: Any) -> Plan:
        """Returns the plan for elements of a type; raises an error if the planner rejects it."""
        from_ = sharding(NamedSharding(self.mesh, self.before), self.shape)
        to = sharding(NamedSharding(self.mesh, self.after), self.shape)
        return self.planner.plan(from_, to, dtype(element))

    def back(self) -> Move:
        """Returns the transpose, which gradients use: from the result's gradient to the source's."""
        return dataclasses.replace(self, before=other_way(self.after), after=other_way(self.before))

    def trace(self, x: Any) -> Any:
        """Traces the redistribution."""
        made = self.plan(x.dtype)
        exchanges(made)  # raise the error of a plan without an SPMD program here, not inside of the trace
        run = jax.shard_map(
            functools.partial(moved, plan=made, axes=tuple(self.mesh.axis_names)),
            mesh=self.mesh, in_specs=self.before, out_specs=self.after, check_vma=False,
        )
        return run(x)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _differentiable(x: Any, move: Move) -> Any:
    return move.trace(x)


def _forward(x: Any, move: Move) -> tuple[Any, None]:
    return _differentiable(x, move), None


def _backward(move: Move, _: None, gradient: Any) -> tuple[Any]:
    return (_differentiable(gradient, move.back()),)


_differentiable.defvjp(_forward, _backward)


@functools.lru_cache(maxsize=4096)
def _compiled(move: Move, target: NamedSharding) -> Callable[[Any], Any]:
    """Returns a function that is compiled once and whose result has exactly the requested sharding."""

    def reshard_move(x: Any) -> Any:
        return _differentiable(x, move)

    made: Callable[[Any], Any] = jax.jit(reshard_move, out_shardings=target)
    return made 


def _planner(given: Planner | None) -> Planner:
    return _DEFAULT if given is None else given


_DEFAULT = Planner()


def _source(x: Any) -> NamedSharding:
    """Returns the sharding of an array, or of a traced one as far as its type gives it."""
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
        raise refused("dtype", f"elements of {x.dtype} cannot be redistributed; give their data, jax.random.key_data(x)")
    if not isinstance(x, jax.core.Tracer):
        if not isinstance(x.sharding, NamedSharding):
            raise refused("sharding", f"the array's sharding {x.sharding} has no named axes; put the array on a mesh with jax.device_put first")
        return x.sharding
    known = jax.typeof(x).sharding
    types = dict(zip(known.mesh.axis_names, known.mesh.axis_types, strict=True))
    if AxisType.Manual in types.values():
        raise refused("manual", "inside of shard_map an array is the shard of one rank; redistribute it with reshard.jax.local(x, plan, axis_names)")
    if not types or any(kind != AxisType.Explicit for kind in types.values()):
        raise refused(
            "unknown_source",
            "in a trace on Auto axes the sharding of the array is not known yet, and a guess would gather all of it; "
            "give the sharding with reshard.jax.reshard_fn(shape, dtype, from_, to), or make the mesh's axes Explicit; "
            "in a function for reshard.jax.program use jax.lax.with_sharding_constraint",
        )
    return known 


def _target(wanted: Wanted, source: NamedSharding, shape: Sequence[int]) -> NamedSharding:
    match wanted:
        case NamedSharding():
            return wanted
        case PartitionSpec():
            return NamedSharding(source.mesh, wanted)
        case Sharding():
            if tuple(wanted.shape) != tuple(shape):
                raise refused("shape", f"the array has the shape {list(shape)}, but {wanted} is for {list(wanted.shape)}")
            if wanted.mesh == mesh(source.mesh):
                return named(wanted, source.mesh)
            return named(wanted, device_mesh(wanted.mesh, list(source.mesh.devices.flat)))
        case str() | list() | tuple():
            return named(Sharding(mesh(source.mesh), tuple(shape), wanted), source.mesh)
    raise TypeError(f"a target must be a NamedSharding, a PartitionSpec, a Sharding or placements, not {type(wanted).__name__}")


def _whole(x: Any, to: Wanted) -> Any:
    """Puts an array of NumPy, or numbers, on every device of the target's mesh."""
    if not isinstance(to, NamedSharding):
        raise refused("sharding", f"{type(x).__name__} is on no mesh: give a NamedSharding as the target, or jax.device_put it first")
    return jax.device_put(np.asarray(x), NamedSharding(to.mesh, PartitionSpec()))


def _padded(spec: PartitionSpec, dims: int) -> PartitionSpec:
    """Returns the spec with an entry for each dim."""
    return PartitionSpec(*spec.partitions, *[None] * (dims - len(spec.partitions)), unreduced=spec.unreduced, reduced=spec.reduced)


def reshard(x: Any, to: Wanted, *, planner: Planner | None = None) -> Any:
    """Redistributes an array by a plan of this library; differentiable, with a separate gradient plan.

    `to` is a `NamedSharding`, a `PartitionSpec` on the array's mesh, a `Sharding`, or placements such as
    `"R,S(1)"`. In a trace the mesh's axes have to be Explicit, so that the array's type gives the source
    sharding. Outside of a trace, a plan that no single program can run is sent from device to device, one
    message of the plan at a time; so is a redistribution to another mesh.
    """
    if not isinstance(x, (jax.Array, jax.core.Tracer)):
        x = _whole(x, to)
    source = _source(x)
    target = _target(to, source, x.shape)
    in_trace = isinstance(x, jax.core.Tracer)
    if in_trace and target.mesh != source.mesh:
        if getattr(target.mesh, "abstract_mesh", target.mesh) != source.mesh:
            raise refused("mesh", f"in a trace there is one mesh, {source.mesh}, but the target is on {target.mesh}; redistribute outside of the trace")
        target = NamedSharding(source.mesh, target.spec)
    chosen = _planner(planner)
    if target.mesh != source.mesh:
        return transfers.across(x, source, target, chosen)
    dims = len(x.shape)
    move = Move(source.mesh, tuple(x.shape), _padded(source.spec, dims), _padded(target.spec, dims), chosen)
    if move.before == move.after:
        return x if in_trace else jax.device_put(x, target)
    if in_trace:
        try:
            return _differentiable(x, move)
        except ReshardError as error:
            raise _said(error) from None
    try:
        exchanges(move.plan(x.dtype))
    except ReshardError as error:
        if error.kind != "plan_mismatch":
            raise
        return transfers.across(x, source, target, chosen)
    return _compiled(move, target)(x)


def _said(error: ReshardError) -> ReshardError:
    if error.kind != "plan_mismatch":
        return error
    return refused(error.kind, f"{error}; no single program can run this redistribution: call it outside of jit, where data is sent from device to device")


def reshard_fn(
    shape: Sequence[int], element: Any, from_: NamedSharding, to: NamedSharding, *, planner: Planner | None = None
) -> Callable[[Any], Any]:
    """Returns a function that redistributes arrays of this shape and type, for jit on Auto axes.

    The source is enforced: an array that arrives in another sharding is first redistributed to `from_` by
    XLA.
    """
    if not isinstance(from_, NamedSharding) or not isinstance(to, NamedSharding):
        raise TypeError("from_ and to must be NamedShardings")
    if from_.mesh != to.mesh:
        raise refused("mesh", f"in a trace there is one mesh, but from_ is on {from_.mesh} and to is on {to.mesh}")
    kind = np.dtype(element)
    dims = len(shape)
    move = Move(from_.mesh, tuple(shape), _padded(from_.spec, dims), _padded(to.spec, dims), _planner(planner))
    try:
        exchanges(move.plan(kind))
    except ReshardError as error:
        raise _said(error) from None

    def moves(x: Any) -> Any:
        if tuple(x.shape) != move.shape or x.dtype != kind:
            raise refused("shape", f"the array is {x.dtype}{list(x.shape)}, but the function redistributes {kind}{list(move.shape)}")
        return _differentiable(x, move)

    return moves
