"""The PyTorch function through which all redistributions of DTensors pass, and its temporary replacement."""

import inspect
import threading
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed.tensor._api as _api
import torch.distributed.tensor._dispatch as _dispatch
import torch.distributed.tensor._redistribute as _redistribute
import torch.distributed.tensor.experimental._tp_transform as _tp_transform
from torch.distributed.tensor._dtensor_spec import DTensorSpec

NAME = "redistribute_local_tensor"
# The modules in which PyTorch has bound the function by its name.
BOUND = (_redistribute, _dispatch, _api, _tp_transform)
# The arguments of a supported version of it.
KNOWN = ("local_tensor", "current_spec", "target_spec", "async_op", "use_graph_based_transform", "is_explicit")

Function = Callable[..., torch.Tensor]

_lock = threading.RLock()
_entered: list["Hook"] = []
_own: Function = _redistribute.redistribute_local_tensor


class Hook:
    """A handler that receives every redistribution while it is entered, and the function that it replaces.

    If several are entered, the last one receives it. Those that watch receive it before all others.
    """

    def __init__(self, handler: Callable[..., torch.Tensor], *, watches: bool = False) -> None:
        self.handler, self.watches = handler, watches

    def enter(self) -> None:
        """Installs the handler.

        Errors: RuntimeError if PyTorch's function is not a known one; then nothing has changed.
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
    found = getattr(_redistribute, NAME)
    takes = tuple(inspect.signature(found).parameters)
    if takes != KNOWN:
        raise RuntimeError(f"PyTorch {torch.__version__}: {NAME} takes {takes}, but only {KNOWN} is supported; nothing was replaced")
    others = [module.__name__ for module in BOUND if getattr(module, NAME, None) is not found]
    if others:
        raise RuntimeError(f"PyTorch {torch.__version__}: {NAME} is missing or different in {', '.join(others)}; nothing was replaced")
    _own = found
    for module in BOUND:
        setattr(module, NAME, _handled)


def _unbind() -> None:
    for module in BOUND:
        if getattr(module, NAME, None) is _handled:
            setattr(module, NAME, _own)
