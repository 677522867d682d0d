"""Overloads of arithmetic with factors, rounding modes and bounds, and products by an equation."""

import math
import string
from typing import TYPE_CHECKING, Any

import torch

from reshard._refusals import counted

if TYPE_CHECKING:
    from reshard.torch.call import Call
    from reshard.torch.forms import Form


def added(call: "Call") -> Any:
    """`add` and `sub` with a factor of the second operand."""
    given = call.given
    alpha = given.get("alpha", 1)
    if alpha == 1:
        return call.of_table()
    if isinstance(given["other"], int | float):
        # A factor of a number is a part of the number.
        number = given["other"] * alpha
        return call.call(call.op, [call.cast(call.operand("self"), call.result.dtype)], value=number)
    scaled = call.call("mul_scalar", [call.cast(call.operand("other"), call.result.dtype)], value=alpha)
    return call.call(call.op, [call.cast(call.operand("self"), call.result.dtype), scaled])


def subtracted_from(call: "Call") -> Any:
    """`rsub`: the operands of `sub` exchanged."""
    given, dtype = call.given, call.result.dtype
    name = call.cast(call.operand("self"), dtype)
    if given.get("alpha", 1) != 1:
        name = call.call("mul_scalar", [name], value=given["alpha"])
    if isinstance(given["other"], int | float):
        return call.call("rsub_scalar", [name], value=given["other"])
    return call.call("sub", [call.cast(call.operand("other"), dtype), name])


def divided(call: "Call") -> Any:
    """`div` that may round, down or towards zero."""
    given, mode = call.given, call.given.get("rounding_mode")
    node = given["self"]
    if mode is None and call.lowering.has_gradient and isinstance(given["other"], torch.fx.Node) and node.op == "placeholder":
        # The gradient of a quotient takes that of its numerator, so a parameter's would not be a result. That of
        # a copy is.
        left, right = (call.cast(call.operand(key), call.result.dtype) for key in ("self", "other"))
        return call.call("div", [call.call("clone", [left]), right])
    if mode is None:
        return call.of_table()
    other = given["other"]
    dtype = call.result.dtype
    left = call.cast(call.operand("self"), dtype)
    right = call.number(other, dtype) if isinstance(other, int | float) else call.cast(call.operand("other"), dtype)
    if mode == "floor":
        return call.call("floor_divide", [left, right])
    if not dtype.is_floating_point:
        # Floored quotients of magnitudes, with the sign of the quotient, are exact for integers.
        sign = call.call("mul", [call.call("sign", [left]), call.call("sign", [right])])
        return call.call("mul", [sign, call.call("floor_divide", [call.call("abs", [left]), call.call("abs", [right])])])
    return call.call("trunc", [call.call("div", [left, right])])


def clamped(call: "Call") -> Any:
    """Bounds that no element exceeds, such as infinity, are left out."""
    given = call.given
    least, most = given.get("min"), given.get("max")
    if isinstance(least, torch.fx.Node) or isinstance(most, torch.fx.Node):
        name = call.cast(call.operand("self"), call.result.dtype)
        for op, key in (("maximum", "min"), ("minimum", "max")):
            if given.get(key) is not None:
                name = call.call(op, [name, call.cast(call.operand(key), call.result.dtype)])
        return name
    bounds = {key: value for key, value in (("min", least), ("max", most)) if value is not None and value != {"min": -math.inf, "max": math.inf}[key]}
    if any(math.isinf(value) for value in bounds.values()):
        raise call.rejected(f"has {bounds}, so that all elements are infinite; use torch.full_like")
    name = call.cast(call.operand("self"), call.result.dtype)
    return call.call("clamp", [name], **bounds) if bounds else call.call("clone", [name])


def masked(call: "Call") -> Any:
    """`masked_fill` with a tensor without dims in place of a number."""
    value = call.given["value"]
    if not isinstance(value, torch.fx.Node):
        return call.of_table()
    filling = call.cast(call.operand("value"), call.result.dtype)
    return call.like(call.call("where", [call.operand("mask"), filling, call.operand("self")]))


def greatest(call: "Call") -> Any:
    """`max` and `min`: of two tensors, of all elements, or along a dim."""
    if "other" in call.given:
        dtype = call.result.dtype
        return call.call("maximum" if call.op == "max" else "minimum", [call.cast(call.operand(key), dtype) for key in ("self", "other")])
    if "dim" not in call.given:
        return call.call("amax" if call.op == "max" else "amin", [call.operand("self")])
    return call.of_table()


def product(call: "Call") -> Any:
    """`einsum`, with an explicit result and a letter for each dim that `...` stands for."""
    equation = call.given["equation"].replace(" ", "")
    names = [call.lowering.name(node) for node in call.given["tensors"]]
    left, arrow, right = equation.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(names):
        raise call.rejected(f"has {counted(len(names), 'operand')} for the equation {equation}")
    if not arrow:
        once = sorted(letter for letter in set(left) - {",", "."} if left.count(letter) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    free = [letter for letter in string.ascii_letters if letter not in equation]
    wide = [len(call.graph.shape(name)) - len(letters.replace("...", "")) if "..." in letters else 0 for letters, name in zip(inputs, names, strict=True)]
    extra = "".join(free[: max(wide, default=0)])
    inputs = [letters.replace("...", extra[len(extra) - count :]) for letters, count in zip(inputs, wide, strict=True)]
    right = right.replace("...", extra)
    sizes: dict[str, int] = {}
    for letters, name in zip(inputs, names, strict=True):
        if len(set(letters)) != len(letters):
            raise call.rejected(f"has the equation {equation}, which takes a diagonal; use torch.diagonal before it")
        for letter, size in zip(letters, call.graph.shape(name), strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    for n, letters in enumerate(inputs):
        # A dim of one element stands for every size.
        shape = [sizes[letter] for letter in letters]
        if list(call.graph.shape(names[n])) != shape:
            names[n] = call.call("expand", [names[n]], shape=shape)
    return call.call(f"{','.join(inputs)}->{right}", names)


def cast_like(call: "Call") -> Any:
    call.follow_result()
    return call.cast(call.operand(next(iter(call.given))), call.result.dtype)


def promoted(call: "Call") -> Any:
    """A product of two vectors in the wider of their types."""
    first, second = [call.cast(call.operand(key), call.result.dtype) for key in list(call.given)[:2]]
    return call.call("outer", [first, second])


FORMS: "dict[str, Form]" = {
    **dict.fromkeys(("add", "sub"), added),
    "rsub": subtracted_from,
    **dict.fromkeys(("div", "divide"), divided),
    **dict.fromkeys(("clamp", "clip", "clamp_min", "clamp_max"), clamped),
    "masked_fill": masked,
    **dict.fromkeys(("max", "min"), greatest),
    "einsum": product,
    **dict.fromkeys(("to", "type_as", "convert_element_type"), cast_like),
    **dict.fromkeys(("outer", "ger"), promoted),
}
