"""Any plan as traced code of JAX, and what a compiled function communicates.

    reshard(x, sharding)                     eager, or in jit where types say the source (Explicit axes)
    reshard_fn(shape, dtype, from_, to)      the same for Auto axes, where types say nothing
    local(x, plan, axis_names)               inside of your own shard_map
    audit(fn, *args)                         every collective of a compiled function, and what would do
    program(fn, *args, wrt=())               the program of a function, checked, and differentiated by us
    sharding, typed, named, mesh, device_mesh      shardings, types and meshes of JAX as ours, and back
"""

from reshard.jax.arrays import reshard, reshard_fn
from reshard.jax.audit import Audit, Line, audit, audit_text
from reshard.jax.programs import program
from reshard.jax.specs import device_mesh, mesh, named, sharding, typed
from reshard.jax.traced import local

__all__ = [
    "Audit",
    "Line",
    "audit",
    "audit_text",
    "device_mesh",
    "local",
    "mesh",
    "named",
    "program",
    "reshard",
    "reshard_fn",
    "sharding",
    "typed",
]
