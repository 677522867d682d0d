"""FSDP2's own collectives: all-gathers of parameters, and reductions of gradients, counted in the entered report."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch.distributed as dist

from reshard.torch.report import innermost
from reshard.torch.traffic import CollectiveKind, least_bytes
from reshard.torch.version import FSDP_CALLS, FakeTensor, Part, fsdp_module, problem

# The arguments of a call by name.
_Given = Callable[[str], Any]

# The module whose functions are replaced now, with PyTorch's.
_bound: tuple[Any, dict[str, Callable[..., Any]]] | None = None


def bind() -> None:
    """Replaces FSDP2's functions that make collectives by ones that count too, if the installed PyTorch has them."""
    global _bound
    if _bound is None and problem(Part.FSDP) is None:
        module = fsdp_module()
        _bound = module, {name: getattr(module, name) for name in FSDP_CALLS}
        for (name, own), counts in zip(_bound[1].items(), (_gather, _reduce), strict=True):
            setattr(module, name, _counted(own, counts))


def unbind() -> None:
    """Restores FSDP2's functions."""
    global _bound
    if _bound is not None:
        for name, own in _bound[1].items():
            setattr(_bound[0], name, own)
    _bound = None


def _counted(own: Callable[..., Any], counts: Callable[[_Given, Any], None]) -> Callable[..., Any]:
    # Binding a signature takes longer than all else here.
    at = {name: position for position, name in enumerate(inspect.signature(own).parameters)}

    @wraps(own)
    def run(*args: Any, **options: Any) -> Any:
        made = own(*args, **options)
        if made is not None and not isinstance(made[0], FakeTensor):
            counts(lambda name: args[at[name]] if at[name] < len(args) else options.get(name), made)
        return made

    return run


def _gather(given: _Given, made: Any) -> None:
    gathered = made.all_gather_output
    size = gathered.numel() * gathered.itemsize
    _count(CollectiveKind.ALL_GATHER, given("group"), size, size)


def _reduce(given: _Given, made: Any) -> None:
    # The first result is the padded input of the reduce-scatter.
    size = made[0].numel() * made[0].itemsize
    group = given("reduce_scatter_group")
    share = size if group is None else size // group.size()
    _count(CollectiveKind.REDUCE_SCATTER, group, size, share)
    if given("all_reduce_grads"):
        _count(CollectiveKind.ALL_REDUCE, given("all_reduce_group"), share, share)


def _count(kind: CollectiveKind, group: dist.ProcessGroup | None, given: int, made: int) -> None:
    report = innermost()
    if report is not None and group is not None and group.size() > 1:
        report.add_fsdp(kind.value, least_bytes(kind, given, made, group.size()))
