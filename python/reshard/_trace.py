"""Programs from Python functions, by tracing: tensors that record the operations on them.

A function is called once, with tensors that have names, shapes and types but no numbers. Every operator is an
op of the table.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from reshard._refusals import counted, refused as _refused
from reshard._reshard import DType, ShardingSolver, Graph, Mesh, Program, OpTable

Number = int | float


@dataclass
class _Step:
    """One statement: a function that writes it into a graph, given the names of its results."""

    write: Callable[[Graph, Mapping[str, str], list[str]], list[str]]
    makes: list[str]


@dataclass
class _Tape:
    """The statements of a traced function, with a graph that names and types their results."""

    graph: Graph
    table: OpTable
    steps: list[_Step] = field(default_factory=list)
    finished: bool = False

    def write(self, write: Callable[[Graph, Mapping[str, str], list[str]], list[str]]) -> list[str]:
        """Records a statement, with the names that the graph gives to its results."""
        if self.finished:
            raise _refused("program", "the traced function has returned, and its tensors are valid only inside it; return the tensors that are needed")
        makes = write(self.graph, _Same(), [])
        self.steps.append(_Step(write, makes))
        return makes

    def again(self, graph: Graph, names: Mapping[str, str]) -> None:
        """Writes the same statements into another graph, in which some values have other names."""
        known: dict[str, str] = {}
        for step in self.steps:
            wanted = [names.get(made, "_") for made in step.makes]
            made = step.write(graph, _Renamed(known), wanted if any(n != "_" for n in wanted) else [])
            known.update(zip(step.makes, made, strict=True))


class _Same(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name


class _Renamed(dict[str, str]):
    def __init__(self, known: Mapping[str, str]) -> None:
        super().__init__(known)

    def __missing__(self, name: str) -> str:
        return name


class Tensor:
    """A tensor of a function that is being traced: a shape, an element type and a name, without numbers.

    Operators and methods are ops of the table: `x @ w`, `-x`, `x.sum(dims=[1])`, `x.relu()`.
    """

    __slots__ = ("_name", "_tape")

    # Makes NumPy defer to the operators of this class.
    __array_ufunc__ = None

    def __init__(self, tape: _Tape, name: str) -> None:
        self._tape = tape
        self._name = name

    def __repr__(self) -> str:
        shape = ",".join(map(str, self.shape))
        return f"<Tensor {self._name}: {self.dtype}[{shape}]>"

    @property
    def name(self) -> str:
        """The name in the graph while the function is traced."""
        return self._name

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape of the tensor."""
        return self._tape.graph.shape(self._name)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._tape.graph.dtype(self._name)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def T(self) -> Tensor:
        """Returns the tensor with its dims in reverse order."""
        if self.ndim == 2:
            return _one("t", [self])
        return _one("permute", [self], dims=list(reversed(range(self.ndim))))

    def __bool__(self) -> bool:
        raise _refused("program", f"{self!r} has no numbers while the function is traced, so `if` and `while` cannot test it; use where(..)")

    def __float__(self) -> float:
        raise _refused("program", f"{self!r} has no numbers while the function is traced")

    def __int__(self) -> int:
        raise _refused("program", f"{self!r} has no numbers while the function is traced")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise _refused("program", f"{self!r} has no numbers while the function is traced; call reshard.ops.NAME instead of a NumPy function")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dims has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        raise _refused("program", f"{self!r} cannot be iterated; use unbind(dim=0) or split")

    def __matmul__(self, other: object) -> Tensor:
        return _matmul(self, other) if isinstance(other, Tensor) else NotImplemented

    def __add__(self, other: object) -> Tensor:
        return _both("add", "add_scalar", self, other)

    def __radd__(self, other: object) -> Tensor:
        return _both("add", "add_scalar", self, other)

    def __sub__(self, other: object) -> Tensor:
        return _both("sub", "sub_scalar", self, other)

    def __rsub__(self, other: object) -> Tensor:
        return _both("sub", "rsub_scalar", self, other)

    def __mul__(self, other: object) -> Tensor:
        return _both("mul", "mul_scalar", self, other)

    def __rmul__(self, other: object) -> Tensor:
        return _both("mul", "mul_scalar", self, other)

    def __truediv__(self, other: object) -> Tensor:
        return _both("div", "div_scalar", self, other)

    def __rtruediv__(self, other: object) -> Tensor:
        if not _is_number(other):
            return NotImplemented
        return _both("mul", "mul_scalar", _one("reciprocal", [self]), other)

    def __pow__(self, other: object) -> Tensor:
        if isinstance(other, Tensor):
            return _one("pow", [self, other])
        if not _is_number(other):
            return NotImplemented
        return _one("square", [self]) if other == 2 else _one("pow_scalar", [self], exponent=other)

    def __neg__(self) -> Tensor:
        return _one("neg", [self])

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return _one("abs", [self])

    def __lt__(self, other: object) -> Tensor:
        return _compared("lt", self, other)

    def __le__(self, other: object) -> Tensor:
        return _compared("le", self, other)

    def __gt__(self, other: object) -> Tensor:
        return _compared("gt", self, other)

    def __ge__(self, other: object) -> Tensor:
        return _compared("ge", self, other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return _compared("eq", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return _compared("ne", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, key: object) -> Tensor:
        return _indexed(self, key)

    def reshape(self, *shape: Any) -> Tensor:
        """Returns the same elements in another shape; one extent may be -1."""
        return _one("reshape", [self], shape=_extents(self, shape))

    view = reshape

    def permute(self, *dims: Any) -> Tensor:
        """Returns the tensor with its dims in the given order."""
        return _one("permute", [self], dims=_flat(dims))

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """Returns the tensor with two of its dims swapped."""
        return _one("transpose", [self], dim0=dim0, dim1=dim1)

    def expand(self, *shape: Any) -> Tensor:
        """Returns the tensor with dims of size 1 broadcast to other sizes."""
        return _one("expand", [self], shape=_extents(self, shape, keep=True))

    def sum(self, dims: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
        """Returns the sum over `dims`, by default over all dims."""
        return _over("sum", self, dims, keepdim)

    def mean(self, dims: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
        """Returns the mean over `dims`, by default over all dims."""
        return _over("mean", self, dims, keepdim)

    def to(self, type: str) -> Tensor:
        """Redistributes the tensor to another type, such as `"S(0),R"`."""
        return redistribute(self, type)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._tape.table:
            raise AttributeError(f"a tensor has no attribute {name}, and there is no op of that name; dir(reshard.ops) lists the ops")

        def method(*args: Any, **kwargs: Any) -> Any:
            return getattr(ops, name)(self, *args, **kwargs)

        method.__name__ = name
        return method


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, (int, float)):
        return True
    return getattr(value, "shape", None) == () and hasattr(value, "__float__") and not isinstance(value, Tensor)


def _plain(value: Any) -> Number:
    if isinstance(value, (int, float)):
        return value
    return float(value)


def _flat(numbers: Iterable[Any]) -> list[int]:
    listed = list(numbers)
    if len(listed) == 1 and isinstance(listed[0], (list, tuple)):
        listed = list(listed[0])
    return [int(n) for n in listed]


def _extents(tensor: Tensor, shape: Iterable[Any], keep: bool = False) -> list[int]:
    extents = _flat(shape)
    missing = [at for at, extent in enumerate(extents) if extent == -1]
    if keep:
        own = [1] * (len(extents) - tensor.ndim) + list(tensor.shape)
        return [own[at] if extent == -1 else extent for at, extent in enumerate(extents)]
    if len(missing) == 1:
        size, known = 1, 1
        for extent in tensor.shape:
            size *= extent
        for extent in extents:
            known *= extent if extent != -1 else 1
        if known and size % known == 0:
            extents[missing[0]] = size // known
    return extents


def _call(op: str, inputs: Sequence[Tensor], **arguments: Any) -> list[Tensor]:
    tapes = {id(tensor._tape): tensor._tape for tensor in inputs}
    if not tapes:
        tape = _current()
    elif len(tapes) == 1:
        tape = next(iter(tapes.values()))
    else:
        raise _refused("program", f"the inputs of {op} belong to two traced functions; use tensors of one function")
    names = [tensor._name for tensor in inputs]

    def write(graph: Graph, known: Mapping[str, str], wanted: list[str]) -> list[str]:
        return graph.apply(op, [known[name] for name in names], wanted, **arguments)

    return [Tensor(tape, made) for made in tape.write(write)]


def _one(op: str, inputs: Sequence[Tensor], **arguments: Any) -> Tensor:
    return _call(op, inputs, **arguments)[0]


def _both(op: str, scalar: str, x: Tensor, y: object) -> Tensor:
    if isinstance(y, Tensor):
        return _one(op, [x, y])
    if _is_number(y):
        return _one(scalar, [x], value=_plain(y))
    return cast(Tensor, NotImplemented)


def _compared(op: str, x: Tensor, y: object) -> Tensor:
    if isinstance(y, Tensor):
        return _one(op, [x, y])
    if _is_number(y):
        return _one(op, [x, _one("full_like", [x], fill_value=_plain(y))])
    return cast(Tensor, NotImplemented)


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    match (x.ndim, y.ndim):
        case (2, 2):
            return _one("mm", [x, y])
        case (3, 3):
            return _one("bmm", [x, y])
        case _:
            return _one("matmul", [x, y])


def _over(op: str, x: Tensor, dims: int | Sequence[int] | None, keepdim: bool) -> Tensor:
    arguments: dict[str, Any] = {}
    if dims is not None:
        arguments["dims"] = [dims] if isinstance(dims, int) else list(dims)
    if keepdim:
        arguments["keepdim"] = True
    return _one(op, [x], **arguments)


def _indexed(x: Tensor, key: object) -> Tensor:
    keys = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (x.ndim - sum(k is not None for k in keys) + 1)
    dim = 0
    for one in keys:
        if one is None:
            x = _one("unsqueeze", [x], dim=dim)
            dim += 1
        elif isinstance(one, slice) and one.step in (None, 1):
            if dim >= x.ndim:
                raise _refused("program", f"too many indices for {x!r}, which has {counted(x.ndim, 'dim')}")
            start, stop, _ = one.indices(x.shape[dim])
            if (start, stop) != (0, x.shape[dim]):
                x = _one("narrow", [x], dim=dim, start=start, length=max(stop - start, 0))
            dim += 1
        elif isinstance(one, int):
            if dim >= x.ndim:
                raise _refused("program", f"too many indices for {x!r}, which has {counted(x.ndim, 'dim')}")
            x = _one("select", [x], dim=dim, index=one if one >= 0 else one + x.shape[dim])
        else:
            raise _refused("program", f"unsupported index {one!r}; use integers, slices without steps, None and ...")
    return x


class _Written(threading.local):
    """The functions that this thread is tracing, the innermost last."""

    def __init__(self) -> None:
        self.tapes: list[_Tape] = []


_WRITTEN = _Written()


def _current() -> _Tape:
    if not _WRITTEN.tapes:
        raise _refused("program", "an op without tensors is called outside a traced function")
    return _WRITTEN.tapes[-1]


def _tape_of(x: object) -> _Tape:
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor of a traced function, found {type(x).__qualname__}")
    return x._tape


def redistribute(x: Tensor, type: str) -> Tensor:
    """Redistributes a tensor to another type, such as `"S(0),R"` or `"S(0) on experts"`."""

    def write(graph: Graph, known: Mapping[str, str], wanted: list[str]) -> list[str]:
        name = wanted[0] if wanted and wanted[0] != "_" else f"m.{graph.values}"
        return [graph.redistribute(known[x._name], name, type)]

    tape = _tape_of(x)
    return Tensor(tape, tape.write(write)[0])


def constrain(x: Tensor, type: str) -> Tensor:
    """Constrains a tensor to a type: the result of its op is redistributed to that type."""

    def write(graph: Graph, known: Mapping[str, str], _: list[str]) -> list[str]:
        graph.constrain(known[x._name], type)
        return []

    _tape_of(x).write(write)
    return x


def strategy(x: Tensor, inputs: Sequence[str], outputs: Sequence[str]) -> Tensor:
    """Fixes the strategy of the op that makes a tensor: the types of the op's inputs and of its outputs."""

    def write(graph: Graph, known: Mapping[str, str], _: list[str]) -> list[str]:
        graph.strategy(known[x._name], list(inputs), list(outputs))
        return []

    _tape_of(x).write(write)
    return x


def gradient(loss: Tensor, wrt: Sequence[Tensor]) -> list[Tensor]:
    """Returns the gradients of the sum of a tensor's elements with respect to other tensors."""

    def write(graph: Graph, known: Mapping[str, str], wanted: list[str]) -> list[str]:
        of = [known[w._name] for w in wrt]
        chosen = wanted or ["_"] * len(of)
        names = [f"d{name}" if want == "_" else want for name, want in zip(of, chosen, strict=True)]
        names = [f"{n}.{graph.values}" if want == "_" and n in graph else n for n, want in zip(names, chosen, strict=True)]
        return graph.gradient(known[loss._name], of, names)

    tape = _tape_of(loss)
    for tensor in wrt:
        _tape_of(tensor)
    return [Tensor(tape, made) for made in tape.write(write)]


def shard_map(
    body: Callable[..., Any], axes: str | Sequence[str], in_specs: Sequence[tuple[Tensor, str]], out_specs: Sequence[str]
) -> list[Tensor]:
    """Runs `body(region, *values)` on every coordinate of some axes; it returns values of the declared types.

    The type of each input and output is `R`, `I`, `P` or `S(d)` for each axis. The body is called twice.
    """

    def write(graph: Graph, known: Mapping[str, str], wanted: list[str]) -> list[str]:
        made = graph.shard_map(axes, [(known[x._name], is_) for x, is_ in in_specs], list(out_specs), body)
        names = wanted or ["_"] * len(made)
        return [name if want == "_" else graph.apply("clone", [name], [want])[0] for name, want in zip(made, names, strict=True)]

    for pair in in_specs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"in_specs must be pairs of a tensor and its type, like [(x, 'S(0)')], not {type(pair).__qualname__}")
        _tape_of(pair[0])
    if len(in_specs) == 0:
        raise _refused("program", "in_specs is empty; give pairs of a tensor and its type, like [(x, 'S(0)')]")
    tape = in_specs[0][0]._tape
    return [Tensor(tape, made) for made in tape.write(write)]


def no_grad() -> None:
    """Makes all later statements of the traced function have no gradient."""

    def write(graph: Graph, _: Mapping[str, str], __: list[str]) -> list[str]:
        graph.no_grad()
        return []

    _current().write(write)


class Ops:
    """The ops of the table as functions: `reshard.ops.softmax(x, dim=1)`.

    Called with tensors of a traced function, they write statements. Called with arrays of NumPy, they compute
    at once.
    """

    __slots__ = ("_table",)

    def __init__(self, table: OpTable | None = None) -> None:
        self._table = OpTable() if table is None else table

    def __dir__(self) -> list[str]:
        return list(self._table.names)

    def __repr__(self) -> str:
        return f"<Ops of {self._table!r}>"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def op(*tensors: Any, **arguments: Any) -> Any:
            return self(name, *tensors, **arguments)

        op.__name__ = op.__qualname__ = name
        parameters = self._table.parameters(name)
        if parameters is not None:
            takes = ", ".join(f"{key}: {kind}" for key, kind in parameters.items())
            op.__doc__ = f"The op {name}; its arguments: {takes or 'none'}."
        return op

    def __call__(self, call: str, *tensors: Any, **arguments: Any) -> Any:
        """Calls an op by its text, such as `"mk,kn->mn"`; returns a tensor, or a tuple of several outputs."""
        listed = [one for each in tensors for one in (each if isinstance(each, (list, tuple)) else [each])]
        if any(isinstance(x, Tensor) for x in listed) or (not listed and _WRITTEN.tapes):
            others = [x for x in listed if not isinstance(x, Tensor)]
            if others:
                raise _refused(
                    "program",
                    f"{call} takes tensors, but {others[0]!r} is not one; give arguments by name, like {call}(x, {_example(self._table, call)})",
                )
            made = _call(call, listed, **arguments)
        else:
            made = list(_at_once(self._table, call, listed, arguments))
        return made[0] if len(made) == 1 else tuple(made)


def _example(table: OpTable, call: str) -> str:
    parameters = table.parameters(call) or {}
    return f"{next(iter(parameters), 'value')}=..)".rstrip(")")


def _at_once(table: OpTable, call: str, arrays: Sequence[Any], arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    from reshard._buffers import Refused, numbers
    from reshard._kernels import runner
    from reshard._reshard import local_call

    try:
        listed = [numbers(array) for array in arrays]
    except Refused as error:
        raise _refused(error.kind, f"{call} cannot read its array: {error}") from None
    for given, array in zip(arrays, listed):
        if array.dtype == object:
            raise TypeError(f"{call} takes arrays, or tensors of a traced function, not {type(given).__qualname__}")
    dtypes = [array.dtype for array in listed]
    return runner()(local_call(call, [array.shape for array in listed], dtypes, table, **arguments), listed)


ops = Ops()
"""The ops of the standard table."""


def _named(made: object, tape: _Tape) -> dict[str, str]:
    """Maps the tape's names of a function's results to their names in the program."""
    match made:
        case None:
            pairs: list[tuple[str, object]] = []
        case Tensor():
            pairs = [("out", made)]
        case Mapping():
            pairs = [(str(key), value) for key, value in made.items()]
        case tuple() | list():
            pairs = [(f"out{n}", value) for n, value in enumerate(made)]
        case _:
            raise _refused("program", f"the function returns {type(made).__name__}; return a tensor, or a tuple or dict of tensors")
    names: dict[str, str] = {}
    made_here = {name for step in tape.steps for name in step.makes}
    for name, value in pairs:
        if not isinstance(value, Tensor):
            raise _refused("program", f"the function returns {value!r} as {name}, which is not a tensor")
        if value._name == name:
            continue
        if value._name not in made_here:
            raise _refused("program", f"the function returns its input {value._name} as {name}: name it {value._name}")
        if value._name in names:
            raise _refused("program", f"the function returns one tensor as {names[value._name]} and as {name}: copy it for one of them")
        names[value._name] = name
    return names


def trace(
    function: Callable[..., Any],
    mesh: Mesh | str | Mapping[str, int],
    *,
    meshes: Mapping[str, Mesh | str | Mapping[str, int]] | None = None,
    table: OpTable | None = None,
    **inputs: tuple[Any, Sequence[int], str],
) -> Graph:
    """Traces a function with inputs of these element types, shapes and types, and returns its graph.

    A returned tensor is called `out`, those of a tuple `out0`, `out1`, and those of a dict by its keys, such
    as `{"w'": ops.sgd(w, dw)}`.
    """
    if not callable(function):
        raise TypeError(f"expected a function to trace, found {type(function).__name__}; use Graph.parse for a text")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        raise TypeError(f"cannot read the parameters of a {type(function).__qualname__}; give a Python function") from None
    if meshes is not None and not isinstance(meshes, Mapping):
        raise TypeError(f"meshes must be a mapping from names to meshes, not {type(meshes).__qualname__}")
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    missing = [p.name for p in parameters if p.name in positional and p.default is p.empty and p.name not in inputs]
    if missing:
        raise _refused("program", f"the parameter {missing[0]} has no type; give {missing[0]}=('f32', shape, 'S(0)')")
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in inputs:
            if name not in positional:
                raise _refused("program", f"the function has no parameter {name}; it takes {', '.join(positional)}")

    def empty() -> Graph:
        graph = Graph(mesh, table=table)
        for name, other in (meshes or {}).items():
            graph.add_mesh(name, other)
        for name, given in inputs.items():
            try:
                dtype, shape, is_ = given
            except (TypeError, ValueError):
                raise _refused("program", f"invalid input {name}={given!r}; give a dtype, a shape and a type, such as ('f32', (8, 16), 'S(0),R')") from None
            graph.input(name, dtype, list(shape), str(is_))
        return graph

    tape = _Tape(empty(), OpTable() if table is None else table)
    _WRITTEN.tapes.append(tape)
    try:
        made = function(**{name: Tensor(tape, name) for name in inputs})
    finally:
        _WRITTEN.tapes.pop()
        tape.finished = True
    graph = empty()
    tape.again(graph, _named(made, tape))
    return graph


def program(
    source: Callable[..., Any] | str | Graph,
    mesh: Mesh | str | Mapping[str, int] | None = None,
    *,
    meshes: Mapping[str, Mesh | str | Mapping[str, int]] | None = None,
    table: OpTable | None = None,
    solver: ShardingSolver | None = None,
    implicit_redistribution: str = "allow",
    topology: Any = None,
    **inputs: tuple[Any, Sequence[int], str],
) -> Program:
    """Returns the program of a function, a text or a graph; chooses missing types and checks given ones.

    `implicit_redistribution` selects those that are allowed: `"allow"` (all), `"local-only"` (only those without
    communication) or `"deny"` (none). `topology` is the network that determines costs. A `solver`
    replaces both.
    """
    if solver is None:
        solver = ShardingSolver(implicit_redistribution, topology)
    if isinstance(source, Graph):
        graph = source
    elif isinstance(source, str):
        graph = Graph.parse(source, table=table)
    elif mesh is None:
        raise _refused("program", "the program of a function needs a mesh, as in program(f, 'dp=2,tp=4', x=('f32', (8, 16), 'S(0),R'))")
    else:
        graph = trace(source, mesh, meshes=meshes, table=table, **inputs)
    return solver.solve(graph)


__all__ = ["Ops", "Tensor", "constrain", "gradient", "no_grad", "ops", "program", "redistribute", "shard_map", "strategy", "trace"]
