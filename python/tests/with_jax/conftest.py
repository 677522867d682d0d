"""All tests of `reshard.jax` run on 24 virtual devices of the CPU; each mesh takes the first of them."""

import os

# Compiled code is run once, so optimization for the CPU does not pay.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=24 --xla_backend_optimization_level=0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
