"""Translation of a node of PyTorch's functional graph to statements of a program."""

import operator
from typing import Any

import torch

from reshard import DType, Graph, ReshardError
from reshard._refusals import counted, refused

from reshard.torch.call import Call
from reshard.torch.lowering import Lowering
from reshard.torch.overloads import op_of
from reshard.torch.version import OpOverload

# Ops without a result.
_IGNORED = {"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range"}


def lower(lowering: Lowering, node: torch.fx.Node) -> Any:
    """Writes the statements of a node; returns the name of its result, a list for several, None for none.

    Errors: `ReshardError` for an op or an argument that is missing in the table, and for a table op with
    another shape or element type, with the module and the source line of the node.
    """
    target: Any = node.target
    if target is operator.getitem:
        source: Any = node.args[0]
        made = lowering.name(source)[node.args[1]]
        if made is None:
            raise refused("program", f"result {node.args[1]} of {source.target} is not a value of the program")
        return made
    try:
        if not isinstance(target, OpOverload):
            raise refused("program", f"{target} is not an op of PyTorch, and programs have only those")
        if op_of(target) in _IGNORED:
            return None
        made = Call(lowering, node).lowered()
        _compare(lowering.graph, node, made)
    except ReshardError as error:
        where = _where(node)
        if not where:
            raise
        raise refused(error.kind, f"{error} ({where})") from error
    return made


def _where(node: torch.fx.Node) -> str:
    """Returns the module and the source line that made a node, as `torch.export` records them."""
    modules = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    frames = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip().startswith("File ")]
    found = [f"module {modules[-1]}"] if modules and modules[-1] else []
    return ", ".join(found + [frame.replace('"', "") for frame in frames[-1:]])


def _compare(graph: Graph, node: torch.fx.Node, made: Any) -> None:
    """Rejects a result whose shape or element type differs from PyTorch's."""
    meant = node.meta["val"]
    wanted = list(meant) if isinstance(meant, list | tuple) else [meant]
    found = made if isinstance(made, list) else [made]
    if len(wanted) != len(found):
        raise refused("program", f"{node.target} returns {counted(len(wanted), 'value')}, but the op of the table returns {len(found)}")
    for name, value in zip(found, wanted, strict=True):
        if value is None or name is None:
            continue
        ours = f"{graph.dtype(name)}{list(graph.shape(name))}"
        theirs = f"{DType(value.dtype)}{list(value.shape)}"
        if ours != theirs:
            raise refused("program", f"{node.target} returns {theirs}, but the op of the table returns {ours}; cast the operands before it")
