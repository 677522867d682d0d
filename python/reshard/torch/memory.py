"""Checks of tensors whose memory is used: that it exists, with the tensor's name in each error."""

import torch
from torch.distributed.tensor import DTensor

from reshard import ReshardError
from reshard._buffers import Refused, check_memory, check_tensor
from reshard._refusals import refused

from reshard.torch.version import AsyncCollectiveTensor


def settled(tensor: torch.Tensor) -> torch.Tensor:
    """Waits for a collective's result and returns it; returns any other tensor as it is."""
    return tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor whose memory is its value: copies conjugated and negated views, keeps others."""
    return tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


def why_not(tensor: torch.Tensor) -> ReshardError | None:
    """Returns the error if the memory of a tensor or local shard cannot be read or filled."""
    return why_not_plain(tensor._local_tensor if isinstance(tensor, DTensor) else tensor)


def why_not_plain(tensor: torch.Tensor) -> ReshardError | None:
    """Returns the error if the memory of a tensor cannot be read or filled; a DTensor is rejected."""
    try:
        check_tensor(settled(tensor), functions=True)
    except Refused as error:
        return refused(error.kind, str(error))
    return None


def check_is_there(name: str, local: torch.Tensor) -> None:
    """Rejects a tensor of any class with less memory than its shape requires; skipped while tracing."""
    if torch.compiler.is_compiling():
        return
    try:
        check_memory(settled(local))
    except Refused as error:
        raise refused(error.kind, f"{name} cannot be read: {error}") from None


def why_no_target(tensor: torch.Tensor) -> ReshardError | None:
    """Returns the error if a tensor that has memory cannot be written."""
    if overlaps(tensor):
        return refused("strides", "several of its elements share memory; give tensor.contiguous()")
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        return refused("read_only", "it was made in inference mode: call this within torch.inference_mode()")
    return None


def overlaps(tensor: torch.Tensor) -> bool:
    """Returns True if two elements of a strided tensor share a location of its storage."""
    if not tensor.numel():
        return False
    dims = sorted((stride, extent) for extent, stride in zip(tensor.shape, tensor.stride(), strict=True) if extent > 1)
    last = 0
    for stride, extent in dims:
        if stride <= last:
            break
        last += (extent - 1) * stride
    else:
        return False  # Every stride exceeds the span of all smaller ones.
    span = 1 + sum((extent - 1) * stride for stride, extent in dims)
    if tensor.numel() > span or dims[0][0] == 0:
        return True
    # Other tensors may have no overlap either, such as (2, 3) with strides (3, 2). Mark every element's
    # location; the marks take no more memory than the tensor.
    marks = torch.zeros(span, dtype=torch.bool)
    marks.as_strided([extent for _, extent in dims], [stride for stride, _ in dims]).fill_(True)
    return int(marks.sum()) < tensor.numel()
