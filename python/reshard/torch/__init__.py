"""PyTorch: DTensor redistributes by plans, on any backend of c10d.

    from reshard.torch import planned
    planned().enable()

It loads torch, which `import reshard` does not.
"""

from reshard.torch.audit import Audit, Collective, Moved, audit
from reshard.torch.beside import Beside, Comparison, Redistributed
from reshard.torch.check import Checked, check
from reshard.torch.checkpoint import Reader, load, save
from reshard.torch.execute import redistribute_local
from reshard.torch.groups import Groups
from reshard.torch.planned import FALLBACKS, Line, Report, Unplanned, planned
from reshard.torch.redistribute import redistribute
from reshard.torch.rules import OPS, Registered, rules
from reshard.torch.run import Did, Runner, run
from reshard.torch.specs import mesh, sharding, spec
from reshard.torch.state import redistribute_state

__all__ = [
    "FALLBACKS",
    "Audit",
    "Beside",
    "Checked",
    "Collective",
    "Comparison",
    "Did",
    "Groups",
    "Line",
    "Moved",
    "OPS",
    "Reader",
    "Redistributed",
    "Registered",
    "Report",
    "Runner",
    "Unplanned",
    "audit",
    "check",
    "load",
    "mesh",
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
