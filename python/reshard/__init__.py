"""Where is an element, who holds it, how does it get there: layouts, shardings, redistribution plans and programs."""

from reshard._reshard import (
    ComposedLayout,
    Counts,
    DType,
    EngineError,
    Explanation,
    GroupPattern,
    GroupRegistry,
    Layout,
    Mesh,
    Message,
    Mismatch,
    NamedLayout,
    NeedsRedistribute,
    NotRepresentable,
    P,
    PairsLayout,
    Phase,
    Placement,
    Plan,
    Planner,
    Points,
    ProcessGroup,
    ProcessGroups,
    R,
    Recipe,
    Region,
    ReshardError,
    S,
    SS,
    Sharding,
    Step,
    Swizzle,
    Topology,
    Type,
    __version__,
    apply,
    evaluate,
    functions,
    plan,
)

__all__ = [
    "ComposedLayout",
    "Counts",
    "DType",
    "EngineError",
    "Explanation",
    "GroupPattern",
    "GroupRegistry",
    "Layout",
    "Mesh",
    "Message",
    "Mismatch",
    "NamedLayout",
    "NeedsRedistribute",
    "NotRepresentable",
    "P",
    "PairsLayout",
    "Phase",
    "Placement",
    "Plan",
    "Planner",
    "Points",
    "ProcessGroup",
    "ProcessGroups",
    "R",
    "Recipe",
    "Region",
    "ReshardError",
    "S",
    "SS",
    "Sharding",
    "Step",
    "Swizzle",
    "Topology",
    "Type",
    "__version__",
    "apply",
    "evaluate",
    "functions",
    "plan",
]

# ---- ops, programs, checkpoints, random numbers ----

from typing import TYPE_CHECKING

from reshard._reshard import (
    Choice,
    Elaborator,
    Event,
    Graph,
    Item,
    Key,
    LocalCall,
    LocalTensor,
    LocalValue,
    MoveReport,
    Op,
    Operand,
    OperandMove,
    Program,
    Propagator,
    Ranks,
    Rates,
    Report,
    Schedule,
    StepReport,
    Table,
    Timeline,
    Traffic,
    Value,
    ValueReport,
    draws,
    propagate,
)

__all__ += [
    "Choice",
    "Elaborator",
    "Event",
    "Graph",
    "Item",
    "Key",
    "LocalCall",
    "LocalTensor",
    "LocalValue",
    "MoveReport",
    "Op",
    "Operand",
    "OperandMove",
    "Program",
    "Propagator",
    "Ranks",
    "Rates",
    "Report",
    "Schedule",
    "StepReport",
    "Table",
    "Timeline",
    "Traffic",
    "Value",
    "ValueReport",
    "draws",
    "propagate",
]

if TYPE_CHECKING:
    from reshard._trace import gradient, moved, no_grad, ops, pin, program, strategy, trace
else:
    # Loaded when they are asked for.
    _TRACED = ("gradient", "moved", "no_grad", "ops", "pin", "program", "strategy", "trace")

    def __getattr__(name):
        """What is loaded late, and the ops of the standard table by their names."""
        if name.startswith("__"):
            raise AttributeError(name)
        from importlib import import_module

        if name in _TRACED:
            found = getattr(import_module("reshard._trace"), name)
            globals()[name] = found
            return found
        ops = import_module("reshard._trace").ops
        if name in dir(ops):
            return getattr(ops, name)
        raise AttributeError(f"module 'reshard' has no {name}, and no op is called so")


__all__ += ["gradient", "moved", "no_grad", "ops", "pin", "program", "strategy", "trace"]
