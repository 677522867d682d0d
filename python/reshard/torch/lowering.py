"""The state of a translation: the program, the names of the nodes, and the constants that became inputs."""

from dataclasses import dataclass, field
from typing import Any

import torch

from reshard import Graph, OpTable
from reshard._refusals import refused

from reshard.torch.folded import Folded


@dataclass
class Lowering:
    """A graph under construction, and the program's names of the values of PyTorch's nodes.

    `constants` are the elements of the inputs that come from the module and not from the user.
    """

    graph: Graph
    table: OpTable
    folded: Folded
    has_gradient: bool
    names: dict[torch.fx.Node, Any] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)

    def name(self, node: torch.fx.Node) -> Any:
        """Returns the name of a node's value, a list for several values.

        The first use of a constant makes it an input of the program.
        """
        if node not in self.names and node in self.folded:
            value = self.folded.value(node)
            if not isinstance(value, torch.Tensor):
                raise refused("program", f"{node.name} is {type(value).__name__}, but programs have only tensors")
            self.names[node] = self.constant(node.name, value)
        return self.names[node]

    def constant(self, name: str, value: torch.Tensor) -> str:
        """Makes an input of these elements: replicated, and without gradient."""
        while name in self.graph:
            name = f"{name}_"
        made = self.graph.input(name, value.dtype, tuple(value.shape), ",".join(["R|-"] * len(self.graph.mesh.names)))
        self.constants[made] = value
        return made

    def known(self, value: Any) -> torch.Tensor | None:
        """Returns the elements of an operand that is a constant."""
        found = self.folded.value(value) if isinstance(value, torch.fx.Node) and value in self.folded else None
        return found if isinstance(found, torch.Tensor) else None
