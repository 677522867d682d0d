"""Partition specs of a training step in JAX: those of parameters, states and data, chosen under a memory limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh
from jax.sharding import Mesh as DeviceMesh

from reshard import ComputeRates, Planner, Program, Topology
from reshard import parallelize as chosen_types
from reshard._refusals import refused
from reshard._trace import Tensor, no_grad, ops, trace
from reshard.jax.programs import Traced
from reshard.jax.specs import dtype, mesh as mesh_of, spec


@dataclass(frozen=True)
class ParallelizedFunction:
    """The partition specs of a function's arguments, with the time and the peak of a training step, and a bound on the time.

    `params`, `states` and `args` are trees of the structure of the parameters and of the other arguments; `states` are
    those of both states of each parameter, or None if it has none. `recomputed` are the values of `program` that
    backward computes or gathers again.
    """

    program: Program
    time_us: float
    bound_us: float
    gap: float
    peak_bytes: int
    params: Any
    states: Any
    args: tuple[Any, ...]
    recomputed: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.time_us:.1f} us a step, at least {self.bound_us:.1f} us (gap {100 * self.gap:.2f} %), peak {self.peak_bytes} B"


def parallelize(
    loss: Callable[..., Any],
    params: Any,
    *args: Any,
    mesh: DeviceMesh | AbstractMesh,
    memory: int | str | None = None,
    optimizer: Literal["adamw"] | None = "adamw",
    topology: Topology | str | None = None,
    planner: Planner | None = None,
    rates: ComputeRates | None = None,
) -> ParallelizedFunction:
    """Chooses the partition specs of `loss(params, *args)` for a training step, under a memory limit.

    Arguments are arrays or `jax.ShapeDtypeStruct(shape, dtype)`, or trees of them; their shardings are not used. `loss`
    returns one number, and is traced as `program` does it. `memory` limits the peak of every rank, such as `"80GB"`.
    The step has the gradients with respect to all floating-point parameters, and an update by AdamW without correction
    of bias, with two states of f32 for each of them, or none.

    Errors: those of `program`; a `ReshardError` if no types were found with which the program fits.
    """
    if optimizer not in ("adamw", None):
        raise refused("optimizer", f"unknown optimizer {optimizer!r}; expected 'adamw' or None")
    axes = mesh_of(mesh)
    traced = Traced(loss, (params, *args))
    count = len(jax.tree.leaves(params))
    trained = [name for name, leaf in zip(traced.names[:count], traced.leaves, strict=False) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    if not trained:
        raise refused("program", "params has no floating-point array, so there is no gradient; give the parameters as the first argument")
    inputs: dict[str, Any] = {name: (dtype(leaf.dtype), leaf.shape, "?") for name, leaf in zip(traced.names, traced.leaves, strict=True)}
    if optimizer == "adamw":
        inputs |= {f"{name}.{state}": ("f32", inputs[name][1], "?") for name in trained for state in ("m", "v")}

    def step(**tensors: Tensor) -> dict[str, Tensor]:
        made = traced.gradients(tensors, mesh, trained)
        no_grad()
        for name in trained if optimizer == "adamw" else []:
            states = [f"{name}.m", f"{name}.v"]
            new = ops("adamw", tensors[name], made[f"d{name}"], *[tensors[state] for state in states])
            made |= {f"{of}'": value for of, value in zip([name, *states], new, strict=True)}
        return made

    graph = trace(step, axes, **inputs)
    answer = chosen_types(graph, memory=memory, topology=topology, planner=planner, rates=rates)
    program = answer.program
    specs = jax.tree.unflatten(traced.tree, [spec(program[name].sharding) for name in traced.names])
    of_states = [spec(program[f"{name}.m"].sharding) if f"{name}.m" in program else None for name in traced.names[:count]]
    states = jax.tree.unflatten(jax.tree.structure(params), of_states)
    return ParallelizedFunction(
        program, answer.time_us, answer.bound_us, answer.gap, answer.peak_bytes, specs[0], states, tuple(specs[1:]), tuple(answer.recomputed)
    )
