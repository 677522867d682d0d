"""Where is an element, who holds it, how does it get there: layouts, shardings, redistribution plans and programs."""

from reshard._reshard import (
    Choice,
    ComposedLayout,
    Counts,
    DType,
    Elaborator,
    EngineError,
    Event,
    Explanation,
    Graph,
    GroupPattern,
    GroupRegistry,
    Instr,
    Item,
    Key,
    Layout,
    Local,
    LocalCall,
    LocalRegion,
    LocalTensor,
    LocalValue,
    Mesh,
    Message,
    Mismatch,
    MoveReport,
    NamedLayout,
    NeedsRedistribute,
    NotRepresentable,
    Offers,
    Op,
    Operand,
    OperandMove,
    P,
    PairsLayout,
    Phase,
    Placement,
    Plan,
    Planner,
    Points,
    ProcessGroup,
    ProcessGroups,
    Program,
    Propagator,
    R,
    RankCall,
    RankCalls,
    Ranks,
    Rates,
    Recipe,
    Region,
    Report,
    ReshardError,
    S,
    SS,
    Schedule,
    Sharding,
    Spmd,
    SpmdCall,
    Step,
    StepReport,
    Swizzle,
    Table,
    Timeline,
    Topology,
    Traffic,
    Type,
    Value,
    ValueReport,
    Verdict,
    Verifier,
    View,
    __version__,
    apply,
    draws,
    evaluate,
    functions,
    plan,
    propagate,
)

__all__ = [
    "Choice",
    "ComposedLayout",
    "Counts",
    "DType",
    "Elaborator",
    "EngineError",
    "Event",
    "Explanation",
    "Graph",
    "GroupPattern",
    "GroupRegistry",
    "Instr",
    "Item",
    "Key",
    "Layout",
    "Local",
    "LocalCall",
    "LocalRegion",
    "LocalTensor",
    "LocalValue",
    "Mesh",
    "Message",
    "Mismatch",
    "MoveReport",
    "NamedLayout",
    "NeedsRedistribute",
    "NotRepresentable",
    "Offers",
    "Op",
    "Operand",
    "OperandMove",
    "P",
    "PairsLayout",
    "Phase",
    "Placement",
    "Plan",
    "Planner",
    "Points",
    "ProcessGroup",
    "ProcessGroups",
    "Program",
    "Propagator",
    "R",
    "RankCall",
    "RankCalls",
    "Ranks",
    "Rates",
    "Recipe",
    "Region",
    "Report",
    "ReshardError",
    "S",
    "SS",
    "Schedule",
    "Sharding",
    "Spmd",
    "SpmdCall",
    "Step",
    "StepReport",
    "Swizzle",
    "Table",
    "Timeline",
    "Topology",
    "Traffic",
    "Type",
    "Value",
    "ValueReport",
    "Verdict",
    "Verifier",
    "View",
    "__version__",
    "apply",
    "checkpoint",
    "draws",
    "evaluate",
    "functions",
    "gradient",
    "load",
    "local",
    "moved",
    "no_grad",
    "open_checkpoint",
    "ops",
    "pin",
    "plan",
    "program",
    "propagate",
    "save",
    "strategy",
    "trace",
]

TYPE_CHECKING = False  # as `typing` has it, which takes longer to load than all of this

if TYPE_CHECKING:
    from reshard import checkpoint
    from reshard.checkpoint import load, open_checkpoint, save
    from reshard._trace import gradient, local, moved, no_grad, ops, pin, program, strategy, trace
    from collections.abc import Callable as _Callable
    from typing import Any as _Any

    def __getattr__(name: str) -> _Callable[..., _Any]:
        """The ops of the standard table by their names, as `ops` has them."""
        return getattr(ops, name)  # type: ignore[no-any-return]

else:
    # Where that is which is loaded when it is asked for.
    _LATE = dict.fromkeys(("load", "open_checkpoint", "save"), "reshard.checkpoint") | dict.fromkeys(
        ("gradient", "local", "moved", "no_grad", "ops", "pin", "program", "strategy", "trace"), "reshard._trace"
    )

    def __getattr__(name):
        """What is loaded late, and the ops of the standard table by their names."""
        if name.startswith("__"):
            raise AttributeError(name)
        from importlib import import_module

        if name == "checkpoint":
            return import_module("reshard.checkpoint")
        if name in _LATE:
            found = getattr(import_module(_LATE[name]), name)
            globals()[name] = found
            return found
        ops = import_module("reshard._trace").ops
        if name in dir(ops):
            return getattr(ops, name)
        raise AttributeError(f"module 'reshard' has no {name}, and no op is called so")
