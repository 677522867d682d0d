"""Overloads that give elements another shape, or repeat them, by the shape of PyTorch's result."""

from math import prod
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from reshard.torch.call import Call
    from reshard.torch.forms import Form


def reshaped(call: "Call") -> Any:
    """All elements in their order: the result's shape decides the arguments."""
    call.follow_result()
    if call.target._overloadname == "dtype":
        raise call.rejected("gives bytes another element type, but programs have no bytes")
    name = call.operand(next(iter(call.given)))
    shape = list(call.result.shape)
    return name if list(call.graph.shape(name)) == shape else call.call("view" if call.op == "view" else "reshape", [name], shape=shape)


def expanded(call: "Call") -> Any:
    call.follow_result()
    return call.like(call.operand("self"))


def all_expanded(call: "Call") -> Any:
    call.follow_result()
    names = [call.lowering.name(node) for node in call.given["tensors"]]
    shapes = [list(one.shape) for one in call.result]
    return [name if list(call.graph.shape(name)) == shape else call.call("expand", [name], shape=shape) for name, shape in zip(names, shapes, strict=True)]


def permuted(name: str, call: "Call", order: list[int]) -> str:
    """Permutes dims, without a statement if none changes."""
    return name if order == sorted(order) else call.call("permute", [name], dims=order)


def reversed_dims(call: "Call") -> Any:
    """`x.T`: all dims in reverse order."""
    call.follow_result()
    rank = len(call.result.shape)
    return permuted(call.operand("self"), call, list(reversed(range(rank))))


def last_two(call: "Call") -> Any:
    """`x.mT`: the last two dims exchanged."""
    call.follow_result()
    rank = len(call.result.shape)
    return permuted(call.operand("self"), call, [*range(rank - 2), rank - 1, rank - 2])


def exchanged(call: "Call") -> Any:
    """`swapaxes`: the given dims exchanged."""
    rank = len(call.result.shape)
    order = list(range(rank))
    one, two = (call.given[key] % rank for key in list(call.given)[1:3])
    order[one], order[two] = order[two], order[one]
    return permuted(call.operand("self"), call, order)


def moved(call: "Call") -> Any:
    """`movedim` of one dim or several."""
    given, rank = call.given, len(call.result.shape)
    source, destination = ([dim % rank for dim in (one if isinstance(one, list | tuple) else [one])] for one in (given["source"], given["destination"]))
    rest = iter(dim for dim in range(rank) if dim not in source)
    order = [source[destination.index(dim)] if dim in destination else next(rest) for dim in range(rank)]
    return permuted(call.operand("self"), call, order)


def interleaved(call: "Call") -> Any:
    """Each element several times in a row, along a dim or along all elements in order."""
    call.follow_result()
    if not isinstance(call.given.get("repeats"), int):
        raise call.rejected("takes counts from a tensor, but shapes of programs do not depend on elements")
    name, dim = call.operand("self"), call.given["dim"]
    if dim is None:
        name, dim = call.call("reshape", [name], shape=[prod(call.graph.shape(name))]), 0
    return call.call("repeat_interleave", [name], times=call.given["repeats"], dim=dim % len(call.graph.shape(name)))


def repeated(call: "Call") -> Any:
    return call.call("repeat", [call.operand("self")], times=list(call.given[list(call.given)[1]]))


def split(call: "Call") -> Any:
    """Parts of the sizes that PyTorch's results have."""
    call.follow_result()
    name = call.operand("self")
    dim = call.given["dim"] % len(call.graph.shape(name))
    sizes = [int(one.shape[dim]) for one in call.result]
    return [name] if len(sizes) == 1 else call.graph.apply("split", [name], sizes=sizes, dim=dim)


def joined(call: "Call") -> Any:
    """`cat`, in which PyTorch ignores tensors of the shape [0] among others."""
    given, rank = call.given, len(call.result.shape)
    nodes = [node for node in given["tensors"] if rank == 1 or list(node.meta["val"].shape) != [0]]
    names = [call.promoted(call.lowering.name(node), call.result.dtype, False) for node in nodes]
    return call.cast(call.call("cat", names, dim=given["dim"] % rank), call.result.dtype)


def triangle(call: "Call") -> Any:
    """`tril` and `triu` with a diagonal: a mask of constants."""
    name = call.operand("self")
    diagonal = call.given["diagonal"]
    if diagonal == 0:
        return call.call(call.op, [name])
    kept = getattr(torch.ones(call.graph.shape(name)[-2:], dtype=torch.bool), call.op)(diagonal)
    hidden = call.lowering.constant(f"{call.node.name}_hidden", ~kept)
    return call.call("masked_fill", [name, hidden], value=0)


def made(call: "Call") -> Any:
    """Factories: zeros, ones or a number, in the shape and the element type of the result."""
    call.follow_result()
    numbers = {"new_ones": 1, "ones": 1}
    number = call.given.get("fill_value", call.given.get("s", numbers.get(call.op, 0)))
    return call.filled("full", list(call.result.shape), call.result.dtype, fill_value=call.element(number))


FORMS: "dict[str, Form]" = {
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "ravel", "view_as", "reshape_as", "_reshape_alias"), reshaped),
    **dict.fromkeys(("expand_as", "broadcast_to"), expanded),
    "numpy_T": reversed_dims,
    **dict.fromkeys(("mT", "adjoint", "mH"), last_two),
    **dict.fromkeys(("swapaxes", "swapdims"), exchanged),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty", "empty", "empty_like", "scalar_tensor", "empty_strided", "new_empty_strided"), made),
    **dict.fromkeys(("split", "split_with_sizes", "tensor_split", "unsafe_split", "unsafe_split_with_sizes", "chunk", "unsafe_chunk"), split),
    **dict.fromkeys(("repeat", "tile"), repeated),
    **dict.fromkeys(("tril", "triu"), triangle),
    **dict.fromkeys(("movedim", "moveaxis"), moved),
    "cat": joined,
    "broadcast_tensors": all_expanded,
    "repeat_interleave": interleaved,
}
