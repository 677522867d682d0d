"""Where is an element, who holds it, how does it get there: layouts, shardings, redistribution plans and programs."""

from reshard._reshard import (
    DType,
    EngineError,
    Layout,
    Mesh,
    Mismatch,
    NeedsRedistribute,
    NotRepresentable,
    ReshardError,
    Sharding,
    __version__,
)

__all__ = [
    "DType",
    "EngineError",
    "Layout",
    "Mesh",
    "Mismatch",
    "NeedsRedistribute",
    "NotRepresentable",
    "ReshardError",
    "Sharding",
    "__version__",
]
