"""Tensors of which memory is taken: whether it is there, with their names in what is refused."""

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

from reshard import ReshardError
from reshard._buffers import Refused, check_storage, check_tensor
from reshard._refusals import refused


def settled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a collective makes, after it has made it; any other as it is."""
    return tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def why_not(tensor: torch.Tensor) -> ReshardError | None:
    """Why the memory of a tensor, or of this rank's part of a DTensor, cannot be read or filled."""
    try:
        check_tensor(settled(tensor._local_tensor if isinstance(tensor, DTensor) else tensor), functions=True)
    except Refused as error:
        return refused(error.kind, str(error))
    return None


def check_is_there(name: str, local: torch.Tensor) -> None:
    """Refuses a tensor whose storage is smaller than the tensor says, whatever class it is of."""
    try:
        check_storage(local)
    except Refused as error:
        raise refused(error.kind, f"{name} cannot be read: {error}") from None
