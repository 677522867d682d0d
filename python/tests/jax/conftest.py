"""All tests of `reshard.jax` run on virtual devices of the CPU: 24, of which meshes take as many as they have."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=24")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
