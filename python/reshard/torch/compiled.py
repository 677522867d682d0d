"""Functions that were compiled before plans were enabled: their graphs contain PyTorch's own redistributions."""

import warnings
from types import CodeType
from weakref import WeakSet

from reshard._refusals import counted

from reshard.torch.version import compiled_codes

# The entered owners of plans, and the graphs that were compiled under plans or that a warning has named.
_entered: list[object] = []
_known: WeakSet[CodeType] = WeakSet()


def entered(owner: object) -> None:
    """Notes that plans are enabled from now on; warns once for each function that was compiled without them."""
    codes = compiled_codes()
    # Within another owner, plans were enabled already.
    new = [] if _entered else [source for code, source in codes if code not in _known]
    _known.update(code for code, _ in codes)
    _entered.append(owner)
    if new:
        names = ", ".join(f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})" for code in new[:3]) + (", .." if len(new) > 3 else "")
        warnings.warn(
            f"{counted(len(new), 'function')} compiled before planned() was entered: {names}. If they redistribute DTensors, PyTorch's own "
            f"calls stay in their graphs. Enter planned() before compiled functions first run, or call torch.compiler.reset() now",
            RuntimeWarning,
            stacklevel=4,
        )


def left(owner: object) -> None:
    """Notes that an owner's plans are not enabled any more."""
    for at in reversed(range(len(_entered))):
        if _entered[at] is owner:
            del _entered[at]
            _known.update(code for code, _ in compiled_codes())
            break
