"""A PyTorch module as a graph of statements: its inputs with types, its results, and the gradients of its parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind

from reshard import DType, Graph, Mesh, OpTable
from reshard._refusals import refused, said

from reshard.torch.contract import Patterns, first_names, pinned_nodes, results_of
from reshard.torch.folded import Folded
from reshard.torch.lower import lower
from reshard.torch.lowering import Lowering

# Outputs that are the new value of an input.
_WRITTEN = {OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION}


@dataclass(frozen=True)
class Traced:
    """A graph, with the names of its inputs by PyTorch's names, and its results and gradients.

    `trained` are PyTorch's names of the parameters with a gradient, and the names of both in the graph.
    """

    exported: torch.export.ExportedProgram
    lowering: Lowering
    inputs: Mapping[str, str]
    nodes: Mapping[torch.fx.Node, str]
    trained: Mapping[str, tuple[str, str]]
    results: tuple[str, ...]
    made: tuple[torch.fx.Node, ...]
    others: Mapping[int, Any]
    gradients: Mapping[torch.fx.Node, str]

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.lowering.graph


def traced(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    ranks: Mesh,
    placements: Mapping[str, str],
    default: Callable[[str, int | None], str],
    *,
    pinned: Mapping[str, str] | None = None,
    gradient: bool = False,
    table: OpTable | None = None,
) -> Traced:
    """Traces a plain module by `torch.export`.

    An input has the type of the first pattern in `placements` that matches its name, or else that of
    `default(name, position)`: its index among the inputs of `forward`, or None for parameters and buffers.
    """
    exported = _exported(module, inputs)
    types = Patterns("placements", placements)
    pins = pinned_nodes(exported, pinned or {})
    signature = exported.graph_signature
    own = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    positions = {name: position for position, name in enumerate(signature.user_inputs)}
    folded = Folded(exported)
    lowering = Lowering(Graph(ranks, table=table), OpTable.standard() if table is None else table, folded, gradient)
    graph, names = lowering.graph, lowering.names
    parameters = dict(module.named_parameters(remove_duplicate=False))
    known = first_names(module)
    # Before any is left out, so that a pattern of a name that the program does not need counts as used; a tensor with
    # several names has the type of any of them.
    wanted_of: dict[str, str] = {}
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            meant = own.get(node.name, node.name)
            if (text := types.of(meant)) is not None:
                wanted_of.setdefault(known.get(meant, meant), text)
    by_name: dict[str, str] = {}
    trained: dict[str, torch.fx.Node] = {}
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            meant = own.get(node.name, node.name)
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor):
                raise refused("program", f"the input {meant} is {type(value).__name__}, but programs have only tensors")
            if folded.is_unused(node):
                continue
            meant = known.get(meant, meant)
            if name_of(meant) in graph and meant in known:
                names[node] = name_of(meant)
                continue
            wanted = wanted_of.get(meant) or default(meant, positions.get(node.name))
            names[node] = by_name[meant] = graph.input(name_of(meant), value.dtype, tuple(value.shape), wanted)
            if node in folded:
                lowering.constants[names[node]] = folded.value(node)
            if node.name in signature.inputs_to_parameters and parameters[meant].requires_grad:
                trained[meant] = node
        elif node.op == "call_function":
            if not folded.is_unused(node) and not folded.is_input(node):
                names[node] = lower(lowering, node)
                if node in pins:
                    graph.constrain(names[node], pins[node])
        elif node.op != "output":
            raise refused("program", f"{node.name} is a node of the kind {node.op}, but programs have only ops and inputs")
    types.check_used("input, parameter or buffer")
    nodes = {one.name: one for one in exported.graph.nodes}
    returned = [spec.arg for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    others = {place: one.value for place, one in enumerate(returned) if isinstance(one, ConstantArgument)}
    called = results_of(exported)
    made = tuple(called.values())
    results = tuple(_kept(lowering, node, name) for name, node in called.items())
    gradients: list[str] = []
    if gradient:
        if not results:
            raise refused("program", "a gradient needs a number that forward returns, but it returns no tensor")
        loss = made[0]
        if loss.meta["val"].numel() != 1:
            raise refused("program", f"a gradient needs a result that is a single number, but forward returns {DType(loss.meta['val'].dtype)}{list(loss.meta['val'].shape)}; return a loss")
        gradients = graph.gradient(lowering.name(loss), [names[node] for node in trained.values()])
    for spec in signature.output_specs:
        # The new value of a written input is its value in the next step.
        if spec.target is not None and spec.kind in _WRITTEN:
            graph.apply("clone", [lowering.name(nodes[spec.arg.name])], [f"{name_of(spec.target)}'"])
    return Traced(
        exported,
        lowering,
        by_name,
        {node: name for node, name in names.items() if node.op == "placeholder" or folded.is_input(node)},
        {meant: (names[node], slope) for (meant, node), slope in zip(trained.items(), gradients, strict=False)},
        results,
        made,
        others,
        dict(zip(trained.values(), gradients, strict=False)),
    )


def _kept(lowering: Lowering, node: torch.fx.Node, called: str) -> str:
    """Returns a name of a result under which it is live at the end, also if other statements use it."""
    name: str = lowering.name(node)
    if not lowering.has_gradient and len(node.users) == 1:
        return name
    while called in lowering.graph:
        called += "_"
    return lowering.graph.keep(name, called)


def _exported(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> torch.export.ExportedProgram:
    """Returns a module as a functional graph."""
    try:
        # No op is decomposed: this only makes the graph functional, so that writes through views are seen.
        return torch.export.export(module, tuple(inputs)).run_decompositions({})
    except Exception as error:
        raise refused("program", f"torch.export cannot export {type(module).__qualname__}: {said(error)}") from error


def name_of(of: str) -> str:
    """Converts a name of PyTorch to one of a program."""
    made = of.replace(".", "_")
    return made if made[:1].isalpha() or made[:1] == "_" else f"_{made}"
