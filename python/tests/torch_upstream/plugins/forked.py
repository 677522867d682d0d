"""A plugin of pytest: processes of PyTorch's tests are forked and not spawned, so that each does not import PyTorch again, which
takes most of the time. What tests do in them is the same."""

import torch.multiprocessing
from torch.testing._internal.common_distributed import MultiProcessTestCase


def _fork(self: MultiProcessTestCase) -> None:
    self._start_processes(torch.multiprocessing.get_context("fork").Process)


MultiProcessTestCase._spawn_processes = _fork
