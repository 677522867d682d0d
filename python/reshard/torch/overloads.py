"""The arguments of PyTorch's overloads: each is used, left out for a stated reason, or rejected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reshard import OpTable
from reshard._refusals import refused

from reshard.torch.version import OpOverload


class Use(Enum):
    """The use of an argument."""

    OPERAND = "an operand of the op"
    PARAMETER = "an argument of the op"
    CAST = "the operand is cast to it first"
    ELEMENTS = "the element type of the result"
    LEFT_OUT = "changes no value of the result"
    REJECTED = "rejected, unless it is the default"


@dataclass(frozen=True)
class Argument:
    """An argument of an overload: PyTorch's name, its use, and the table's name or the reason to omit it."""

    name: str
    use: Use
    called: str = ""
    why: str = ""


# The namespaces whose ops are the table's ops of the same name. Another library's op has that library's
# semantics.
NAMESPACES = ("aten", "prims")

# Ops that have another name in the table.
_OPS = {
    "_softmax": "softmax", "_log_softmax": "log_softmax", "native_layer_norm": "layer_norm", "_unsafe_view": "view", "_to_copy": "cast",
    "unfold": "unfold_dim", "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "concat": "cat", "concatenate": "cat", "absolute": "abs", "negative": "neg", "multiply": "mul",
    "subtract": "sub", "true_divide": "div", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "arctan2": "atan2",
}  # fmt: skip

# Arguments that have another name in the table, of all ops or of one.
_CALLED = {
    "size": "shape",
    "is_causal": "causal",
    "normalized_shape": "last",
    "kernel_size": "kernel",
    "output_size": "size",
    "dimension": "dim",
    "upscale_factor": "factor",
    "downscale_factor": "factor",
}
_CALLED_OF = {
    ("split", "split_size"): "size",
    ("arange", "end"): "size",
    ("eye", "n"): "size",
}

# Arguments that change no value: the memory of tensors, the kernel that computes them, and the layout of the
# result.
_LEFT_OUT = {
    "device": "the mesh determines the device of values",
    "pin_memory": "concerns only the memory of the host",
    "memory_format": "a program has no strides",
    "non_blocking": "determines when a copy is done, not its result",
    "cudnn_enable": "chooses a kernel",
    "cudnn_enabled": "chooses a kernel",
    "implicit": "is set by compilers, and ignored",
    "assume_unique": "a hint for kernels",
}
_LEFT_OUT_OF = {
    ("embedding", "sparse"): "the layout of the gradient",
    ("gather", "sparse_grad"): "the layout of the gradient",
    ("topk", "sorted"): "without it any order is valid, so the sorted one is",
    ("copy", "self"): "all of its elements are overwritten",
    ("fill", "self"): "all of its elements are overwritten",
    ("zero", "self"): "all of its elements are overwritten",
}

# Ops that PyTorch computes in the given element type, and ops with a result of that type.
CASTING = {"softmax", "log_softmax", "sum", "nansum", "mean", "prod", "cumsum", "cumprod"}
_MAKING = {"ones", "zeros", "full", "arange", "eye", "ones_like", "zeros_like", "full_like", "cast"}

# Ops with a number as an operand, and the table's name of the number.
_NUMBERS = {"add": "value", "sub": "value", "mul": "value", "div": "value", "pow": "exponent"}

# Arguments that are an operand if they are a tensor; a number is a tensor without dims.
_NUMBER_OPERANDS = {"self", "other", "exponent", "weight"}

# Ops for which an empty list of dims means all dims, as None does. For PyTorch's other ops it means no dim.
_ALL_BY_NONE = {
    "sum", "nansum", "mean", "amax", "amin", "var", "std", "var_mean", "std_mean", "count_nonzero", "norm", "linalg_vector_norm", "logsumexp", "roll",
}  # fmt: skip

# The element types of casts.
CASTS = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool")

# The table's names of loss reductions, by PyTorch's number.
REDUCTIONS = ("none", "mean", "sum")


def op_of(overload: OpOverload) -> str:
    """Returns the name that an overload's op has in the table, whether or not the table has it.

    An op of another library is looked up in the user's table without its namespace: `mylib::swiglu` is
    `swiglu`.

    Errors: `ReshardError` for an op of another namespace with the name of a PyTorch op.
    """
    namespace, _, packet = overload._schema.name.partition("::")
    if namespace not in NAMESPACES and (packet.startswith("_") or packet in OpTable.standard()):
        raise refused(
            "program",
            f"{overload} is an op of {namespace}, but programs have only ops of {' and '.join(NAMESPACES)}; write it with PyTorch's ops, "
            f"give it a decomposition, or give it a name that no op of the table has",
        )
    return _OPS.get(packet, packet)


def with_number(overload: OpOverload, given: Mapping[str, Any]) -> str | None:
    """Returns the name of the op with a number as its second operand, if a number is given."""
    op = op_of(overload)
    other = given.get("other", given.get("exponent"))
    return f"{op}_scalar" if op in _NUMBERS and isinstance(other, int | float) else None


def arguments(overload: OpOverload, op: str, parameters: Mapping[str, str]) -> dict[str, Argument]:
    """Returns all arguments of an overload, by name, as an op with these parameters takes them."""
    return {one.name: _argument(op_of(overload), op, one, parameters) for one in overload._schema.arguments}


def _argument(packet: str, op: str, one: Any, parameters: Mapping[str, str]) -> Argument:
    name = one.name
    why = _LEFT_OUT_OF.get((packet, name))
    if why is not None:
        return Argument(name, Use.LEFT_OUT, why=why)
    if op.endswith("_scalar") and name in ("other", "exponent"):
        return Argument(name, Use.PARAMETER, _NUMBERS[packet])
    if "Tensor" in str(one.type):
        return Argument(name, Use.OPERAND)
    if name in ("dtype", "half_to_float"):
        if packet in CASTING:
            return Argument(name, Use.CAST)
        if packet in _MAKING:
            return Argument(name, Use.ELEMENTS)
        return Argument(name, Use.REJECTED)
    if name in _LEFT_OUT:
        return Argument(name, Use.LEFT_OUT, why=_LEFT_OUT[name])
    called = _CALLED_OF.get((packet, name), _CALLED.get(name, name))
    known = next((key for key in (name, called, f"{name}s") if key in parameters), None)
    if known is not None:
        return Argument(name, Use.PARAMETER, known)
    # The table's op takes tensors here.
    return Argument(name, Use.OPERAND if str(one.type) == "number" and name in _NUMBER_OPERANDS else Use.REJECTED)


def value_of(argument: Argument, value: Any, parameters: Mapping[str, str]) -> Any:
    """Converts a value of PyTorch to the table's form."""
    declared = parameters[argument.called]
    if argument.called == "last":
        return len(value)
    if argument.name == "reduction" and isinstance(value, int):
        return REDUCTIONS[value]
    if argument.called in ("dims", "shape", "sizes") and not isinstance(value, list | tuple):
        return [value]
    if isinstance(value, list | tuple):
        return list(value)
    # The table has a keyword in place of this number, such as `p` of distances.
    return f"{value:g}" if isinstance(value, float) and "|" in declared.partition(" = ")[0] else value


def taken(op: str, given: Mapping[str, Any], uses: Mapping[str, Argument]) -> dict[str, Any]:
    """Returns the given arguments of the op, by PyTorch's names, without values that mean none."""
    return {key: value for key, value in given.items() if uses[key].use is Use.PARAMETER and not _is_absent(op, uses[key], value)}


def _is_absent(op: str, argument: Argument, value: Any) -> bool:
    """Returns True if a value means that none is given.

    An empty stride is the window's, and an empty list of dims is all dims for the ops where PyTorch defines
    it so.
    """
    if value is None:
        return True
    is_empty = isinstance(value, list | tuple) and not value
    return is_empty and (argument.called == "stride" or (argument.called == "dims" and op in _ALL_BY_NONE))


def is_default(argument: Argument, value: Any, parameters: Mapping[str, str]) -> bool:
    """Returns True if the op does the same without the value, because PyTorch's default is the table's."""
    text = parameters[argument.called].rpartition(" = ")[2]
    made = value_of(argument, value, parameters)
    if isinstance(made, bool):
        return text == str(made).lower()
    try:
        return isinstance(made, int | float) and float(text) == made
    except ValueError:
        return isinstance(made, str) and made == text


def by_name(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call by their names."""
    return dict(zip((one.name for one in overload._schema.arguments), args, strict=False)) | dict(kwargs)


def with_defaults(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all arguments of a call by name, in the overload's order, with PyTorch's defaults."""
    named = {one.name: one.default_value for one in overload._schema.arguments if one.has_default_value()}
    named |= by_name(overload, args, kwargs)
    return {one.name: named[one.name] for one in overload._schema.arguments if one.name in named}
