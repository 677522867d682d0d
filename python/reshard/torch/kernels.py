"""Ops computed by PyTorch on any device: one function per op, `(call, *tensors) -> tensor` or a tuple.

They cover the ops that `reshard._kernels` has for NumPy, and a few more that models use. The reference
computes all others on the host.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from reshard import LocalCall, OpTable, ReshardError
from reshard._refusals import refused

Kernel = Callable[..., Any]

_EINSUM = re.compile(r"[a-zA-Z]*(,[a-zA-Z]*)*->[a-zA-Z]*")


def torch_dtype(name: str) -> torch.dtype:
    """Returns PyTorch's element type of this name.

    Errors: `ReshardError` for a type that PyTorch does not have.
    """
    found = _DTYPES.get(name)
    if found is None:
        raise refused("dtype", f"PyTorch has no dtype for {name} that a step could use; write the program in one of: {', '.join(_DTYPES)}")
    return found


_DTYPES = {
    "bool": torch.bool,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
}


def _unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    return lambda call, x: function(x)


def _binary(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Kernel:
    return lambda call, x, y: function(x, y)


def _value(call: LocalCall, key: str = "value") -> float:
    value = call.number(key)
    if value is None:
        raise refused("program", f"{call} has no {key}")
    return value


def _scalar(function: Callable[[torch.Tensor, float], torch.Tensor], key: str = "value") -> Kernel:
    # A whole number as an int preserves an integer type.
    def kernel(call: LocalCall, x: torch.Tensor) -> torch.Tensor:
        value = _value(call, key)
        is_whole = not x.dtype.is_floating_point and not x.dtype.is_complex and float(value).is_integer()
        return function(x, int(value) if is_whole else value)

    return kernel


def _reduced(function: Callable[[torch.Tensor, list[int], bool], torch.Tensor]) -> Kernel:
    def kernel(call: LocalCall, x: torch.Tensor) -> torch.Tensor:
        dims = call.dims("dims")
        # PyTorch interprets an empty list of dims as all of them.
        return function(x, dims, call.flag("keepdim")) if dims else x

    return kernel


def _prod(x: torch.Tensor, dims: list[int], keepdim: bool) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        x = x.prod(dim, keepdim=keepdim)
    return x


def _shaped(call: LocalCall, x: torch.Tensor) -> torch.Tensor:
    return x.reshape(call.outputs[0].shape)


def _dim(call: LocalCall) -> int:
    return call.dims("dim")[0]


def _full(value: float) -> Kernel:
    def kernel(call: LocalCall, *given: torch.Tensor, device: torch.device) -> torch.Tensor:
        made = call.outputs[0]
        return torch.full(made.shape, value, dtype=torch_dtype(made.dtype.name), device=device)

    return kernel


def _cbrt(x: torch.Tensor) -> torch.Tensor:
    return x.sign() * x.abs() ** (1 / 3)


def _gelu(call: LocalCall, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate=call.arguments.get("approximate", "none"))


KERNELS: dict[str, Kernel] = {
    **{name: _unary(getattr(torch, name)) for name in (
        "exp", "expm1", "log1p", "log2", "log10", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc",
        "square", "sign", "isnan", "isinf", "isfinite", "logical_not", "positive", "abs", "neg", "reciprocal", "relu", "sigmoid",
    )},
    "cbrt": _unary(_cbrt),
    "silu": _unary(torch.nn.functional.silu),
    **{name: _unary(lambda x: x) for name in ("copy", "clone", "detach", "contiguous")},
    "cast": lambda call, x: x.to(torch_dtype(call.outputs[0].dtype.name)),
    "add": _binary(torch.add),
    "sub": _binary(torch.sub),
    "mul": _binary(torch.mul),
    "div": _binary(torch.div),
    "pow": _binary(torch.pow),
    "maximum": _binary(torch.maximum),
    "minimum": _binary(torch.minimum),
    "eq": _binary(torch.eq),
    "ne": _binary(torch.ne),
    "lt": _binary(torch.lt),
    "le": _binary(torch.le),
    "gt": _binary(torch.gt),
    "ge": _binary(torch.ge),
    "logical_and": _binary(torch.logical_and),
    "logical_or": _binary(torch.logical_or),
    "logical_xor": _binary(torch.logical_xor),
    "where": lambda call, condition, x, y: torch.where(condition != 0, x, y),
    "add_scalar": _scalar(lambda x, value: x + value),
    "sub_scalar": _scalar(lambda x, value: x - value),
    "rsub_scalar": _scalar(lambda x, value: value - x),
    "mul_scalar": _scalar(lambda x, value: x * value),
    "div_scalar": _scalar(lambda x, value: x / value),
    "pow_scalar": _scalar(lambda x, exponent: x**exponent, "exponent"),
    "mm": _binary(torch.mm),
    "bmm": _binary(torch.bmm),
    "mv": _binary(torch.mv),
    "dot": _binary(torch.dot),
    "outer": _binary(torch.outer),
    "t": _unary(torch.t),
    "sum": _reduced(lambda x, dims, keepdim: x.sum(dims, keepdim=keepdim)),
    "amax": _reduced(lambda x, dims, keepdim: x.amax(dims, keepdim=keepdim)),
    "amin": _reduced(lambda x, dims, keepdim: x.amin(dims, keepdim=keepdim)),
    "prod": _reduced(_prod),
    "permute": lambda call, x: x.permute(call.dims("dims")),
    "transpose": lambda call, x: x.transpose(call.dims("dim0")[0], call.dims("dim1")[0]),
    **{name: _shaped for name in ("reshape", "view", "flatten", "squeeze", "unsqueeze", "unflatten")},
    "expand": lambda call, x: x.expand(call.outputs[0].shape),
    "softmax": lambda call, x: torch.softmax(x, _dim(call)),
    "log_softmax": lambda call, x: torch.log_softmax(x, _dim(call)),
    "cat": lambda call, *tensors: torch.cat(tensors, _dim(call)),
    "stack": lambda call, *tensors: torch.stack(tensors, call.arguments.get("dim", 0)),
    "zeros": _full(0),
    "ones": _full(1),
    "zeros_like": _full(0),
    "ones_like": _full(1),
    "gelu": _gelu,
    "erf": _unary(torch.erf),
    "matmul": _binary(torch.matmul),
    "linear": lambda call, x, weight, *bias: torch.nn.functional.linear(x, weight, *bias),
    "sgd": lambda call, w, dw: w - dw * _value(call, "lr"),
}
"""The kernels, by op name."""

# Kernels whose device has to be given, since no operand determines it.
_MADE_ANYWHERE = {"zeros", "ones", "zeros_like", "ones_like"}


def _einsum(call: LocalCall, *tensors: torch.Tensor) -> torch.Tensor:
    assert call.rule is not None
    return torch.einsum(call.rule, *tensors)


def _by_reference(call: LocalCall, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Computes a call by the reference, which knows every op and the region of every shard, on the host."""
    arrays = [(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t).cpu().numpy() for t in tensors]
    made = call.reference(*arrays)
    return tuple(
        torch.from_numpy(np.ascontiguousarray(array).reshape(of.shape)).to(device, torch_dtype(of.dtype.name))
        for array, of in zip(made, call.outputs, strict=True)
    )


def _has_reference(call: LocalCall) -> bool:
    """Returns True if the reference computes a call: one of the standard table, or one that it tries."""
    if call.name is None or call.name in OpTable.standard():
        return True
    try:
        call.reference(*(np.ones(one.shape, one.numpy_dtype) for one in call.inputs))
    except ReshardError:
        return False
    return True


def kernel_of(call: LocalCall, device: torch.device, kernels: Mapping[str, Kernel]) -> Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]:
    """Returns the function for a call: from `kernels`, by op name or call text, else PyTorch's or the reference.

    Errors: `ReshardError` for a call that the reference does not compute, with its name and possible remedies.
    """
    name, text = call.name, str(call)
    given = kernels.get(text) or (kernels.get(name) if name is not None else None)
    function = given
    if function is None and not call.needs_region:
        if name is not None:
            function = KERNELS.get(name)
        elif call.rule is not None and _EINSUM.fullmatch(call.rule):
            function = _einsum
    if function is None:
        if not _has_reference(call):
            raise refused(
                "unsupported",
                f"there is no PyTorch function for {text}; give one as kernels={{'{name or text}': function}}, which is called with the call and its tensors",
            )
        return lambda tensors: _by_reference(call, tensors, device)
    found = function
    if given is None and name in _MADE_ANYWHERE:
        return lambda tensors: (found(call, *tensors, device=device),)

    def run(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        made = found(call, *tensors)
        return made if isinstance(made, tuple) else (made,)

    return run
