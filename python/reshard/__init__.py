"""Layouts, shardings, redistribution plans and programs: where each element is, and how it gets there."""

from reshard._reshard import (
    OpSharding,
    ComposedLayout,
    Counts,
    DType,
    ShardingSolver,
    EngineError,
    Event,
    Explanation,
    Graph,
    GroupPattern,
    GroupRegistry,
    Instruction,
    Statement,
    Key,
    Layout,
    ShardMapValue,
    LocalCall,
    ShardMap,
    LocalTensor,
    LocalBuffer,
    Mesh,
    Message,
    PlanMismatch,
    RedistributionReport,
    NamedLayout,
    NeedsRedistribution,
    NotRepresentable,
    FrameworkGroups,
    Op,
    Operand,
    OperandRedistribution,
    P,
    PairsLayout,
    Parallelized,
    Phase,
    Placement,
    Plan,
    Planner,
    NamedPoint,
    ProcessGroup,
    ProcessGroups,
    Program,
    Propagator,
    R,
    RankCall,
    RankCalls,
    Ranks,
    ComputeRates,
    Recipe,
    Region,
    Report,
    ReshardError,
    S,
    SS,
    Schedule,
    Sharding,
    SpmdProgram,
    SpmdCall,
    Step,
    StepReport,
    Swizzle,
    OpTable,
    Timeline,
    Topology,
    Transfer,
    CommCost,
    ShardingType,
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
    parallelize,
    plan,
    propagate,
)

__all__ = [
    "OpSharding",
    "ComposedLayout",
    "Counts",
    "DType",
    "ShardingSolver",
    "EngineError",
    "Event",
    "Explanation",
    "Graph",
    "GroupPattern",
    "GroupRegistry",
    "Instruction",
    "Statement",
    "Key",
    "Layout",
    "ShardMapValue",
    "LocalCall",
    "ShardMap",
    "LocalTensor",
    "LocalBuffer",
    "Mesh",
    "Message",
    "PlanMismatch",
    "RedistributionReport",
    "NamedLayout",
    "NeedsRedistribution",
    "NotRepresentable",
    "FrameworkGroups",
    "Op",
    "Operand",
    "OperandRedistribution",
    "P",
    "PairsLayout",
    "Parallelized",
    "Phase",
    "Placement",
    "Plan",
    "Planner",
    "NamedPoint",
    "ProcessGroup",
    "ProcessGroups",
    "Program",
    "Propagator",
    "R",
    "RankCall",
    "RankCalls",
    "Ranks",
    "ComputeRates",
    "Recipe",
    "Region",
    "Report",
    "ReshardError",
    "S",
    "SS",
    "Schedule",
    "Sharding",
    "SpmdProgram",
    "SpmdCall",
    "Step",
    "StepReport",
    "Swizzle",
    "OpTable",
    "Timeline",
    "Topology",
    "Transfer",
    "CommCost",
    "ShardingType",
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
    "redistribute",
    "no_grad",
    "open_checkpoint",
    "ops",
    "constrain",
    "parallelize",
    "plan",
    "program",
    "propagate",
    "save",
    "strategy",
    "trace",
    "shard_map",
]

TYPE_CHECKING = False  # as `typing` has it, which takes longer to load than all of this

if TYPE_CHECKING:
    from reshard import checkpoint
    from reshard.checkpoint import load, open_checkpoint, save
    from reshard._trace import gradient, no_grad, redistribute, shard_map, ops, constrain, program, strategy, trace
    from collections.abc import Callable as _Callable
    from typing import Any as _Any

    def __getattr__(name: str) -> _Callable[..., _Any]:
        """Returns the op of the standard table with this name, as `ops` does."""
        return getattr(ops, name)  # type: ignore[no-any-return]

else:
    # The modules of the names that are loaded on first access.
    _LATE = dict.fromkeys(("load", "open_checkpoint", "save"), "reshard.checkpoint") | dict.fromkeys(
        ("gradient", "no_grad", "redistribute", "shard_map", "ops", "constrain", "program", "strategy", "trace"), "reshard._trace"
    )

    def __getattr__(name):
        """Loads a name on first access; names of the standard table's ops are ops."""
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
        raise AttributeError(f"module 'reshard' has no attribute {name!r}, and there is no op of that name")
