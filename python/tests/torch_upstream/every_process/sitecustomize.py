"""Switches DTensor over in every process of a test run, those that tests start themselves among them: Python imports this at its start
where this folder is on `PYTHONPATH`. With `RESHARD_TORCH_COUNTS=any` every count of calls that a test expects is right."""

import os
import sys

# Multiprocessing's own helpers have nothing to do with tensors.
if not any("resource_tracker" in argument for argument in sys.orig_argv):
    from reshard.torch import planned

    planned().enable()
    if os.environ.get("RESHARD_TORCH_COUNTS") == "any":
        import any_counts

        any_counts.enable()
