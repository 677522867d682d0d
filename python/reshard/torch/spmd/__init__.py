"""Support of spmd_types: its types from and to those of this library, and its redistributions by plans.

    from reshard.torch.spmd import spmd_type

It loads the package `spmd_types`, which `import reshard.torch` does not.
"""

from reshard.torch.spmd.modules import assert_types, typed
from reshard.torch.spmd.transition import redistribute
from reshard.torch.spmd.types import sharding_type, spmd_type

__all__ = ["assert_types", "redistribute", "sharding_type", "spmd_type", "typed"]
