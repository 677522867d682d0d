"""The PyTorch function through which all redistributions of DTensors pass, and its temporary replacement."""

import threading
from collections.abc import Callable
from functools import partial

import torch

from reshard.torch.version import REDISTRIBUTES, DTensorSpec, again, hooked, require

Function = Callable[..., torch.Tensor]

_lock = threading.RLock()
_entered: list["Hook"] = []
_own: Function


class Hook:
    """A handler that receives every redistribution while it is entered, and the function that it replaces.

    If several are entered, the last one receives it. Those that watch receive it before all others.
    """

    def __init__(self, handler: Callable[..., torch.Tensor], *, watches: bool = False) -> None:
        self.handler, self.watches = handler, watches

    def enter(self) -> None:
        """Installs the handler.

        Errors: RuntimeError if the installed PyTorch is not supported; then nothing has changed.
        """
        with _lock:
            if not _entered:
                _bind()
            _entered.append(self)

    def leave(self) -> None:
        """Removes the handler; the last one restores PyTorch's function."""
        with _lock:
            for at in reversed(range(len(_entered))):
                if _entered[at] is self:
                    del _entered[at]
                    break
            if not _entered:
                _unbind()


def _handled(
    local_tensor: torch.Tensor,
    current_spec: DTensorSpec,
    target_spec: DTensorSpec,
    *,
    async_op: bool = False,
    use_graph_based_transform: bool | None = None,
    is_explicit: bool = False,
) -> torch.Tensor:
    """Replaces PyTorch's function of the same arguments."""
    function = _own
    for hook in sorted(_entered, key=lambda hook: hook.watches) if len(_entered) > 1 else _entered:
        function = partial(hook.handler, function)
    return function(
        local_tensor, current_spec, target_spec, async_op=async_op, use_graph_based_transform=use_graph_based_transform, is_explicit=is_explicit
    )


def _bind() -> None:
    global _own
    again()
    require()
    modules = hooked()
    _own = getattr(modules[0], REDISTRIBUTES)
    for module in modules:
        setattr(module, REDISTRIBUTES, _handled)


def _unbind() -> None:
    for module in hooked():
        if getattr(module, REDISTRIBUTES, None) is _handled:
            setattr(module, REDISTRIBUTES, _own)
