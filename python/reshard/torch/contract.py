"""The types that the user of `check` gives to inputs, parameters, results and modules, by patterns of names."""

import difflib
import fnmatch
from collections.abc import Mapping

import torch
from torch.export import ExportedProgram

from reshard._refusals import counted, refused


class Patterns:
    """Types by patterns of names; the first pattern that matches wins, and a pattern that matches nothing is an error."""

    def __init__(self, argument: str, types: Mapping[str, str]) -> None:
        self._argument, self._types = argument, types
        self._used: set[str] = set()
        self._names: list[str] = []

    def of(self, name: str) -> str | None:
        """Returns the type of a name, or None if no pattern matches."""
        self._names.append(name)
        # A pattern after the first match counts as used.
        matching = [pattern for pattern in self._types if fnmatch.fnmatchcase(name, pattern)]
        self._used.update(matching)
        return self._types[matching[0]] if matching else None

    def check_used(self, what: str) -> None:
        """Raises an error for a pattern that has matched none of the names."""
        unused = [pattern for pattern in self._types if pattern not in self._used]
        if not unused:
            return
        known = list(dict.fromkeys(self._names))
        near = difflib.get_close_matches(unused[0], known, n=3, cutoff=0.4) or known[:3]
        names = f"; the nearest: {', '.join(near)}" if near else ""
        raise refused("unused_pattern", f"the pattern {unused[0]!r} of `{self._argument}` matches none of {counted(len(known), what)}{names}")


def first_names(module: torch.nn.Module) -> dict[str, str]:
    """Returns the first name of each parameter by its names: a parameter with several is one input of a program."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(one), name) for name, one in module.named_parameters(remove_duplicate=False)}


def results_of(exported: ExportedProgram) -> dict[str, torch.fx.Node]:
    """Returns the tensors that `forward` returns, as `output`, or `output.0`, `output.1`, .. if it returns several."""
    output = next(node for node in exported.graph.nodes if node.op == "output")
    mutations = len(exported.graph_signature.output_specs) - len(exported.graph_signature.user_outputs)
    returned = list(output.args[0])[mutations:]
    nodes = {f"output.{place}": node for place, node in enumerate(returned) if isinstance(node, torch.fx.Node)}
    return {"output": returned[0]} if len(returned) == 1 and nodes else nodes


def modules_of(exported: ExportedProgram) -> dict[str, list[torch.fx.Node]]:
    """Returns the values of each module by its path: those of its ops that are used outside of it."""
    made: dict[str, list[torch.fx.Node]] = {}
    for node in exported.graph.nodes:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        users = [_paths(user) for user in node.users]
        for path in _paths(node):
            if any(path not in of for of in users):
                made.setdefault(path, []).append(node)
    return made


def _paths(node: torch.fx.Node) -> dict[str, None]:
    """Returns the paths of the modules in which a node is computed, outermost first, without the root."""
    return dict.fromkeys(path for path, _ in node.meta.get("nn_module_stack", {}).values() if path)


def pinned_nodes(exported: ExportedProgram, pinned: Mapping[str, str]) -> dict[torch.fx.Node, str]:
    """Returns the types of the nodes in `pinned`: results by `output`, and values by the path of their module.

    Errors: a pattern that matches no result and no module; a module with several values.
    """
    if not pinned:
        return {}
    patterns = Patterns("pinned", pinned)
    found: dict[torch.fx.Node, str] = {}
    for name, node in results_of(exported).items():
        if (wanted := patterns.of(name)) is not None:
            found[node] = wanted
    for path, nodes in modules_of(exported).items():
        if (wanted := patterns.of(path)) is None:
            continue
        if len(nodes) > 1:
            raise refused("program", f"the module {path} has {counted(len(nodes), 'value')} that are used outside of it ({', '.join(node.name for node in nodes[:4])}); name a module within it")
        found[nodes[0]] = wanted
    patterns.check_used("result or module")
    return found
