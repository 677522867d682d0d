"""The layout of the memory that a rank has of a tensor: a plan holds for one layout."""

from collections.abc import Mapping

import torch
from torch.distributed.tensor import DTensor

from reshard._refusals import refused


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the memory that this rank has of a tensor, as it is stored."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def kind(tensor: torch.Tensor) -> str:
    """Returns the type, shape and placements: two tensors of one kind can replace each other."""
    placed = f" {tensor.placements} on {tensor.device_mesh}" if isinstance(tensor, DTensor) else ""
    return f"{tensor.dtype} {list(tensor.shape)}{placed}, {list(local(tensor).shape)} on this rank"


def check_layouts(tensors: Mapping[str, torch.Tensor], planned: Mapping[str, str]) -> None:
    """Raises an error for a tensor whose layout is not the planned one."""
    for name, before in planned.items():
        if (now := layout(tensors[name])) != before:
            raise refused("changed", f"{name} is now {now}, and was planned as {before}; make a new WeightSync")


def is_dense(tensor: torch.Tensor) -> bool:
    """Returns True if the memory is the elements in order."""
    of = local(tensor)
    return of.is_contiguous() and not of.is_conj() and not of.is_neg()


def layout(tensor: torch.Tensor) -> str:
    """Returns the type, local shape and strides."""
    of = local(tensor)
    return f"{of.dtype} {list(of.shape)} with strides {list(of.stride())}"
