"""Overloads of convolutions, pools and resizing, with the arguments that PyTorch writes otherwise."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reshard.torch.call import Call
    from reshard.torch.forms import Form

# Resizing by PyTorch's op, and the table's mode.
_MODES = {
    **{f"upsample_nearest{n}d": "nearest" for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": "nearest_exact" for n in (1, 2, 3)},
    "upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear", "upsample_bicubic2d": "cubic",
}  # fmt: skip
_PADS = {
    **{f"reflection_pad{n}d": "reflect" for n in (1, 2, 3)},
    **{f"replication_pad{n}d": "replicate" for n in (1, 2, 3)},
    "_pad_circular": "circular",
}


def resized(call: "Call") -> Any:
    """A size decides; a factor must give that size exactly, because PyTorch computes positions with it."""
    call.follow_result()
    name = call.operand(next(iter(call.given)))
    size = list(call.result.shape)[2:]
    factors = call.given.get("scale_factors")
    if factors is None:
        factors = [value for key, value in call.given.items() if key.startswith("scales") and value is not None]
    for factor, before, after in zip(factors, list(call.graph.shape(name))[2:], size, strict=False):
        if factor is not None and before * factor != after:
            raise call.rejected(f"has the factor {factor}, which turns {before} into {before * factor}, not into {after}; give the size")
    return call.call("interpolate", [name], size=size, mode=_MODES[call.op], align_corners=bool(call.given.get("align_corners", False)))


def padded(call: "Call") -> Any:
    return call.call("pad", [call.operand("self")], pads=list(call.given["padding" if "padding" in call.given else "pad"]), mode=_PADS[call.op])


def convolved(call: "Call") -> Any:
    """A convolution whose padding may be `same` or `valid`."""
    padding = call.given["padding"]
    if not isinstance(padding, str):
        return call.of_table()
    name, weight, bias = call.operand("input"), call.operand("weight"), call.maybe("bias")
    space = list(call.graph.shape(weight))[2:]
    one = [1] * len(space)
    stride, dilation = (list(call.given[key]) * (len(space) if len(call.given[key]) == 1 else 1) for key in ("stride", "dilation"))
    amounts = [step * (size - 1) for step, size in zip(dilation, space, strict=True)] if padding == "same" else [0 for _ in one]
    if any(amount % 2 for amount in amounts):
        # The larger part is at the end; the last dim comes first.
        pads = [part for amount in reversed(amounts) for part in (amount // 2, amount - amount // 2)]
        name, amounts = call.call("pad", [name], pads=pads), [0 for _ in one]
    halves = [amount // 2 for amount in amounts]
    operands = [name, weight] + ([] if bias is None else [bias])
    return call.call(call.op, operands, stride=stride, padding=halves, dilation=dilation, groups=call.given["groups"])


def pooled(call: "Call") -> Any:
    """A mean over windows; windows over a border count its elements, as in the table, or there is no border."""
    given = call.given
    is_inside = not any(given.get("padding", [0]))
    if given.get("divisor_override") is not None:
        raise call.rejected(f"has divisor_override={given['divisor_override']}, but pools of the table divide by the size of the window")
    if not given.get("count_include_pad", True) and not is_inside:
        raise call.rejected("has count_include_pad=False and a padding, but pools of the table count the padding")
    return windows(call)


def windows(call: "Call") -> Any:
    """A pool; `ceil_mode` is left out, and the shape of the result shows whether it changes anything."""
    call.follow_result()
    given, name = call.given, call.operand("self")
    if any(step != 1 for step in given.get("dilation", [1])):
        raise call.rejected(f"has dilation={given['dilation']}, but pools of the table have adjacent windows")
    chosen: dict[str, Any] = {"kernel": list(given["kernel_size"]), "padding": list(given["padding"])}
    if given["stride"]:
        chosen["stride"] = list(given["stride"])
    call.check_meaning()
    made = [_shaped(call, one, call.result) for one in call.graph.apply(call.op, [_batched(call, name, len(chosen["kernel"]))], **chosen)]
    return made if isinstance(call.result, list | tuple) else made[0]


def _batched(call: "Call", name: str, space: int) -> str:
    """Returns an image with a dim of the batch."""
    shape = list(call.graph.shape(name))
    return name if len(shape) == space + 2 else call.call("reshape", [name], shape=[1, *shape])


def _shaped(call: "Call", name: str, result: Any) -> str:
    """Returns an image without the dim of the batch, if PyTorch's result has none."""
    shape = list((result[0] if isinstance(result, list | tuple) else result).shape)
    return name if list(call.graph.shape(name)) == shape else call.call("reshape", [name], shape=shape)


def averaged(call: "Call") -> Any:
    """A mean over equal windows; one window is the mean of all."""
    call.follow_result()
    call.check_meaning()
    size = list(call.given["output_size"])
    made = call.call(call.op.removeprefix("_"), [_batched(call, call.operand("self"), len(size))], size=list(call.result.shape)[-len(size) :])
    return _shaped(call, made, call.result)


FORMS: "dict[str, Form]" = {
    **dict.fromkeys(_MODES, resized),
    **dict.fromkeys(_PADS, padded),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), convolved),
    **{f"avg_pool{n}d": pooled for n in (1, 2, 3)},
    **{f"max_pool{n}d": windows for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": windows for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": averaged for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": averaged for n in (2, 3)},
}
