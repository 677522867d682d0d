"""Switches DTensor over in every process of a test run, those that tests start themselves among them: Python imports this at its start
where this folder is on `PYTHONPATH`."""

import sys

# Multiprocessing's own helpers have nothing to do with tensors.
if not any("resource_tracker" in argument for argument in sys.orig_argv):
    from reshard.torch import planned

    planned().enable()
