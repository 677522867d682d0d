"""Nodes of a graph that no input and no parameter changes: PyTorch computes them once."""

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from reshard.torch.version import OpOverload

# Ops whose result depends on the shape and the element type of an operand, and not on its elements.
_OF_SHAPE = {"ones_like", "zeros_like", "full_like", "empty_like", "new_ones", "new_zeros", "new_full", "new_empty"}
# Ops that are short as statements of a program, and smaller than their arrays.
_SHORT = {"ones", "zeros", "full", "ones_like", "zeros_like", "full_like"}


class Folded:
    """The constants of an exported module: buffers that it does not write, and all nodes computed of them.

    Random draws are not constants. A result that has an operand's shape, and not its elements, is one.
    """

    def __init__(self, exported: ExportedProgram) -> None:
        signature = exported.graph_signature
        written = set(signature.buffers_to_mutate.values())
        stored = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        self._values: dict[torch.fx.Node, Any] = {}
        self._nodes: set[torch.fx.Node] = set()
        # The nodes that a program takes as they are, by name of the buffer or the tensor.
        self._stored: dict[torch.fx.Node, torch.Tensor] = {}
        for node in exported.graph.nodes:
            if node.op == "placeholder":
                name = stored.get(node.name)
                if name is not None and name not in written:
                    held = exported.constants[name] if name in exported.constants else exported.state_dict[name]
                    if isinstance(held, torch.Tensor):
                        self._stored[node] = held.detach()
                        self._nodes.add(node)
            elif node.op == "call_function" and self._is_constant(node):
                self._nodes.add(node)

    def __contains__(self, node: object) -> bool:
        return node in self._nodes

    def is_unused(self, node: torch.fx.Node) -> bool:
        """Returns True if a program does not need this constant: only other constants are computed of it."""
        return node in self and all(user in self for user in node.users)

    def is_input(self, node: torch.fx.Node) -> bool:
        """Returns True if a program takes the elements of this constant as an input."""
        return node in self and _packet(node) not in _SHORT

    def value(self, node: torch.fx.Node) -> Any:
        """Returns the elements of a constant, computed on the first call."""
        if node in self._stored:
            return self._stored[node]
        # Graphs have more nodes in a row than Python has frames, so the operands are computed in order.
        waiting = [node]
        with torch.no_grad():
            while waiting:
                last = waiting[-1]
                missing = [] if _of_shape(last) else [one for one in last.all_input_nodes if one not in self._values and one not in self._stored]
                if missing:
                    waiting.extend(missing)
                    continue
                waiting.pop()
                if last not in self._values:
                    self._values[last] = _computed(last, self._operand)
        return self._values[node]

    def _operand(self, node: torch.fx.Node) -> Any:
        if node in self._stored:
            return self._stored[node]
        if node in self._values:
            return self._values[node]
        # Only the shape of this operand matters.
        meant = node.meta["val"]
        return torch.empty(meant.shape, dtype=meant.dtype, device=meant.device)

    def _is_constant(self, node: torch.fx.Node) -> bool:
        target: Any = node.target
        if isinstance(target, OpOverload):
            if torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable or not target._schema.returns:
                return False
            if _of_shape(node):
                return True
        return all(one in self._nodes for one in node.all_input_nodes)


def _packet(node: torch.fx.Node) -> str:
    target: Any = node.target
    return target._schema.name.partition("::")[2] if isinstance(target, OpOverload) else ""


def _of_shape(node: torch.fx.Node) -> bool:
    return _packet(node) in _OF_SHAPE


def _computed(node: torch.fx.Node, operand: Callable[[torch.fx.Node], Any]) -> Any:
    args, kwargs = (torch.fx.node.map_arg(given, operand) for given in (node.args, node.kwargs))
    function: Any = node.target
    return function(*args, **kwargs)
