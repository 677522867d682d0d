"""A plugin of pytest that forks the processes of PyTorch's tests instead of spawning them.

A spawned process would import PyTorch again, which takes most of the time. The tests in them do not change.
"""

import torch.multiprocessing
from torch.testing._internal.common_distributed import MultiProcessTestCase


def _fork(self: MultiProcessTestCase) -> None:
    self._start_processes(torch.multiprocessing.get_context("fork").Process)


MultiProcessTestCase._spawn_processes = _fork
