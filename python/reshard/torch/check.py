"""Static checks of a PyTorch module as a program: typed, reported and differentiated before anything runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from reshard import ShardingSolver, Mesh, Program, Report, OpTable
from reshard._refusals import counted, refused

from reshard.torch.beside import Comparison, Ends, compared
from reshard.torch.parallelized import device_mesh_of, plain, plain_input, type_of
from reshard.torch.specs import mesh
from reshard.torch.traced import traced


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

    def default(name: str, position: int | None) -> str:
        is_parameter = position is None and name in parameters
        return type_of(name, tensors.get(name) if position is None else inputs[position], root, "I" if is_parameter else "R", len(ranks.names))

    parameters = dict(module.named_parameters(remove_duplicate=False))
    found = traced(module, [plain_input(one) for one in inputs], ranks, placements or {}, default, pinned=pinned, gradient=gradient, table=table)
    program = found.graph.solve(solver)
    ends = Ends(dict(found.nodes), dict(zip(found.made, found.results, strict=True)), found.made[0] if gradient else None, dict(found.gradients))
    comparison = partial(compared, found.exported, program, ranks, found.lowering.names, ends)
    return CheckReport(program, program.report(), found.results, found.others, found.lowering.constants, comparison)


def _mesh(over: Mesh | str | DeviceMesh | None, root: DeviceMesh | None) -> Mesh:
    """Returns the mesh that is given, or that of the DTensors."""
    if over is None and root is None:
        raise refused("mesh", "the module has no DTensors, so its mesh is not known; give one, such as 'dp=2,tp=4'")
    chosen = root if over is None else over
    ranks = mesh(chosen) if isinstance(chosen, DeviceMesh) else Mesh(chosen or "")
    if root is not None and ranks != mesh(root):
        raise refused("mesh", f"the DTensors of the module are on the mesh {mesh(root)}, not on {ranks}")
    return ranks
