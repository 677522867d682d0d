"""Ops computed by NumPy: one function per op, `(call, *arrays) -> array`, or a tuple of arrays.

The reference runs all other ops: it knows every op of the standard table, and is slower.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reshard._refusals import refused
from reshard._reshard import LocalCall

Array = Any
Kernel = Callable[..., Any]


def _made(call: LocalCall, index: int = 0) -> tuple[tuple[int, ...], Any]:
    """Returns the shape and the dtype of a call's output."""
    of = call.outputs[index]
    return of.shape, of.numpy_dtype


def _unary(function: Callable[[Array], Array]) -> Kernel:
    return lambda call, x: function(x)


def _binary(function: Callable[[Array, Array], Array]) -> Kernel:
    return lambda call, x, y: function(x, y)


def _value(call: LocalCall, key: str = "value") -> float:
    value = call.number(key)
    if value is None:
        raise KeyError(key)
    return value


def _scalar(function: Callable[[Array, float], Array], key: str = "value") -> Kernel:
    # A Python number keeps the type of the array. An array of integers needs a whole one as an int for that.
    def kernel(call: LocalCall, x: Array) -> Array:
        value = _value(call, key)
        is_whole = np.issubdtype(x.dtype, np.integer) and float(value).is_integer()
        return function(x, int(value) if is_whole else value)

    return kernel


def _reduced(function: Callable[..., Array]) -> Kernel:
    def kernel(call: LocalCall, x: Array) -> Array:
        return function(x, axis=tuple(call.dims("dims")), keepdims=call.flag("keepdim"))

    return kernel


def _shaped(call: LocalCall, x: Array) -> Array:
    return x.reshape(call.outputs[0].shape)


def _dim(call: LocalCall, key: str = "dim") -> int:
    return call.dims(key)[0]


def _largest(call: LocalCall, x: Array) -> Array:
    # No elements have a largest one: return a zero, whose value does not matter because it is subtracted from
    # nothing.
    return x.max(axis=call.arguments["dim"], keepdims=True) if x.size else np.zeros((), x.dtype)


def _softmax(call: LocalCall, x: Array) -> Array:
    e = np.exp(x - _largest(call, x))
    return e / e.sum(axis=call.arguments["dim"], keepdims=True)


def _log_softmax(call: LocalCall, x: Array) -> Array:
    shifted = x - _largest(call, x)
    return shifted - np.log(np.exp(shifted).sum(axis=call.arguments["dim"], keepdims=True))


def _full(value: float) -> Kernel:
    def kernel(call: LocalCall, *_: Array) -> Array:
        shape, dtype = _made(call)
        return np.full(shape, value, dtype)

    return kernel


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _sgd(call: LocalCall, w: Array, dw: Array) -> Array:
    return w - dw * _value(call, "lr")


def _expand(call: LocalCall, x: Array) -> Array:
    return np.broadcast_to(x, call.outputs[0].shape)


def _permute(call: LocalCall, x: Array) -> Array:
    return x.transpose(call.arguments["dims"])


def _transpose(call: LocalCall, x: Array) -> Array:
    return np.swapaxes(x, call.arguments["dim0"], call.arguments["dim1"])


def _cast(call: LocalCall, x: Array) -> Array:
    return x.astype(_made(call)[1])


KERNELS: dict[str, Kernel] = {
    **{name: _unary(getattr(np, name)) for name in (
        "exp", "expm1", "log1p", "log2", "log10", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor",
        "ceil", "trunc", "square", "sign", "isnan", "isinf", "isfinite", "logical_not", "positive", "abs", "cbrt",
    )},
    "neg": _unary(np.negative),
    "reciprocal": _unary(lambda x: 1 / x),
    "rsqrt": _unary(lambda x: 1 / np.sqrt(x)),
    "relu": _unary(lambda x: np.maximum(x, 0)),
    "sigmoid": _unary(_sigmoid),
    "silu": _unary(lambda x: x * _sigmoid(x)),
    **{name: _unary(lambda x: x) for name in ("copy", "clone", "detach", "contiguous")},
    "cast": _cast,
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _binary(np.divide),
    "pow": _binary(np.power),
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    "eq": _binary(np.equal),
    "ne": _binary(np.not_equal),
    "lt": _binary(np.less),
    "le": _binary(np.less_equal),
    "gt": _binary(np.greater),
    "ge": _binary(np.greater_equal),
    "logical_and": _binary(np.logical_and),
    "logical_or": _binary(np.logical_or),
    "logical_xor": _binary(np.logical_xor),
    "where": lambda call, condition, x, y: np.where(condition != 0, x, y),
    "add_scalar": _scalar(lambda x, value: x + value),
    "sub_scalar": _scalar(lambda x, value: x - value),
    "rsub_scalar": _scalar(lambda x, value: value - x),
    "mul_scalar": _scalar(lambda x, value: x * value),
    "div_scalar": _scalar(lambda x, value: x / value),
    "pow_scalar": _scalar(lambda x, exponent: x**exponent, "exponent"),
    "mm": _binary(np.matmul),
    "bmm": _binary(np.matmul),
    "mv": _binary(np.matmul),
    "dot": _binary(np.dot),
    "outer": _binary(np.outer),
    "t": _unary(np.transpose),
    "sum": _reduced(np.sum),
    "amax": _reduced(np.max),
    "amin": _reduced(np.min),
    "prod": _reduced(np.prod),
    "permute": _permute,
    "transpose": _transpose,
    **{name: _shaped for name in ("reshape", "view", "flatten", "squeeze", "unsqueeze", "unflatten")},
    "expand": _expand,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "cat": lambda call, *arrays: np.concatenate(arrays, axis=call.arguments["dim"]),
    "stack": lambda call, *arrays: np.stack(arrays, axis=call.arguments["dim"]),
    "zeros": _full(0),
    "ones": _full(1),
    "zeros_like": _full(0),
    "ones_like": _full(1),
    "sgd": _sgd,
}
"""The kernels, by op name."""

_EINSUM = re.compile(r"[a-zA-Z]*(,[a-zA-Z]*)*->[a-zA-Z]*")


def _einsum(call: LocalCall, rule: str, arrays: Sequence[Array]) -> Array:
    dtype = _made(call)[1]
    wide = np.dtype(dtype).kind == "V" or np.dtype(dtype) == np.float16
    if wide:
        arrays = [np.asarray(array).astype(np.float32) for array in arrays]
    # With `optimize`, NumPy computes products of matrices by BLAS.
    return np.einsum(rule, *arrays, optimize=True).astype(dtype, copy=False)


def runner(kernels: Mapping[str, Kernel] | None = None) -> Callable[[LocalCall, Sequence[Array]], tuple[Array, ...]]:
    """Returns a function that runs calls: by these kernels first, then by NumPy's, then by the reference."""
    table = {**KERNELS, **(kernels or {})}
    own = frozenset(kernels or ())

    def run(call: LocalCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        name = call.name
        function = table.get(name) if name is not None else table.get(str(call))
        try:
            if function is None or (call.needs_region and name not in own):
                rule = call.rule
                if rule is not None and _EINSUM.fullmatch(rule):
                    return (_einsum(call, rule, arrays),)
                return call.reference(*arrays)
            with np.errstate(all="ignore"):
                made = function(call, *arrays)
        except (KeyError, TypeError):
            if name in own:
                raise
            # An argument is missing and has its default in the table, or NumPy does not have this function
            # for bools.
            return call.reference(*arrays)
        except MemoryError as error:
            if name in own:
                raise
            raise refused("memory", f"there is no memory for the outputs of {call}: {error}") from None
        return made if isinstance(made, tuple) else (made,)

    return run
