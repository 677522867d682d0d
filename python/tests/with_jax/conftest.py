"""All tests of `reshard.jax` run on virtual devices of the CPU: 24, of which meshes take as many as they have."""

import os

# What is compiled is run once, so nothing is gained by optimising it for the CPU.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=24 --xla_backend_optimization_level=0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
