"""The arguments of PyTorch's overloads: each is used, may be left out for a reason, or is rejected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch._ops import OpOverload

from reshard import Table
from reshard._refusals import refused


class Use(Enum):
    """What becomes of an argument."""

    OPERAND = "an operand of the op"
    PARAMETER = "an argument of the op"
    CAST = "the operand is cast to it first"
    ELEMENTS = "the element type of the result"
    LEFT_OUT = "changes no value of the result"
    REJECTED = "rejected, unless it is the default"


@dataclass(frozen=True)
class Argument:
    """An argument of an overload: its name in PyTorch, its use, its name in the table if it is used, and why it may be left out if it is not."""

    name: str
    use: Use
    called: str = ""
    why: str = ""


# The namespaces whose ops are those of the table of the same name: an op of another library's means what that library says.
NAMESPACES = ("aten", "prims")

# Ops that have another name in the table.
_OPS = {"_softmax": "softmax", "_log_softmax": "log_softmax", "native_layer_norm": "layer_norm", "_unsafe_view": "view", "_to_copy": "cast"}

# Arguments that have another name in the table, of all ops or of one.
_CALLED = {
    "size": "shape",
    "is_causal": "causal",
    "normalized_shape": "last",
    "kernel_size": "kernel",
    "output_size": "size",
    "dimension": "dim",
}
_CALLED_OF = {
    ("split", "split_size"): "size",
    ("arange", "end"): "size",
    ("eye", "n"): "size",
}

# What changes no value: where tensors are stored, by which kernel they are computed, and the layout of what is made.
_LEFT_OUT = {
    "device": "a mesh says where values are",
    "pin_memory": "a matter of the memory of a host",
    "memory_format": "strides are no part of a program",
    "non_blocking": "says when a copy is done, not what it makes",
    "cudnn_enable": "chooses a kernel",
    "cudnn_enabled": "chooses a kernel",
    "implicit": "is set by compilers, and read by none",
    "assume_unique": "a promise that a kernel may use",
}
_LEFT_OUT_OF = {
    ("embedding", "sparse"): "the layout of the gradient",
    ("gather", "sparse_grad"): "the layout of the gradient",
    ("topk", "sorted"): "any order is right without it, so that of values is",
    ("copy", "self"): "all of its elements are overwritten",
    ("fill", "self"): "all of its elements are overwritten",
    ("zero", "self"): "all of its elements are overwritten",
}

# Ops that PyTorch computes in the element type that is given, and those that make something of that type.
_CASTING = {"softmax", "log_softmax", "sum", "nansum", "mean", "prod", "cumsum", "cumprod"}
_MAKING = {"ones", "zeros", "full", "arange", "eye", "ones_like", "zeros_like", "full_like", "cast"}

# Ops with a number in place of an operand, and what the number is called.
_NUMBERS = {"add": "value", "sub": "value", "mul": "value", "div": "value", "pow": "exponent"}

# Ops to which an empty list of dims says all of them, as leaving it out does; to the others of PyTorch's it says none.
_ALL_BY_NONE = {
    "sum", "nansum", "mean", "amax", "amin", "var", "std", "var_mean", "std_mean", "count_nonzero", "norm", "linalg_vector_norm", "logsumexp", "roll",
}  # fmt: skip

# What a reduction of a loss is called, by PyTorch's number.
_REDUCTIONS = ("none", "mean", "sum")


def op_of(overload: OpOverload) -> str:
    """The name of an overload's op in the table, were it there.

    That of another library is one of the user's own table: `mylib::swiglu` is `swiglu` there.

    Errors: `ReshardError` for an op of another namespace that has the name of one of PyTorch's.
    """
    namespace, _, packet = overload._schema.name.partition("::")
    if namespace not in NAMESPACES and (packet.startswith("_") or packet in Table.standard()):
        raise refused(
            "program",
            f"{overload} is an op of {namespace}, and programs have those of {' and '.join(NAMESPACES)}: write it by PyTorch's own ops, "
            f"give it a decomposition, or give it a name that no op of the table has",
        )
    return _OPS.get(packet, packet)


def with_number(overload: OpOverload, given: Mapping[str, Any]) -> str | None:
    """The name of the op with a number in place of its second operand, if that is given."""
    op = op_of(overload)
    other = given.get("other", given.get("exponent"))
    return f"{op}_scalar" if op in _NUMBERS and isinstance(other, int | float) else None


def arguments(overload: OpOverload, op: str, parameters: Mapping[str, str]) -> dict[str, Argument]:
    """All arguments of an overload, by name, as an op with these parameters takes them."""
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
        if packet in _CASTING:
            return Argument(name, Use.CAST)
        if packet in _MAKING:
            return Argument(name, Use.ELEMENTS)
        return Argument(name, Use.REJECTED)
    if name in _LEFT_OUT:
        return Argument(name, Use.LEFT_OUT, why=_LEFT_OUT[name])
    called = _CALLED_OF.get((packet, name), _CALLED.get(name, name))
    known = next((key for key in (name, called, f"{name}s") if key in parameters), None)
    return Argument(name, Use.REJECTED) if known is None else Argument(name, Use.PARAMETER, known)


def value_of(argument: Argument, value: Any, parameters: Mapping[str, str]) -> Any:
    """A value of PyTorch's as the table writes it."""
    declared = parameters[argument.called]
    if argument.called == "last":
        return len(value)
    if argument.name == "reduction" and isinstance(value, int):
        return _REDUCTIONS[value]
    if argument.called in ("dims", "shape", "sizes") and not isinstance(value, list | tuple):
        return [value]
    if isinstance(value, list | tuple):
        return list(value)
    # A number that is a word there, such as `p` of distances.
    return f"{value:g}" if isinstance(value, float) and "|" in declared.partition(" = ")[0] else value


def taken(op: str, given: Mapping[str, Any], uses: Mapping[str, Argument]) -> dict[str, Any]:
    """What is given for arguments of the op, by PyTorch's names, without what stands for none."""
    return {key: value for key, value in given.items() if uses[key].use is Use.PARAMETER and not _is_absent(op, uses[key], value)}


def _is_absent(op: str, argument: Argument, value: Any) -> bool:
    """Whether a value stands for none: an empty stride is that of the window, and an empty list of dims is all of them, where PyTorch has it so."""
    if value is None:
        return True
    is_empty = isinstance(value, list | tuple) and not value
    return is_empty and (argument.called == "stride" or (argument.called == "dims" and op in _ALL_BY_NONE))


def is_default(argument: Argument, value: Any, parameters: Mapping[str, str]) -> bool:
    """Whether the op does the same without the value: PyTorch's default is the table's."""
    text = parameters[argument.called].rpartition(" = ")[2]
    made = value_of(argument, value, parameters)
    if isinstance(made, bool):
        return text == str(made).lower()
    try:
        return isinstance(made, int | float) and float(text) == made
    except ValueError:
        return isinstance(made, str) and made == text


def by_name(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names."""
    return dict(zip((one.name for one in overload._schema.arguments), args, strict=False)) | dict(kwargs)


def with_defaults(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call by their names, in the order of the overload, with PyTorch's defaults where none is given."""
    named = {one.name: one.default_value for one in overload._schema.arguments if one.has_default_value()}
    named |= by_name(overload, args, kwargs)
    return {one.name: named[one.name] for one in overload._schema.arguments if one.name in named}
