"""A module of PyTorch's as a program: typed, reported, differentiated, before anything runs."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from reshard import Elaborator, Graph, Mesh, Program, Report, ReshardError, Table

from reshard.torch.beside import Comparison, compared
from reshard.torch.specs import mesh

# What is called otherwise here: ops, and their arguments.
_OPS = {"_softmax": "softmax", "native_layer_norm": "layer_norm", "_unsafe_view": "view", "alias": "clone", "detach_": "detach"}
_ARGUMENTS = {"size": "shape", "is_causal": "causal", "split_size": "size"}
# Ops that give what they get, where nothing is trained and no type changes.
_SAME = {"clone", "contiguous", "detach", "alias", "lift_fresh_copy"}
_SCALARS = {"add": "value", "sub": "value", "mul": "value", "div": "value", "pow": "exponent"}
_IGNORED = {"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range"}


@dataclass(frozen=True)
class Checked:
    """A module as a program, with what it moves and holds, and what DTensor would move for it; `str` is all of that."""

    program: Program
    report: Report
    beside: Comparison

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
    exported = torch.export.export(module, tuple(inputs))
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
            names[node] = _apply(graph, chosen, node, names)
    output = next(node for node in exported.graph.nodes if node.op == "output")
    results = [names[node] for node in output.args[0] if isinstance(node, torch.fx.Node)]
    if gradient:
        graph.gradient(results[0], trained)
    program = graph.elaborate(elaborator)
    named = {node: name for node, name in names.items() if node.op == "placeholder"}
    return Checked(program, program.report(), compared(exported, program, ranks, named, names, gradient))


def _name(of: str) -> str:
    """A name of PyTorch's as one of a program's."""
    made = of.replace(".", "_")
    return made if made[:1].isalpha() or made[:1] == "_" else f"_{made}"


def _apply(graph: Graph, table: Table, node: torch.fx.Node, names: Mapping[Any, Any]) -> Any:
    """The statement of a node, by the names of what it takes; the name of what it makes, or of several."""
    target: Any = node.target
    if getattr(target, "__name__", "") == "getitem":
        return names[node.args[0]][node.args[1]]
    if not isinstance(target, torch._ops.OpOverload):
        raise ReshardError(f"{target} is no op of aten's")
    packet = target._schema.name.partition("::")[2]
    if packet in _IGNORED:
        return None
    given = dict(zip((one.name for one in target._schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    name = _OPS.get(packet, packet)
    if packet == "dropout" and not given.get("train", True):
        name, given = "clone", {"input": given["input"]}
    if name in _SAME:
        return names[next(iter(given.values()))]
    if packet in _SCALARS and not isinstance(given.get("other", given.get("exponent")), torch.fx.Node):
        name = f"{packet}_scalar"
        given = {"self": given["self"], _SCALARS[packet]: given.get("other", given.get("exponent"))} | _rest(given)
    if packet == "layer_norm":
        given = {key: value for key, value in given.items() if key != "cudnn_enable"}
        given["last"] = len(given.pop("normalized_shape"))
    if name not in table:
        raise ReshardError(f"{target} is no op of the table")
    parameters = table.parameters(name) or {}
    taken: list[str] = []
    arguments: dict[str, Any] = {}
    defaults = {one.name: one.default_value for one in target._schema.arguments}
    for key, value in given.items():
        nodes = value if isinstance(value, list | tuple) and value and all(isinstance(one, torch.fx.Node) for one in value) else [value]
        if all(isinstance(one, torch.fx.Node) for one in nodes):
            taken += [names[one] for one in nodes]
            continue
        key = next((one for one in (key, _ARGUMENTS.get(key, key), f"{key}s") if one in parameters), key)
        if key not in parameters:
            if value is None or value == defaults.get(key) or key in ("dtype", "memory_format", "layout", "device", "pin_memory"):
                continue
            raise ReshardError(f"{target} has the argument {key}={value}, which {name} of the table has not")
        if value is None:
            continue
        if key in ("dims", "shape", "sizes") and not isinstance(value, list | tuple):
            value = [value]
        arguments[key] = list(value) if isinstance(value, list | tuple) else value
    made = graph.apply(name, taken, **arguments)
    return made if len(made) > 1 or isinstance(node.meta.get("val"), list | tuple) else made[0]


def _rest(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a call with a number says besides it, which has to be nothing."""
    return {key: value for key, value in given.items() if key not in ("self", "other", "exponent")}
