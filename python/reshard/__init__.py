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

# ---- ops, programs, checkpoints, random numbers ----

from reshard._reshard import Choice, Key, Op, Operand, OperandMove, Propagator, Rates, Table, draws, propagate

__all__ += ["Choice", "Key", "Op", "Operand", "OperandMove", "Propagator", "Rates", "Table", "draws", "propagate"]
