"""PyTorch support: DTensor redistributes by plans, on any backend of c10d.

    from reshard.torch import planned
    planned().enable()

It loads torch, which `import reshard` does not.
"""

from reshard._finding import Finding, FindingKind
from reshard.torch.audit import Audit, Collective, Moved, audit
from reshard.torch.beside import DTensorCost, Comparison, Redistributed
from reshard.torch.calibrate import Calibration, calibrate
from reshard.torch.check import CheckReport, check
from reshard.torch.checkpoint import Reader, load, save
from reshard.torch.groups import Groups
from reshard.torch.local import redistribute_local
from reshard.torch.parallelize import ParallelizedModule, parallelize
from reshard.torch.planned import FALLBACKS, FallbackError, planned
from reshard.torch.redistribute import redistribute
from reshard.torch.report import FsdpRow, RedistributionRow, Report
from reshard.torch.rules import OPS, Registered, rules
from reshard.torch.run import RankEvent, Runner, run
from reshard.torch.specs import mesh, sharding, spec
from reshard.torch.state import redistribute_state
from reshard.torch.weight_plan import WeightHandle, WeightPlan
from reshard.torch.weights import WeightSync

__all__ = [
    "FALLBACKS",
    "Finding",
    "FindingKind",
    "Audit",
    "Calibration",
    "DTensorCost",
    "CheckReport",
    "Collective",
    "Comparison",
    "RankEvent",
    "Groups",
    "FsdpRow",
    "RedistributionRow",
    "Moved",
    "OPS",
    "ParallelizedModule",
    "Reader",
    "Redistributed",
    "Registered",
    "Report",
    "Runner",
    "WeightHandle",
    "WeightPlan",
    "WeightSync",
    "FallbackError",
    "audit",
    "calibrate",
    "check",
    "load",
    "mesh",
    "parallelize",
    "planned",
    "redistribute",
    "redistribute_local",
    "redistribute_state",
    "rules",
    "run",
    "save",
    "sharding",
    "spec",
]
