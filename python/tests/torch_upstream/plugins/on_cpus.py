"""A plugin of pytest that runs PyTorch's GPU-only tests on CPUs.

Many of them fail even without `planned()`; those that pass are useful.
"""

from collections.abc import Callable
from typing import Any

import torch.testing._internal.common_distributed as common
import torch.testing._internal.distributed._tensor.common_dtensor as of_tensors


def _any_number(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda test: test


common.skip_if_lt_x_gpu = of_tensors.skip_if_lt_x_gpu = _any_number
of_tensors.skip_unless_torch_gpu = lambda test: test
