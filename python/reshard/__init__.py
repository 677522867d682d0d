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
    Offers,
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
    RankCall,
    RankCalls,
    Recipe,
    Region,
    ReshardError,
    S,
    SS,
    Sharding,
    Spmd,
    SpmdCall,
    Step,
    Swizzle,
    Topology,
    Type,
    View,
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
    "Offers",
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
    "RankCall",
    "RankCalls",
    "Recipe",
    "Region",
    "ReshardError",
    "S",
    "SS",
    "Sharding",
    "Spmd",
    "SpmdCall",
    "Step",
    "Swizzle",
    "Topology",
    "Type",
    "View",
    "__version__",
    "apply",
    "evaluate",
    "functions",
    "plan",
]

# ---- ops, programs, checkpoints, random numbers ----

from reshard._reshard import (
    Choice,
    Elaborator,
    Event,
    Graph,
    Item,
    Key,
    Local,
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
    LocalRegion,
    Report,
    Schedule,
    StepReport,
    Table,
    Timeline,
    Traffic,
    Value,
    ValueReport,
    Verdict,
    Verifier,
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
    "Local",
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
    "LocalRegion",
    "Report",
    "Schedule",
    "StepReport",
    "Table",
    "Timeline",
    "Traffic",
    "Value",
    "ValueReport",
    "Verdict",
    "Verifier",
    "draws",
    "propagate",
]

TYPE_CHECKING = False  # as `typing` has it, which takes longer to load than all of this

if TYPE_CHECKING:
    from reshard import checkpoint
    from reshard.checkpoint import load, open_checkpoint, save
    from reshard._trace import gradient, local, moved, no_grad, ops, pin, program, strategy, trace
else:
    # Loaded when they are asked for.
    _OF_CHECKPOINTS = ("load", "open_checkpoint", "save")
    _TRACED = ("gradient", "local", "moved", "no_grad", "ops", "pin", "program", "strategy", "trace")

    def __getattr__(name):
        """What is loaded late, and the ops of the standard table by their names."""
        if name.startswith("__"):
            raise AttributeError(name)
        from importlib import import_module

        if name in _TRACED:
            found = getattr(import_module("reshard._trace"), name)
            globals()[name] = found
            return found
        if name in _OF_CHECKPOINTS:
            found = getattr(import_module("reshard.checkpoint"), name)
            globals()[name] = found
            return found
        if name == "checkpoint":
            return import_module("reshard.checkpoint")
        ops = import_module("reshard._trace").ops
        if name in dir(ops):
            return getattr(ops, name)
        raise AttributeError(f"module 'reshard' has no {name}, and no op is called so")


__all__ += ["checkpoint", "gradient", "load", "local", "moved", "no_grad", "open_checkpoint", "ops", "pin", "program", "save", "strategy", "trace"]
