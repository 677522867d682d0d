"""The collectives of PyTorch: kinds, members, tensors, and the bytes that a rank receives and sends by each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
import torch.distributed as dist

from reshard.torch.version import AsyncCollectiveTensor


class CollectiveKind(StrEnum):
    """The kind of a collective; its value is PyTorch's name."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    MESSAGES = "messages"


# The minimum that a rank receives by a collective of `n` members with equal parts: `size` is its input and
# `made` its result.
_LEAST: dict[CollectiveKind, Callable[[int, int, int], int]] = {
    CollectiveKind.ALL_GATHER: lambda size, made, n: made // n * (n - 1),
    CollectiveKind.REDUCE_SCATTER: lambda size, made, n: size // n * (n - 1),
    CollectiveKind.ALL_REDUCE: lambda size, made, n: 2 * (size // n * (n - 1)),
    CollectiveKind.ALL_TO_ALL: lambda size, made, n: made // n * (n - 1),
}

_KINDS = {
    "all_gather_into_tensor": CollectiveKind.ALL_GATHER,
    "all_gather_into_tensor_out": CollectiveKind.ALL_GATHER,
    "all_gather_into_tensor_coalesced": CollectiveKind.ALL_GATHER,
    "_allgather_base_": CollectiveKind.ALL_GATHER,
    "allgather_": CollectiveKind.ALL_GATHER,
    "allgather_into_tensor_coalesced_": CollectiveKind.ALL_GATHER,
    "reduce_scatter_tensor": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter_tensor_out": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter_tensor_coalesced": CollectiveKind.REDUCE_SCATTER,
    "_reduce_scatter_base_": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter_": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter_tensor_coalesced_": CollectiveKind.REDUCE_SCATTER,
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_reduce_": CollectiveKind.ALL_REDUCE,
    "all_reduce_coalesced": CollectiveKind.ALL_REDUCE,
    "all_reduce_coalesced_": CollectiveKind.ALL_REDUCE,
    "allreduce_": CollectiveKind.ALL_REDUCE,
    "allreduce_coalesced_": CollectiveKind.ALL_REDUCE,
    "all_to_all_single": CollectiveKind.ALL_TO_ALL,
    "alltoall_base_": CollectiveKind.ALL_TO_ALL,
    "alltoall_": CollectiveKind.ALL_TO_ALL,
    "shard_dim_alltoall": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
    "broadcast_": CollectiveKind.BROADCAST,
    "reduce_": CollectiveKind.REDUCE,
    "gather_": CollectiveKind.GATHER,
    "scatter_": CollectiveKind.SCATTER,
    "send": CollectiveKind.MESSAGES,
    "recv_": CollectiveKind.MESSAGES,
}
_NAMESPACES = ("_c10d_functional", "c10d", "_dtensor")
_INPUTS = ("input", "inputs", "input_tensor", "input_tensors", "tensor", "tensors")
# Arguments that do not change the result, or that have separate fields.
_NO_ARGUMENTS = ("process_group", "group_name", "reduce_op", "async_op", "timeout", "tag")
_OUTPUTS = ("out", "output", "outputs", "output_tensor", "output_tensors")


def least_bytes(kind: str, given: int, made: int, members: int) -> int:
    """Returns the minimum bytes that a rank receives by a collective of equal parts, given its input and output bytes."""
    least = _LEAST.get(CollectiveKind(kind))
    return made if least is None else least(given, made, members)


@dataclass(frozen=True)
class Traffic:
    """One call of a collective, as this rank sees it."""

    kind: CollectiveKind
    members: tuple[int, ...]
    """The global ranks of the group."""
    group: str
    """PyTorch's name of the group."""
    rank: int
    """The group rank of this process."""
    dtype: torch.dtype
    inputs: tuple[torch.Tensor, ...]
    """The operands; empty once the call has been noted, so that none is retained."""
    outputs: tuple[torch.Tensor, ...]
    received_bytes: int
    sent_bytes: int
    by_sender: tuple[int, ...] | None
    """The bytes from each member, if a member may send more than another; this rank's own are 0."""
    reduction: str | None
    """PyTorch's name of the op of a reduction; None for other calls, and if it is not known."""
    arguments: tuple[tuple[str, str], ...]
    """The other arguments on which the result depends, such as splits."""
    is_blocking: bool
    """True if the call returns after the exchange."""

    @property
    def is_sum(self) -> bool:
        """True if it adds values."""
        return self.reduction == "sum"


def named(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the given arguments of an op by their names in its schema."""
    return {**{one.name: value for one, value in zip(function._schema.arguments, args, strict=False)}, **kwargs}


def is_collective(function: Any) -> bool:
    """Returns True if an op is a collective, or a message between two ranks."""
    return function.namespace in _NAMESPACES and function._schema.name.partition("::")[2] in _KINDS


def traffic(function: Any, args: Sequence[Any], kwargs: dict[str, Any], made: Any) -> Traffic:
    """Returns the members, tensors and bytes of a collective that has been called."""
    name = function._schema.name.partition("::")[2]
    kind, given = _KINDS[name], named(function, args, kwargs)
    group = _group(given)
    inputs = tensors([given.get(one) for one in _INPUTS])
    outputs = tensors([given.get(one) for one in _OUTPUTS])
    if name == "recv_":
        inputs, outputs = [], inputs
    elif name == "send":
        outputs = []
    elif not outputs and function.namespace != "c10d":
        outputs = inputs if name.endswith("_") else tensors(made)
    elif not outputs and name not in ("gather_", "scatter_"):
        outputs = inputs
    rank, members = group.rank(), tuple(dist.get_process_group_ranks(group))
    received, sent, by_sender = _bytes(kind, given, inputs, outputs, rank, len(members))
    return Traffic(
        kind,
        members,
        group.group_name,
        rank,
        [*inputs, *outputs][0].dtype,
        tuple(inputs),
        tuple(outputs),
        received,
        sent,
        by_sender,
        _reduction(given),
        tuple((name, repr(value)) for name, value in given.items() if name not in _NO_ARGUMENTS and not tensors(value)),
        given.get("async_op", True) is False,
    )


def _group(given: dict[str, Any]) -> Any:
    """Returns the group of a call, which is given by name or as an object."""
    of = given.get("process_group", given.get("group_name"))
    if isinstance(of, dist.ProcessGroup):
        return of
    if isinstance(of, torch.ScriptObject):
        return dist.ProcessGroup.unbox(of)
    return dist.group.WORLD if of is None else dist.distributed_c10d._resolve_process_group(of)


def _reduction(given: dict[str, Any]) -> str | None:
    of = given.get("reduce_op")
    if isinstance(of, torch.ScriptObject):
        # PyTorch 2.14 cannot unbox ops: nothing is known of them there.
        of = dist.ReduceOp.unbox(of) if hasattr(dist.ReduceOp, "unbox") else None
    return of if of is None or isinstance(of, str) else str(of.op.name).lower()


def inner(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor that a result in flight wraps, or the tensor."""
    return tensor.elem if isinstance(tensor, AsyncCollectiveTensor) else tensor


def tensors(of: Any) -> list[torch.Tensor]:
    """Returns the tensors in nested lists, without wrappers of results in flight."""
    if isinstance(of, torch.Tensor):
        return [inner(of)]
    return [tensor for one in of for tensor in tensors(one)] if isinstance(of, list | tuple) else []


def size_of(of: Sequence[torch.Tensor]) -> int:
    """Returns the bytes of tensors."""
    return sum(one.numel() * one.itemsize for one in of)


def _bytes(
    kind: CollectiveKind, given: dict[str, Any], inputs: list[torch.Tensor], outputs: list[torch.Tensor], rank: int, n: int
) -> tuple[int, int, tuple[int, ...] | None]:
    """Returns the received and sent bytes, and the bytes of each sender if they may differ.

    Bytes that ranks send equal those that they receive, over all ranks: a root sends to each other rank.
    """
    size, made = size_of(inputs), size_of(outputs)
    if n == 1:
        return 0, 0, None
    match kind:
        case CollectiveKind.ALL_REDUCE:
            share = 2 * (size // n * (n - 1))
            return share, share, None
        case CollectiveKind.ALL_GATHER:
            if len(outputs) != n:
                return made // n * (n - 1), size * (n - 1), None
            each = [size_of([one]) for one in outputs]
            return made - each[rank], each[rank] * (n - 1), _others(each, rank)
        case CollectiveKind.REDUCE_SCATTER:
            # Lists may have parts of different sizes: this rank receives its part from each other one.
            return made * (n - 1), size - made, None
        case CollectiveKind.ALL_TO_ALL:
            into, of = (_parts(given, side, whole, n) for side, whole in (("output", outputs), ("input", inputs)))
            return sum(into) - into[rank], sum(of) - of[rank], _others(into, rank)
        case CollectiveKind.BROADCAST:
            is_root = given.get("root_rank", given.get("src")) == rank
            return (0, size * (n - 1), None) if is_root else (size, 0, None)
        case CollectiveKind.REDUCE:
            # The minimum: each rank reduces a share, and the root receives the shares.
            share = size // n * (n - 1)
            return (2 * share, share, None) if given["root_rank"] == rank else (share, share + size // n, None)
        case CollectiveKind.GATHER:
            return (made - size, 0, None) if given["root_rank"] == rank else (0, size, None)
        case CollectiveKind.SCATTER:
            return (0, size - made, None) if given["root_rank"] == rank else (made, 0, None)
        case CollectiveKind.MESSAGES:
            return made, size, None


def _parts(given: dict[str, Any], side: str, whole: list[torch.Tensor], n: int) -> list[int]:
    """Returns the bytes of the part of each member in the input or output of an all-to-all."""
    if len(whole) == n and len(whole) > 1:
        return [size_of([one]) for one in whole]
    splits = given.get(f"{side}_split_sizes")
    tensor = whole[0]
    if not splits:
        return [size_of(whole) // n] * n
    row = size_of(whole) // tensor.shape[0] if tensor.dim() and tensor.shape[0] else 0
    return [int(rows) * row for rows in splits]


def _others(each: list[int], rank: int) -> tuple[int, ...]:
    return tuple(0 if at == rank else size for at, size in enumerate(each))
