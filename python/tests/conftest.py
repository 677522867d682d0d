"""What all tests share: examples that take no longer than a second are no failures."""

import importlib.util

from hypothesis import settings

# Tests of what is used within PyTorch need it: scripts/check_torch.sh runs them where it is.
collect_ignore = [] if importlib.util.find_spec("torch") else ["with_torch"]

settings.register_profile("reshard", deadline=None, max_examples=60)
settings.load_profile("reshard")
