"""Enables `planned()` in every process of a test run, including those that tests start themselves.

Python imports this at its start if this folder is on `PYTHONPATH`. With `RESHARD_TORCH_COUNTS=any` every
count of calls that a test expects is right.
"""

import os
import sys

# Multiprocessing's helper processes do not use tensors.
if not any("resource_tracker" in argument for argument in sys.orig_argv):
    from reshard.torch import planned

    planned().enable()
    if os.environ.get("RESHARD_TORCH_COUNTS") == "any":
        import any_counts

        any_counts.enable()
