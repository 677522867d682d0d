"""Placements of a PyTorch module: the types of its parameters, states and inputs, chosen under a memory limit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, distribute_module, distribute_tensor

from reshard import ComputeRates, Mesh, OpTable, Planner, Program, Topology
from reshard import Parallelized as Answer
from reshard import parallelize as chosen_types
from reshard._refusals import refused

from reshard.torch.parallelized import device_mesh_of
from reshard.torch.specs import mesh as mesh_of
from reshard.torch.specs import torch_placements
from reshard.torch.traced import Traced, traced

Placements = tuple[Placement, ...]


@dataclass(frozen=True)
class ParallelizedModule:
    """The placements of a module's tensors, with the time and the peak of a training step, and a bound on the time.

    `parameters`, `buffers` and `inputs` have PyTorch's names; `states` are those of the optimizer's states by the name
    of their parameter. `recomputed` are the values of `program` that backward computes or gathers again. `beyond`
    lists, one note each, the parts of `program` that these placements alone do not make PyTorch do; a `Runner` of
    `program` does all of them. `constants` are the elements of the inputs of `program` that come from the module.
    """

    program: Program
    time_us: float
    bound_us: float
    gap: float
    peak_bytes: int
    parameters: Mapping[str, Placements]
    buffers: Mapping[str, Placements]
    inputs: Mapping[str, Placements]
    states: Mapping[str, Placements]
    recomputed: tuple[str, ...]
    beyond: tuple[str, ...]
    constants: Mapping[str, torch.Tensor]

    def __str__(self) -> str:
        lines = [f"{self.time_us:.1f} us a step, at least {self.bound_us:.1f} us (gap {100 * self.gap:.2f} %), peak {self.peak_bytes} B"]
        for kind, listed in (("parameter", self.parameters), ("buffer", self.buffers), ("input", self.inputs)):
            lines.extend(f"{kind} {name}: {_text(placements)}" for name, placements in listed.items())
        lines.extend(f"states of {name}: {_text(placements)}" for name, placements in self.states.items())
        return "\n".join([*lines, *self.beyond])

    def apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        """Makes parameters and buffers DTensors of these placements, and inputs that `forward` is called with.

        All ranks call it, each with the same elements. Redistributions within the module are those of DTensor's
        dispatch: `beyond` lists where the program has others. Returns the module.
        """
        if mesh_of(device_mesh).shape != self.program.mesh.shape:
            raise refused("mesh", f"the placements are on {self.program.mesh}, but the device mesh is {mesh_of(device_mesh)}; give one of the same sizes")
        placed: dict[int, torch.Tensor] = {}
        # A tensor with several names has the placements of its first one.
        placements = {id(one): self.parameters[name] for name, one in module.named_parameters() if name in self.parameters}
        placements.update({id(one): self.buffers[name] for name, one in module.named_buffers() if name in self.buffers})

        def distribute(_: str, part: torch.nn.Module, over: DeviceMesh) -> None:
            for own in (part._parameters, part._buffers):
                for name, tensor in own.items():
                    if tensor is None or isinstance(tensor, DTensor) or id(tensor) not in placements:
                        continue
                    if id(tensor) not in placed:
                        made = distribute_tensor(tensor.detach(), over, placements[id(tensor)], src_data_rank=None)
                        placed[id(tensor)] = torch.nn.Parameter(made, tensor.requires_grad) if own is part._parameters else made
                    own[name] = placed[id(tensor)]

        given = list(self.inputs.values())

        def distribute_inputs(_: torch.nn.Module, inputs: Any, over: DeviceMesh) -> Any:
            pairs = zip(inputs, [*given, *[None] * (len(inputs) - len(given))], strict=True)
            return tuple(
                one if wanted is None or isinstance(one, DTensor) else distribute_tensor(one, over, wanted, src_data_rank=None) for one, wanted in pairs
            )

        return distribute_module(module, device_mesh, distribute, distribute_inputs)


def parallelize(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    *,
    mesh: Mesh | str | DeviceMesh,
    memory: int | str | None = None,
    placements: Mapping[str, str] | None = None,
    optimizer: Literal["adamw"] | None = "adamw",
    topology: Topology | str | None = None,
    planner: Planner | None = None,
    rates: ComputeRates | None = None,
    table: OpTable | None = None,
) -> ParallelizedModule:
    """Chooses the placements of a module's parameters, buffers and inputs for a training step, under a memory limit.

    The module is traced as `check` does it, and `forward` returns the loss. `memory` limits the peak of every rank, such
    as `"80GB"`. `placements` gives types by patterns of names, as in `check`; a `?` is open, and so is every tensor that
    no pattern matches. The step has an update by AdamW without correction of bias, with two states of f32 for each
    parameter, or none. No groups are needed.

    Errors: those of `check`; a `ReshardError` if no types were found with which the program fits.
    """
    if isinstance(inputs, torch.Tensor):
        raise TypeError("inputs must be a sequence of tensors, not one tensor; give [x]")
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, found {type(module).__qualname__}")
    if optimizer not in ("adamw", None):
        raise refused("optimizer", f"unknown optimizer {optimizer!r}; expected 'adamw' or None")
    if device_mesh_of([*module.parameters(), *module.buffers(), *inputs]) is not None:
        raise refused("mesh", "the module has DTensors, whose placements are chosen already; give the module before parallelize_module and fully_shard")
    ranks = mesh_of(mesh) if isinstance(mesh, DeviceMesh) else Mesh(mesh)
    found = traced(module, inputs, ranks, placements or {}, lambda *_: "?", gradient=True, table=table)
    states = _updated(found) if optimizer == "adamw" else {}
    answer = chosen_types(found.graph, memory=memory, topology=topology, planner=planner, rates=rates, table=table)
    program = answer.program
    of = {name: torch_placements(program[ours].sharding) for name, ours in found.inputs.items()}
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    buffers = {name for name, _ in module.named_buffers(remove_duplicate=False)}
    return ParallelizedModule(
        program,
        answer.time_us,
        answer.bound_us,
        answer.gap,
        answer.peak_bytes,
        {name: is_ for name, is_ in of.items() if name in parameters},
        {name: is_ for name, is_ in of.items() if name in buffers},
        {name: is_ for name, is_ in of.items() if name not in parameters and name not in buffers},
        {name: torch_placements(program[state].sharding) for name, state in states.items()},
        tuple(answer.recomputed),
        tuple(_beyond(answer, found, states)),
        found.lowering.constants,
    )


def _updated(found: Traced) -> dict[str, str]:
    """Adds the update of each parameter by AdamW; returns the names of its first state by PyTorch's names."""
    graph, states = found.graph, {}
    graph.no_grad()
    for meant, (name, slope) in found.trained.items():
        first, second = (graph.input(f"{name}.{state}", "f32", graph.shape(name), "?") for state in ("m", "v"))
        graph.apply("adamw", [name, slope, first, second], [f"{name}'", f"{first}'", f"{second}'"])
        states[meant] = first
    return states


def _beyond(answer: Answer, found: Traced, states: Mapping[str, str]) -> Iterator[str]:
    """Yields a note for each part of the program that placements do not make PyTorch do."""
    program = answer.program
    ours = {name: meant for meant, name in found.inputs.items()}
    for meant, state in states.items():
        parameter = program[found.inputs[meant]]
        if program[state].sharding != parameter.sharding:
            yield f"The gradient and the states of {meant} are {program[state].sharding}, and it is {parameter.sharding}; optimizers of PyTorch have states like the parameter."
    for move in program.report(ComputeRates.uniform()).redistributions:
        stored, forward, backward = ours.get(move.value), move.traffic["forward"], move.traffic["backward"]
        # A copy for backward is among the recomputed values; redistributions of the update are those of the states.
        if not any(one is not None and one.steps for one in (forward, backward)) or move.result.rstrip("'").endswith(".again"):
            continue
        if stored is None:
            yield f"{move.value} is redistributed from {move.from_} to {move.to} for {move.consumer}; DTensor's dispatch chooses the shardings of operands itself."
        elif forward is not None and forward.steps:
            yield f"{stored} is stored as {move.from_} and redistributed to {move.to} for {move.consumer}; DTensor's dispatch chooses itself when to gather it."
        else:
            yield f"The gradient of {stored} is reduced in backward ({move.from_} to {move.to}); DTensor may leave it partial until the optimizer reads it."
    if answer.recomputed:
        yield f"Backward computes or gathers {', '.join(answer.recomputed)} again; wrap the modules of these values in torch.utils.checkpoint."


def _text(placements: Placements) -> str:
    return ", ".join(map(str, placements))
