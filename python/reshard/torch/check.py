"""A module of PyTorch's as a program: typed, reported, differentiated, before anything runs."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.export.graph_signature import OutputKind

from reshard import Elaborator, Graph, Mesh, Program, Report, ReshardError, Table

from reshard.torch.beside import Comparison, compared
from reshard.torch.lower import lower
from reshard.torch.specs import mesh

# Outputs that are the new value of an input.
_WRITTEN = {OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION}


@dataclass(frozen=True)
class Checked:
    """A module as a program, with what it moves and holds, and what DTensor would move for it; `str` is all of that.

    `results` are the names of what `forward` returns, in order.
    """

    program: Program
    report: Report
    beside: Comparison
    results: tuple[str, ...]

    def __str__(self) -> str:
        lines = [str(self.program).rstrip()]
        for move in self.report.moves:
            if move.communicates:
                by_pass = ", ".join(f"{name} {traffic.received_bytes} B in {traffic.steps}" for name, traffic in move.traffic.items() if traffic)
                lines.append(f"moves {move.value}: {move.from_} -> {move.to}: {by_pass}")
        for name, traffic in self.report.traffic.items():
            lines.append(f"{name}: {traffic.received_bytes} B in {traffic.steps} steps")
        lines.append(f"peak {self.report.peak_bytes} B")
        lines.append(str(self.beside))
        return "\n".join(lines)


def check(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    over: Mesh | str | DeviceMesh,
    placements: Mapping[str, str],
    *,
    gradient: bool = False,
    elaborator: Elaborator | None = None,
    table: Table | None = None,
) -> Checked:
    """A module, traced by `torch.export`, as a program over a mesh: what every value is, and what is moved for it.

    `placements` says types by patterns of names, the first that matches wins: of parameters and buffers by PyTorch's names, of inputs by those of
    `forward`; what none matches is replicated. With `gradient`, which wants a result that is a single number, the program has the backward pass
    for all parameters. `beside` has, op by op, what DTensor's own dispatch would redistribute for tensors of the same shardings. Nothing runs,
    and no groups are needed.

    Errors: `ReshardError` for an op or an argument that the table has not, with its name; what the elaborator refuses.
    """
    ranks = mesh(over) if isinstance(over, DeviceMesh) else Mesh(over)
    # Without decompositions of ops: the graph becomes functional, so that no write through a view is missed.
    exported = torch.export.export(module, tuple(inputs)).run_decompositions({})
    graph = Graph(ranks, table=table)
    chosen = Table.standard() if table is None else table
    signature = exported.graph_signature
    own = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names: dict[Any, Any] = {}
    trained = []
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            meant = own.get(node.name, node.name)
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor):
                raise ReshardError(f"the input {meant} is {type(value).__name__}, and programs are of tensors")
            wanted = next((text for pattern, text in placements.items() if fnmatch.fnmatchcase(meant, pattern)), ",".join(["R"] * len(ranks.names)))
            names[node] = graph.input(_name(meant), value.dtype, tuple(value.shape), wanted)
            if node.name in signature.inputs_to_parameters:
                trained.append(names[node])
        elif node.op == "call_function":
            names[node] = lower(graph, chosen, node, names)
        elif node.op != "output":
            raise ReshardError(f"{node.name} is a node of the kind {node.op}, and programs are of ops and inputs")
    made = {one.name: name for one, name in names.items()}
    results = tuple(made[spec.arg.name] for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT and spec.arg.name in made)
    if gradient:
        graph.gradient(results[0], trained)
    for spec in signature.output_specs:
        # An input that is written to is that in the next step.
        if spec.target is not None and spec.kind in _WRITTEN:
            graph.apply("clone", [made[spec.arg.name]], [f"{_name(spec.target)}'"])
    program = graph.elaborate(elaborator)
    named = {node: name for node, name in names.items() if node.op == "placeholder"}
    return Checked(program, program.report(), compared(exported, program, ranks, named, names, gradient), results)


def _name(of: str) -> str:
    """A name of PyTorch's as one of a program's."""
    made = of.replace(".", "_")
    return made if made[:1].isalpha() or made[:1] == "_" else f"_{made}"
