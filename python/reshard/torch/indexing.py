"""Reads and writes by index tensors, as one index of the flattened indexed dims."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from reshard.torch.shapes import permuted

if TYPE_CHECKING:
    from reshard.torch.call import Call
    from reshard.torch.forms import Form


# The end of an error for a result whose shape depends on elements.
KEEPS_SHAPE = "programs have fixed shapes: write torch.where or masked_fill, which keep the shape"


class _Indexed:
    """The index tensors of a call, one for each indexed dim, and the order that has these dims first."""

    def __init__(self, call: "Call") -> None:
        self.call = call
        self.name = call.operand("self")
        self.shape = list(call.graph.shape(self.name))
        self.of: dict[int, Any] = {}
        dim = 0
        for given in call.given["indices"]:
            if given is None:
                dim += 1
                continue
            known = call.lowering.known(given)
            if given.meta["val"].dtype in (torch.bool, torch.uint8):
                raise call.rejected(f"indexes by {_mask(given)}, and the number of its true elements depends on data; {KEEPS_SHAPE}")
            self.of[dim] = given if known is None else known
            dim += 1
        self.dims = list(self.of)
        self.rest = [dim for dim in range(len(self.shape)) if dim not in self.of]
        shapes = [one.shape if isinstance(one, torch.Tensor) else one.meta["val"].shape for one in self.of.values()]
        self.wide = list(torch.broadcast_shapes(*shapes))
        is_in_a_row = self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims)))
        # PyTorch puts the dims of the indices where the indexed dims were if these are in a row, else first.
        self.before = self.dims[0] if is_in_a_row else 0

    def flat(self) -> str:
        """Returns the name of one index of all indexed dims, which has no other dims."""
        call, count = self.call, prod(self.wide)
        if all(isinstance(one, torch.Tensor) for one in self.of.values()):
            joined = torch.zeros(self.wide, dtype=torch.int64)
            for dim, one in self.of.items():
                whole = one.to("cpu", torch.int64)
                joined = joined * self.shape[dim] + torch.where(whole < 0, whole + self.shape[dim], whole)
            return call.lowering.constant(f"{call.node.name}_index", joined.reshape(count))
        made: str | None = None
        for dim, one in self.of.items():
            name = call.lowering.constant(f"{call.node.name}_index", one) if isinstance(one, torch.Tensor) else call.lowering.name(one)
            name = from_start(call, call.cast(name, torch.int64), self.shape[dim])
            if made is not None:
                name = call.call("add", [call.call("mul_scalar", [made], value=self.shape[dim]), name])
            made = name
        assert made is not None
        if list(call.graph.shape(made)) != self.wide:
            made = call.call("expand", [made], shape=self.wide)
        return made if self.wide == [count] else call.call("reshape", [made], shape=[count])

    def rows(self, name: str) -> str:
        """Returns a tensor with the indexed dims flattened into its first."""
        name = permuted(name, self.call, [*self.dims, *self.rest])
        shape = [prod(self.shape[dim] for dim in self.dims), *(self.shape[dim] for dim in self.rest)]
        return name if list(self.call.graph.shape(name)) == shape else self.call.call("reshape", [name], shape=shape)


def from_start(call: "Call", index: str, size: int) -> str:
    """Converts an index that may count from the end to one that counts from the start."""
    zero = call.number(0, torch.int64)
    counted = call.call("add_scalar", [index], value=size)
    return call.call("where", [call.call("lt", [index, zero]), counted, index])


def read(call: "Call") -> Any:
    """`x[i, :, j]`."""
    indexed = _Indexed(call)
    graph, index = call.graph, indexed.flat()
    if len(indexed.dims) == 1:
        dim = indexed.dims[0]
        made = call.call("index_select", [indexed.name, index], dim=dim)
        return _shaped(call, made, [*indexed.shape[:dim], *indexed.wide, *indexed.shape[dim + 1 :]])
    made = call.call("index_select", [indexed.rows(indexed.name), index], dim=0)
    rest = list(graph.shape(made))[1:]
    made = _shaped(call, made, [*indexed.wide, *rest])
    wide, before = len(indexed.wide), indexed.before
    order = [*range(wide, wide + before), *range(wide), *range(wide + before, wide + len(rest))]
    return permuted(made, call, order)


def written(call: "Call") -> Any:
    """`x[i, :, j] = value`, and `x[mask] = value` for a value that broadcasts to the whole."""
    masks = [one for one in call.given["indices"] if one is not None]
    value = call.cast(call.operand("values"), call.result.dtype)
    if len(masks) == 1 and masks[0].meta["val"].dtype is torch.bool:
        return _where(call, masks[0], value)
    indexed = _Indexed(call)
    index = indexed.flat()
    rest = [indexed.shape[dim] for dim in indexed.rest]
    # The value has the shape of a read; its dims of the index come first in the flat form.
    wide, before = len(indexed.wide), indexed.before
    shape = [*rest[:before], *indexed.wide, *rest[before:]]
    if list(call.graph.shape(value)) != shape:
        value = call.call("expand", [value], shape=shape)
    value = permuted(value, call, [*range(before, before + wide), *range(before), *range(before + wide, len(shape))])
    value = _shaped(call, value, [prod(indexed.wide), *rest])
    made = call.call("index_put", [indexed.rows(indexed.name), index, value], accumulate=bool(call.given["accumulate"]))
    made = _shaped(call, made, [*(indexed.shape[dim] for dim in indexed.dims), *rest])
    order = [*indexed.dims, *indexed.rest]
    return permuted(made, call, [order.index(dim) for dim in range(len(order))])


def _where(call: "Call", mask: torch.fx.Node, value: str) -> str:
    """Overwrites the elements where a mask is true, or adds to them, with a value that is the same for all of them."""
    at = next(n for n, one in enumerate(call.given["indices"]) if one is not None)
    name, condition = call.operand("self"), call.lowering.name(mask)
    shape, masked = list(call.graph.shape(name)), list(mask.meta["val"].shape)
    values, behind = list(call.graph.shape(value)), len(shape) - at - len(masked)
    # PyTorch broadcasts the value to a read, in which one dim, of the true elements, replaces those of the mask.
    count = len(values) - behind - 1
    if prod(values) == 1:
        value = _shaped(call, value, [])
    elif count >= 0:
        if values[count] != 1:
            raise call.rejected(f"writes another value of {values} for each true element of {_mask(mask)}, and their number depends on data; {KEEPS_SHAPE}")
        value = _shaped(call, value, [*values[:count], *[1] * len(masked), *values[count + 1 :]])
    condition = _shaped(call, condition, [1] * at + masked + [1] * behind)
    if call.given["accumulate"]:
        value = call.call("add", [name, value])
    return call.call("where", [condition, value, name])


def _mask(given: torch.fx.Node) -> str:
    """Returns a mask as an error names it."""
    return f"the mask {given}" if given.op == "placeholder" else "a mask"


def _shaped(call: "Call", name: str, shape: Sequence[int]) -> str:
    return name if list(call.graph.shape(name)) == list(shape) else call.call("reshape", [name], shape=list(shape))


def looked_up(call: "Call") -> Any:
    """`embedding`: the row of the padding index has no gradient."""
    weight, index = call.operand("weight"), call.operand("indices")
    made = call.call("embedding", [weight, index])
    padding, is_divided = call.given["padding_idx"], call.given["scale_grad_by_freq"]
    if not call.lowering.has_gradient:
        return made
    if is_divided:
        raise call.rejected("has scale_grad_by_freq=True, but gradients of the table are not divided by counts")
    if padding < 0:
        return made
    is_padding = call.call("eq", [index, call.number(padding, call.given["indices"].meta["val"].dtype)])
    is_padding = _shaped(call, is_padding, [*call.graph.shape(index), 1])
    # The elements are the same; only those of the other rows pass a gradient.
    return call.call("where", [is_padding, call.call("detach", [made]), made])


def scattered(call: "Call") -> Any:
    """`scatter` with a number, or that adds."""
    given = call.given
    reduce = given.get("reduce")
    if reduce not in (None, "add"):
        raise call.rejected(f"has reduce={reduce}, but scatter of the table has only add")
    name, index = call.operand("self"), call.operand("index")
    shape = list(given["index"].meta["val"].shape)
    if "value" in given:
        source = call.filled("full", shape, call.result.dtype, fill_value=call.element(given["value"]))
    else:
        source = call.operand("src")
        for dim, size in enumerate(shape):
            # PyTorch ignores the elements of the source beyond the index.
            if call.graph.shape(source)[dim] != size:
                source = call.call("slice", [source], dim=dim, start=0, end=size)
    return call.call("scatter" if reduce is None else "scatter_add", [name, index, source], dim=given["dim"] % max(len(call.graph.shape(name)), 1))


FORMS: "dict[str, Form]" = {
    **dict.fromkeys(("index", "_unsafe_index"), read),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), written),
    "embedding": looked_up,
    "scatter": scattered,
}
