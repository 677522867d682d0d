"""Plans as traced code of JAX, and audits of the communication of compiled functions.

    reshard(x, sharding)                     eager, or in jit if types give the source (Explicit axes)
    reshard_fn(shape, dtype, from_, to)      the same for Auto axes, whose types give no source
    local(x, plan, axis_names)               inside of the caller's shard_map
    audit(fn, *args)                         every collective of a compiled function, and a bound of its bytes
    program(fn, *args, wrt=())               the checked and differentiated program of a function
    parallelize(loss, params, *args, mesh=)  partition specs, chosen under a memory limit
    sharding, typed, named, mesh, device_mesh      conversion of shardings, types and meshes from and to JAX
"""

from reshard._finding import Finding, FindingKind
from reshard.jax.arrays import reshard, reshard_fn
from reshard.jax.audit import audit, audit_text
from reshard.jax.parallelize import ParallelizedFunction, parallelize
from reshard.jax.programs import program
from reshard.jax.report import Audit, RedistributionRow
from reshard.jax.specs import device_mesh, mesh, named, sharding, typed
from reshard.jax.traced import local

__all__ = [
    "Audit",
    "Finding",
    "FindingKind",
    "ParallelizedFunction",
    "RedistributionRow",
    "audit",
    "audit_text",
    "device_mesh",
    "local",
    "mesh",
    "named",
    "parallelize",
    "program",
    "reshard",
    "reshard_fn",
    "sharding",
    "typed",
]
