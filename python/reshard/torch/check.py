"""Static checks of a PyTorch module as a program: typed, reported and differentiated before anything runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.export.graph_signature import ConstantArgument, OutputKind

from reshard import DType, ShardingSolver, Graph, Mesh, Program, Report, OpTable
from reshard._refusals import counted, refused, said

from reshard.torch.beside import Comparison, Ends, compared
from reshard.torch.contract import Patterns, first_names, pinned_nodes, results_of
from reshard.torch.folded import Folded
from reshard.torch.lower import lower
from reshard.torch.lowering import Lowering
from reshard.torch.parallelized import device_mesh_of, plain, plain_input, type_of
from reshard.torch.specs import mesh

# Outputs that are the new value of an input.
_WRITTEN = {OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION}


@dataclass(frozen=True)
class CheckReport:
    """A module as a program, with its redistributions and memory, and DTensor's; `str` prints all of that.

    `results` are the names of the tensors that `forward` returns, in order. Other returned values, such as
    None or a number, are in `others`, by their index among all returned values. `constants` are the elements
    of the inputs that are buffers, or that PyTorch computed of buffers and numbers, by the program's names.
    """

    program: Program
    report: Report
    results: tuple[str, ...]
    others: Mapping[int, Any]
    constants: Mapping[str, torch.Tensor]
    _compared: Callable[[], Comparison] = field(repr=False, compare=False)

    @cached_property
    def beside(self) -> Comparison:
        """The redistributions of DTensor's dispatch for each op, computed on the first use."""
        # DTensor's search for a large module takes several times as long as all else.
        return self._compared()

    def __str__(self) -> str:
        lines = [str(self.program).rstrip()]
        for move in self.report.redistributions:
            if move.communicates:
                by_pass = ", ".join(f"{name} {traffic.received_bytes} B in {traffic.steps}" for name, traffic in move.traffic.items() if traffic)
                lines.append(f"redistributes {move.value}: {move.from_} -> {move.to}: {by_pass}")
        for name, traffic in self.report.traffic.items():
            lines.append(f"{name}: {traffic.received_bytes} B in {counted(traffic.steps, 'step')}")
        lines.append(f"peak {self.report.peak_bytes} B")
        lines.extend(f"result {place} is not a tensor: {value!r}" for place, value in self.others.items())
        lines.append(str(self.beside))
        return "\n".join(lines)


def check(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    over: Mesh | str | DeviceMesh | None = None,
    placements: Mapping[str, str] | None = None,
    *,
    pinned: Mapping[str, str] | None = None,
    gradient: bool = False,
    solver: ShardingSolver | None = None,
    table: OpTable | None = None,
) -> CheckReport:
    """Traces a module by `torch.export` into a program over a mesh, with all types and redistributions.

    `placements` gives types by patterns of names, and the first pattern that matches wins. Parameters and
    buffers have PyTorch's names, inputs those of `forward`'s parameters. Without a match, a DTensor has its own
    placements, on its mesh; another parameter is invariant (`I`), so that its gradient is reduced; other values are
    replicated (`R`). A module after `parallelize_module` and `fully_shard` needs no `placements` and no mesh; their
    hooks are not a part of the program. `pinned` gives types of results, `output` or `output.0`, and of the values of
    modules, by patterns of their paths.

    With `gradient`, which needs a result that is a single number, the program has the backward pass for all
    parameters that require one. `beside` has for each op the redistributions of DTensor's dispatch for tensors of
    the same shardings, up to results and gradients of the same types. No groups are needed, and nothing runs but the
    ops that depend on no input and no parameter, such as masks and positions: their results are constants of the
    program.

    Errors: `ReshardError` for a module that `torch.export` rejects, with its message; for an op or an
    argument that is missing in the table, with its name; for a pattern that matches nothing; the sharding
    solver's errors.
    """
    if isinstance(inputs, torch.Tensor):
        raise TypeError("inputs must be a sequence of tensors, not one tensor; give [x]")
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, found {type(module).__qualname__}")
    tensors: dict[str, Any] = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    root = device_mesh_of([*tensors.values(), *inputs])
    ranks = _mesh(over, root)
    if root is not None:
        module = plain(module)
    exported = _exported(module, [plain_input(one) for one in inputs])
    types = Patterns("placements", placements or {})
    pins = pinned_nodes(exported, pinned or {})
    signature = exported.graph_signature
    tensors.update(zip(signature.user_inputs, inputs, strict=False))
    own = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
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
    trained = []
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            meant = own.get(node.name, node.name)
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor):
                raise refused("program", f"the input {meant} is {type(value).__name__}, but programs have only tensors")
            if folded.is_unused(node):
                continue
            meant = known.get(meant, meant)
            if _name(meant) in graph and meant in known:
                names[node] = _name(meant)
                continue
            replicated = "I" if node.name in signature.inputs_to_parameters else "R"
            wanted = wanted_of.get(meant) or type_of(meant, tensors.get(meant), root, replicated, len(ranks.names))
            names[node] = graph.input(_name(meant), value.dtype, tuple(value.shape), wanted)
            if node in folded:
                lowering.constants[names[node]] = folded.value(node)
            if node.name in signature.inputs_to_parameters and parameters[meant].requires_grad:
                trained.append(node)
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
    made = list(called.values())
    results = tuple(_kept(lowering, node, name) for name, node in called.items())
    gradients: dict[Any, str] = {}
    if gradient:
        if not results:
            raise refused("program", "a gradient needs a number that forward returns, but it returns no tensor")
        loss = made[0]
        if loss.meta["val"].numel() != 1:
            raise refused("program", f"a gradient needs a result that is a single number, but forward returns {DType(loss.meta['val'].dtype)}{list(loss.meta['val'].shape)}; return a loss")
        gradients = dict(zip(trained, graph.gradient(lowering.name(loss), [names[node] for node in trained]), strict=True))
    for spec in signature.output_specs:
        # The new value of a written input is its value in the next step.
        if spec.target is not None and spec.kind in _WRITTEN:
            graph.apply("clone", [lowering.name(nodes[spec.arg.name])], [f"{_name(spec.target)}'"])
    program = graph.solve(solver)
    named = {node: name for node, name in names.items() if node.op == "placeholder" or folded.is_input(node)}
    ends = Ends(named, dict(zip(made, results, strict=True)), made[0] if gradient else None, gradients)
    return CheckReport(program, program.report(), results, others, lowering.constants, partial(compared, exported, program, ranks, names, ends))


def _kept(lowering: Lowering, node: torch.fx.Node, called: str) -> str:
    """Returns a name of a result under which it is live at the end, also if other statements use it."""
    name: str = lowering.name(node)
    if not lowering.has_gradient and len(node.users) == 1:
        return name
    while called in lowering.graph:
        called += "_"
    return lowering.graph.keep(name, called)


def _mesh(over: Mesh | str | DeviceMesh | None, root: DeviceMesh | None) -> Mesh:
    """Returns the mesh that is given, or that of the DTensors."""
    if over is None and root is None:
        raise refused("mesh", "the module has no DTensors, so its mesh is not known; give one, such as 'dp=2,tp=4'")
    chosen = root if over is None else over
    ranks = mesh(chosen) if isinstance(chosen, DeviceMesh) else Mesh(chosen or "")
    if root is not None and ranks != mesh(root):
        raise refused("mesh", f"the DTensors of the module are on the mesh {mesh(root)}, not on {ranks}")
    return ranks


def _exported(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> torch.export.ExportedProgram:
    """Returns a module as a functional graph."""
    try:
        # No op is decomposed: this only makes the graph functional, so that writes through views are seen.
        return torch.export.export(module, tuple(inputs)).run_decompositions({})
    except Exception as error:
        raise refused("program", f"torch.export cannot export {type(module).__qualname__}: {said(error)}") from error


def _name(of: str) -> str:
    """Converts a name of PyTorch to one of a program."""
    made = of.replace(".", "_")
    return made if made[:1].isalpha() or made[:1] == "_" else f"_{made}"
