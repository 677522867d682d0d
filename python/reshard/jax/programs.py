"""Programs from functions of JAX: the equations of a jaxpr are translated to ops on traced tensors.

The sharding solver chooses all types that are not given. JAX's tracing does not fix any; gradients are
derived by this library and not by `jax.grad`.
"""

from __future__ import annotations

import inspect
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import reshard
from reshard import DType, ShardingSolver, Program
from reshard._refusals import refused
from reshard._trace import Tensor, gradient, redistribute, ops
from reshard.jax.specs import dtype, mesh, typed

_UNARY = {name: name for name in (
    "neg", "exp", "exp2", "log", "log1p", "expm1", "tanh", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan",
    "sqrt", "rsqrt", "cbrt", "abs", "sign", "floor", "ceil", "erf", "erfc", "square",
)} | {"logistic": "sigmoid"}
_BINARY = {"add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "maximum", "min": "minimum", "pow": "pow",
           "atan2": "atan2", "gt": "gt", "lt": "lt", "ge": "ge", "le": "le", "eq": "eq", "ne": "ne"}
_REDUCES = {"reduce_sum": "sum", "reduce_max": "amax", "reduce_min": "amin", "reduce_prod": "prod"}
_SAME = {"copy", "copy_p", "optimization_barrier"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint"}
# The parameter names of `reshard.program`, which inputs cannot have.
_TAKEN = {"source", "function", "mesh", "meshes", "table", "solver", "implicit_redistribution", "topology"}


def program(
    function: Callable[..., Any],
    *args: Any,
    wrt: Sequence[str] = (),
    solver: ShardingSolver | None = None,
    implicit_redistribution: str = "allow",
) -> Program:
    """Returns the program of a function of JAX: checked, and differentiated by this library.

    Arguments are arrays, or `jax.ShapeDtypeStruct(shape, dtype, sharding=..)`, or trees of them. Their
    shardings, all on one mesh, are the types of the inputs. Inputs are named by the function's parameters and
    their keys, `w.0`. Results are `out`, or `out0`, `out1` .. With `wrt` the function returns one number, and
    the program also computes the gradients with respect to these inputs, called `dw`.
    """
    traced = Traced(function, args)
    axes = _one_mesh(traced.leaves)
    unknown = [name for name in wrt if name not in traced.names]
    if unknown:
        raise refused("program", f"no input {unknown[0]} for a gradient; the inputs are {', '.join(traced.names)}")
    inputs: dict[str, Any] = {
        name: (dtype(leaf.dtype), leaf.shape, _type(leaf, axes)) for name, leaf in zip(traced.names, traced.leaves, strict=True)
    }

    def run(**tensors: Tensor) -> Any:
        if not wrt:
            made = traced.run(tensors, axes)
            return made[0] if len(made) == 1 else tuple(made)
        return traced.gradients(tensors, axes, wrt)

    return reshard.program(run, mesh(axes), solver=solver, implicit_redistribution=implicit_redistribution, **inputs)


class Traced:
    """The jaxpr of a function of arrays, or trees of them, and the names of its inputs."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        # JAX treats numbers as arrays without dims.
        args = jax.tree.map(lambda leaf: leaf if hasattr(leaf, "shape") else jnp.asarray(leaf), tuple(args))
        leaves, self.tree = jax.tree_util.tree_flatten_with_path(args)
        self.names = [_name(path, _parameters(function)) for path, _ in leaves]
        self.leaves = [leaf for _, leaf in leaves]
        plain = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in self.leaves]
        self._closed = jax.make_jaxpr(function)(*jax.tree_util.tree_unflatten(self.tree, plain))
        _has_no_branches(self._closed.jaxpr)

    def run(self, tensors: Mapping[str, Tensor], axes: Any) -> list[Tensor]:
        """Returns the results of the function for traced tensors, by the names of its inputs."""
        made = _run(self._closed.jaxpr, self._closed.consts, [tensors[name] for name in self.names], axes)
        if not made:
            raise refused("program", "the function returns no array; a program needs at least one result")
        for value in made:
            if not isinstance(value, Tensor):
                raise refused("program", "a result of the function depends on no input; a program cannot return constants")
        return made

    def gradients(self, tensors: Mapping[str, Tensor], axes: Any, wrt: Sequence[str]) -> dict[str, Tensor]:
        """Returns the number that the function returns, as `out`, and its gradients, as `dw` for the input `w`."""
        made = self.run(tensors, axes)
        if len(made) != 1 or made[0].shape != ():
            raise refused("program", "a gradient needs a single number; return only that number from the function")
        slopes = gradient(made[0], [tensors[name] for name in wrt])
        # A copy that backward does not read: a value that backward reads last may have no memory at the end.
        return {"out": ops("clone", made[0]), **{f"d{name}": slope for name, slope in zip(wrt, slopes, strict=True)}}


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Returns the parameter names of arguments; those that `*args` takes have no names."""
    every = inspect.signature(function).parameters.values()
    return [one.name for one in every if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _has_no_branches(jaxpr: Any) -> None:
    """Rejects loops and branches by name, before an error could name their surroundings instead."""
    for equation in jaxpr.eqns:
        if (name := equation.primitive.name) in ("cond", "while", "scan"):
            raise _no_op(name)
        if name == "shard_map":
            raise refused(
                "program",
                "the function enters shard_map, or calls a redistribution of this library, which does; use "
                "jax.lax.with_sharding_constraint instead, and the program plans the redistributions",
            )
        if name in _CALLS:
            _has_no_branches(_inner(equation.params)[0])


def _inner(params: Any) -> tuple[Any, Sequence[Any]]:
    """Returns the jaxpr that a call runs, and its constants."""
    inner = params.get("call_jaxpr", params.get("jaxpr", params.get("fun_jaxpr")))
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


def _name(path: Any, parameters: list[str]) -> str:
    keys = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    at = int(keys[0])
    first = parameters[at] if at < len(parameters) else f"x{at}"
    name = ".".join([first, *keys[1:]])
    return f"{name}_" if name in _TAKEN else name


def _one_mesh(leaves: Sequence[Any]) -> Any:
    found = None
    for leaf in leaves:
        of = getattr(leaf, "sharding", None)
        if isinstance(of, NamedSharding):
            if found is not None and of.mesh != found:
                raise refused("mesh", f"inputs are on two meshes, {found} and {of.mesh}: put them on one")
            found = of.mesh
    if found is None:
        raise refused("mesh", "no input has a mesh; give arrays on a mesh, or jax.ShapeDtypeStruct(shape, dtype, sharding=..)")
    return found


def _type(leaf: Any, axes: Any) -> str:
    of = leaf.sharding if isinstance(getattr(leaf, "sharding", None), NamedSharding) else NamedSharding(axes, PartitionSpec())
    return str(typed(of, leaf.shape))


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], axes: Any) -> list[Any]:
    """Evaluates a jaxpr: returns traced tensors, and arrays for values that depend on no input."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val) if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        made = _equation(equation, [read(atom) for atom in equation.invars], axes)
        values.update(zip(equation.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(equation: Any, given: list[Any], axes: Any) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        return _run(*_inner(params), given, axes)
    if not any(isinstance(value, Tensor) for value in given):
        made = equation.primitive.bind(*given, **params)
        return list(made) if equation.primitive.multiple_results else [made]
    if name in _SAME:
        return given
    makes = equation.outvars[0].aval
    made = _op(name, params, given, makes, axes)
    # The table's op computes its element type from its operands; JAX may request another one.
    if _dtype(made) != dtype(makes.dtype):
        raise _no_op(name, f"to {makes.dtype} of {_dtype(made).name}")
    return [made]


def _op(name: str, params: Any, given: list[Any], makes: Any, axes: Any) -> Any:
    x = given[0]
    if name in _UNARY:
        return ops(_UNARY[name], x)
    if name in _BINARY:
        if name == "div" and np.issubdtype(makes.dtype, np.integer):
            raise _no_op(name, "of integers")
        return _binary(name, given[0], given[1])
    if name in _REDUCES:
        dims = [int(dim) for dim in params["axes"]]
        return ops(_REDUCES[name], x, dims=dims) if dims else x
    match name:
        case "stop_gradient":
            return ops("detach", x)
        case "integer_pow":
            return ops("square", x) if params["y"] == 2 else ops("pow_scalar", x, exponent=float(params["y"]))
        case "dot_general":
            return ops(_product(params["dimension_numbers"], len(given[0].shape), len(given[1].shape)), *_tensors(name, given))
        case "transpose":
            return ops("permute", x, dims=[int(dim) for dim in params["permutation"]])
        case "reshape":
            return ops("reshape", x, shape=[int(size) for size in params["new_sizes"]])
        case "squeeze":
            return ops("reshape", x, shape=[int(size) for size in makes.shape])
        case "broadcast_in_dim":
            return _broadcast(x, [int(n) for n in params["shape"]], [int(n) for n in params["broadcast_dimensions"]])
        case "convert_element_type":
            if dtype(params["new_dtype"]) == _dtype(x):
                return x
            raise _no_op(name, f"from {_dtype(x).name} to {params['new_dtype']}")
        case "select_n" if len(given) == 3:
            like = next(value for value in given[1:] if isinstance(value, Tensor))
            return ops("where", _tensors(name, given[:1])[0], _filled(given[2], like), _filled(given[1], like))
        case "concatenate":
            return ops("cat", *_tensors(name, given), dim=int(params["dimension"]))
        case "slice" if params["strides"] is None or all(step == 1 for step in params["strides"]):
            for dim, (begin, end) in enumerate(zip(params["start_indices"], params["limit_indices"], strict=True)):
                if (begin, end) != (0, x.shape[dim]):
                    x = ops("narrow", x, dim=dim, start=int(begin), length=int(end - begin))
            return x
        case "sharding_constraint" | "reshard":
            wanted = params.get("sharding", params.get("dst_sharding"))
            if mesh(wanted.mesh) != mesh(axes):
                raise refused("mesh", f"{name} is on the mesh {wanted.mesh}, but the inputs are on {axes}; put all on one mesh")
            return redistribute(x, str(typed(wanted, tuple(makes.shape))))
    raise _no_op(name)


def _no_op(name: str, why: str = "") -> Exception:
    return refused("program", f"the function uses {name}{' ' if why else ''}{why}, which programs from JAX do not support; write that part with reshard.ops")


def _dtype(x: Any) -> DType:
    return x.dtype if isinstance(x.dtype, DType) else dtype(x.dtype)


def _tensors(name: str, given: list[Any]) -> list[Any]:
    if not all(isinstance(value, Tensor) for value in given):
        raise _no_op(name, "with a constant array")
    return given


def _number(value: Any) -> float | None:
    """Returns the number that all elements of an array are equal to, or None."""
    if isinstance(value, Tensor):
        return None
    flat = np.asarray(value).reshape(-1)
    shape = list(np.shape(value))
    if np.iscomplexobj(flat):
        raise refused("program", f"a constant of shape {shape} has complex numbers: give it as an input")
    if flat.size == 0 or not (flat == flat[0]).all():
        why = "has NaN" if np.isnan(flat.astype(np.float64)).any() else "has different numbers"
        raise refused("program", f"a constant of shape {shape} {why}: give it as an input")
    return float(flat[0])


def _filled(value: Any, like: Tensor) -> Tensor:
    number = _number(value)
    return value if number is None else ops("full_like", like, fill_value=number)  # type: ignore[no-any-return]


def _binary(name: str, a: Any, b: Any) -> Any:
    left, right = _number(a), _number(b)
    if left is None and right is None:
        return ops(_BINARY[name], a, b)
    x, number = (a, right) if right is not None else (b, left)
    match name:
        case "add" | "add_any":
            return ops("add_scalar", x, value=number)
        case "mul":
            return ops("mul_scalar", x, value=number)
        case "sub":
            return ops("sub_scalar" if right is not None else "rsub_scalar", x, value=number)
        case "div" if right is not None:
            return ops("div_scalar", x, value=number)
        case "div":
            return ops("mul_scalar", ops("reciprocal", x), value=number)
        case "max" if number == -math.inf:
            return x
        case "min" if number == math.inf:
            return x
        case "max" if number == 0:
            return ops("relu", x)
        case "max":
            return ops("clamp_min", x, min=number)
        case "min":
            return ops("clamp_max", x, max=number)
        case "pow" if right is not None:
            return ops("pow_scalar", x, exponent=number)
    return ops(_BINARY[name], _filled(a, x), _filled(b, x))


def _broadcast(x: Any, shape: list[int], dims: list[int]) -> Any:
    ones = [1] * len(shape)
    for dim, extent in zip(dims, x.shape, strict=True):
        ones[dim] = int(extent)
    if ones != list(x.shape):
        x = ops("reshape", x, shape=ones)
    return x if ones == shape else ops("expand", x, shape=shape)


def _product(numbers: Any, left: int, right: int) -> str:
    """Returns a product as an equation: batch dims first, then the other left and the other right dims."""
    (over_left, over_right), (batch_left, batch_right) = numbers
    letters = iter(string.ascii_lowercase)
    a: dict[int, str] = {}
    b: dict[int, str] = {}
    for at, other in [*zip(batch_left, batch_right, strict=True), *zip(over_left, over_right, strict=True)]:
        a[at] = b[other] = next(letters)
    for at in range(left):
        a.setdefault(at, "") or a.update({at: next(letters)})
    for at in range(right):
        b.setdefault(at, "") or b.update({at: next(letters)})
    out = [a[at] for at in batch_left]
    out += [a[at] for at in range(left) if at not in batch_left and at not in over_left]
    out += [b[at] for at in range(right) if at not in batch_right and at not in over_right]
    return f"{''.join(a[at] for at in range(left))},{''.join(b[at] for at in range(right))}->{''.join(out)}"
