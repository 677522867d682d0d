"""Functions that were compiled before plans were enabled: their graphs contain PyTorch's own redistributions."""

import warnings
from types import CodeType
from weakref import WeakSet

from reshard._refusals import counted

from reshard.torch.report import innermost
from reshard.torch.version import compiled_codes

# The graphs that were compiled under plans or that a warning has named.
_known: WeakSet[CodeType] = WeakSet()


def warn_of_compiled() -> None:
    """Warns once for each function that was compiled without plans, which are enabled from now on."""
    codes = compiled_codes()
    # Within another owner, plans were enabled already.
    new = [] if innermost() is not None else [source for code, source in codes if code not in _known]
    _known.update(code for code, _ in codes)
    if new:
        names = ", ".join(f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})" for code in new[:3]) + (", .." if len(new) > 3 else "")
        warnings.warn(
            f"{counted(len(new), 'function')} compiled before planned() was entered: {names}. If they redistribute DTensors, PyTorch's own "
            f"calls stay in their graphs. Enter planned() before compiled functions first run, or call torch.compiler.reset() now",
            RuntimeWarning,
            stacklevel=4,
        )


def note_compiled() -> None:
    """Notes that all graphs until now were compiled under plans or are known."""
    _known.update(code for code, _ in compiled_codes())
