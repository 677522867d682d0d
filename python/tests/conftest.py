"""What all tests share: examples that take no longer than a second are no failures."""

import importlib.util

from hypothesis import settings

# Tests of what is used within a framework need it: scripts/check_torch.sh and scripts/check_jax.sh run them where it is.
FRAMEWORKS = {"with_torch": "torch", "with_jax": "jaxlib"}
collect_ignore = [folder for folder, package in FRAMEWORKS.items() if not importlib.util.find_spec(package)]

settings.register_profile("reshard", deadline=None, max_examples=60)
settings.load_profile("reshard")
