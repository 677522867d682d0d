"""Translation of a node of PyTorch's functional graph to statements of a program."""

import operator
from collections.abc import Mapping
from typing import Any

import torch

from reshard import DType, Graph, OpTable
from reshard._refusals import counted, refused, said

from reshard.torch.overloads import Argument, Use, arguments, by_name, is_default, op_of, taken, value_of, with_defaults, with_number
from reshard.torch.version import OpOverload

# Ops without a result.
_IGNORED = {"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range"}
# Ops that return their operand. `detach` is not one of them, since it has no gradient.
_SAME = {"clone", "contiguous", "alias", "lift_fresh_copy"}
# Factories with a tensor's shape, by the factory of a given shape.
_LIKE = {"ones_like": "ones", "zeros_like": "zeros", "full_like": "full"}
# Ops whose operands PyTorch converts to the element type of the result.
_PROMOTING = {
    "add", "sub", "mul", "div", "pow", "maximum", "minimum", "where", "atan2", "hypot", "fmod", "remainder", "lerp", "addcmul", "addcdiv",
    "cat", "stack", "add_scalar", "sub_scalar", "mul_scalar", "div_scalar", "pow_scalar",
}  # fmt: skip

# Numbers that become elements of the result, converted by PyTorch to its element type.
_FILLING = {
    ("full", "fill_value"), ("full_like", "fill_value"), ("fill", "value"), ("masked_fill", "value"), ("pad", "value"), ("scatter", "value"),
    ("index_fill", "value"), ("threshold", "value"), ("constant_pad_nd", "value"), ("hardtanh", "min_val"), ("hardtanh", "max_val"),
}  # fmt: skip
# Ops that add a product to their first operand and ignore that operand if `beta` is 0. For integers both
# factors are elements.
_ADDING = {"addmm", "addmv", "addr", "baddbmm", "addbmm"}
# Ops with other semantics in the table than in PyTorch, and the difference.
_OTHERS = {"multilabel_margin_loss": "takes class numbers, up to the first -1, but the table's op takes a truth value for each class"}
# Ops whose sums are of numbers; on truth values, PyTorch's ops return whether any is true, or whether two
# differ.
_SUMS = {*_ADDING, "scatter_add", "index_add", "diff"}
# Ops with a division, after which PyTorch rounds integers.
_MEANS = {"avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}
# Ops that PyTorch also has for truth values, where the table has another op: the sum of two is whether it is
# not 0.
_OF_TRUTH = {"add": "logical_or", "bitwise_not": "logical_not"}

Names = Mapping[Any, Any]


def lower(graph: Graph, table: OpTable, node: torch.fx.Node, names: Names) -> Any:
    """Writes the statements of a node; returns the name of its result, a list for several, None for none.

    Errors: `ReshardError` for an op or an argument that is missing in the table, and for a table op with
    another shape or element type.
    """
    target: Any = node.target
    if target is operator.getitem:
        return names[node.args[0]][node.args[1]]
    if not isinstance(target, OpOverload):
        raise refused("program", f"{target} is not an op of PyTorch, and programs have only those")
    if op_of(target) in _IGNORED:
        return None
    made = _Call(graph, table, node, names).lowered()
    _compare(graph, node, made)
    return made


def _compare(graph: Graph, node: torch.fx.Node, made: Any) -> None:
    """Rejects a result whose shape or element type differs from PyTorch's."""
    meant = node.meta["val"]
    wanted = list(meant) if isinstance(meant, list | tuple) else [meant]
    found = made if isinstance(made, list) else [made]
    if len(wanted) != len(found):
        raise refused("program", f"{node.target} returns {counted(len(wanted), 'value')}, but the op of the table returns {len(found)}")
    for name, value in zip(found, wanted, strict=True):
        if value is None:
            continue
        ours = f"{graph.dtype(name)}{list(graph.shape(name))}"
        theirs = f"{DType(value.dtype)}{list(value.shape)}"
        if ours != theirs:
            raise refused("program", f"{node.target} returns {theirs}, but the op of the table returns {ours}; cast the operands before it")


class _Call:
    """A call of an overload, with its arguments by name."""

    def __init__(self, graph: Graph, table: OpTable, node: torch.fx.Node, names: Names) -> None:
        self.graph, self.table, self.node, self.names = graph, table, node, names
        self.target: Any = node.target
        self.given = with_defaults(self.target, node.args, node.kwargs)
        number = with_number(self.target, self.given)
        self.op = op_of(self.target) if number is None else number
        if self.makes_truth():
            self.op = _OF_TRUTH.get(self.op, self.op)
        self.parameters = table.parameters(self.op) or {}
        self.uses = arguments(self.target, self.op, self.parameters)
        # The name of the rows of attention that attend to nothing, if there is a mask of truth values.
        self.nothing: str | None = None

    def makes_truth(self) -> bool:
        """Returns True if the result has truth values."""
        value = self.node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.dtype is torch.bool

    def lowered(self) -> Any:
        op, given = self.op, self.given
        if op == "dropout" and given["train"] is False:
            return self.names[given["input"]]
        if op in _SAME:
            return self.names[next(iter(given.values()))]
        if op == "copy":
            self.check_rest()
            return self.like(self.names[given["src"]])
        if op in ("fill", "zero"):
            return self.fill(given.get("value", 0))
        if op == "cast":
            self.check_rest()
            return self.cast(self.names[given["self"]], self.node.meta["val"].dtype)
        if op in _LIKE:
            return self.made_like()
        if op not in self.table:
            raise refused("program", f"{self.target} is not an op of the table")
        if op == "rrelu" and self.given["training"] is False:
            # In evaluation the slope is not random.
            slope = (self.given["lower"] + self.given["upper"]) / 2
            return self.graph.apply("leaky_relu", self.operands(), negative_slope=slope)[0]
        self.check_meaning()
        chosen = self.arguments()
        taken = self.operands()
        if op in _ADDING and self.given["beta"] == 0:
            taken[0] = self.ignored(taken[0])
        made = self.graph.apply(op, taken, **chosen)
        if self.nothing is not None:
            made = self.graph.apply("masked_fill", [made[0], self.nothing], value=0)
        value = self.node.meta.get("val")
        if isinstance(value, list | tuple):
            return made
        if any(use.use is Use.ELEMENTS for use in self.uses.values()):
            self.graph.set_dtype(made[0], value.dtype)
        return made[0] if len(made) == 1 else made

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of the table's op, with PyTorch's default if it differs from the table's."""
        chosen: dict[str, Any] = {}
        written = by_name(self.target, self.node.args, self.node.kwargs)
        for key, value in taken(self.op, self.given, self.uses).items():
            use = self.uses[key]
            if key in written or not is_default(use, value, self.parameters):
                chosen[use.called] = self.value(use, value)
        self.check_rest()
        return chosen

    def value(self, use: Argument, value: Any) -> Any:
        shape = self.node.meta["val"].shape if isinstance(self.node.meta.get("val"), torch.Tensor) else ()
        if use.called == "shape":
            # The table's shape does not contain -1.
            return list(shape)
        if self.op in ("slice", "slice_scatter") and use.called in ("start", "end"):
            whole = self.whole()
            return min(max(value + whole if value < 0 else value, 0), whole)
        if self.op in ("select", "select_scatter") and use.called == "index":
            return value + self.whole() if value < 0 else value
        if any(isinstance(one, torch.fx.Node) for one in (value if isinstance(value, list | tuple) else [value])):
            raise refused("program", f"{self.target} has {use.name}={value}, a computed number, but programs take only constants")
        if (self.op, use.name) in _FILLING or (self.op in _ADDING and not self.node.meta["val"].dtype.is_floating_point):
            value = self.element(value)
        return value_of(use, value, self.parameters)

    def element(self, value: Any) -> Any:
        """Converts a number to an element of the result, as PyTorch does: towards zero for integers.

        Errors: `ReshardError` for a number that the element type does not have.
        """
        of = self.node.meta["val"]
        dtype = of.dtype
        if isinstance(value, torch.fx.Node):
            raise refused("program", f"{self.target} takes {value}, a computed number, but programs take only constants")
        try:
            # Use two elements where possible: PyTorch does not check the range of narrow types for a single
            # element.
            element = torch.full((min(max(of.numel(), 1), 2),), value, dtype=dtype)[0].item()
        except (RuntimeError, OverflowError) as error:
            raise refused("program", f"{self.target} fills elements of {DType(dtype)} with {value}, which PyTorch rejects: {said(error)}") from error
        # A floating-point number stays as it is written; PyTorch rounds it.
        made = value if dtype.is_floating_point else element
        return int(made) if isinstance(made, bool) else made

    def whole(self) -> int:
        """Returns the extent of the dim that is sliced."""
        name = self.names[self.given["self"]]
        return self.graph.shape(name)[self.given["dim"]]

    def check_meaning(self) -> None:
        """Rejects an op whose semantics differ in the table, in general or for its element type."""
        value = self.node.meta.get("val")
        why = _OTHERS.get(self.op)
        if isinstance(value, torch.Tensor) and not value.dtype.is_floating_point:
            adds = self.op in _SUMS or self.given.get("reduce") == "sum" or self.op == "index_put" and self.given.get("accumulate")
            if value.dtype is torch.bool and adds:
                why = f"returns truth values, but {self.op} of the table would count"
            elif self.op in _MEANS or self.given.get("reduce") == "mean":
                why = f"rounds a mean of integers, but {self.op} of the table does not; cast to a floating-point type before it"
        if self.op == "logit" and (self.given.get("eps") or 0) > 0.5:
            why = f"has eps={self.given['eps']}; eps must be at most 0.5, so that eps <= 1 - eps"
        if why is not None:
            raise refused("program", f"{self.target} {why}")

    def check_rest(self) -> None:
        """Rejects arguments without a known use."""
        defaults = {one.name: one.default_value for one in self.target._schema.arguments if one.has_default_value()}
        for key, value in self.given.items():
            if key == "layout" and value is torch.strided:
                continue
            if self.uses[key].use is Use.REJECTED and not (key in defaults and value == defaults[key]):
                raise refused("program", f"{self.target} has the argument {key}={value}, which {self.op} of the table does not have")

    def operands(self) -> list[str]:
        """Returns the names of the operands, in the element types that the op computes with."""
        taken: list[str] = []
        absent = None
        for key, value in self.given.items():
            if self.uses[key].use is not Use.OPERAND:
                continue
            if value is None:
                absent = key
                continue
            nodes = value if isinstance(value, list | tuple) else [value]
            if absent is not None and nodes:
                # Operands have no names: the next one would be taken for the missing one.
                raise refused("program", f"{self.target} has {key} without {absent}, but {self.op} of the table takes them in order")
            for one in nodes:
                if not isinstance(one, torch.fx.Node):
                    raise refused("program", f"{self.target} has {key}={value}, but {self.op} of the table takes tensors")
                taken.append(self.mask(self.names[one]) if key == "attn_mask" else self.names[one])
        value = self.node.meta.get("val")
        casts = any(use.use is Use.CAST and self.given.get(use.name) for use in self.uses.values())
        if isinstance(value, torch.Tensor) and (casts or self.op in _PROMOTING):
            from_ = 1 if self.op == "where" else 0
            taken[from_:] = [self.promoted(name, value.dtype, casts) for name in taken[from_:]]
        return taken

    def promoted(self, name: str, dtype: torch.dtype, asked: bool) -> str:
        """Casts an operand to a floating-point result type; to an integer type only on request."""
        return self.cast(name, dtype) if dtype.is_floating_point or (asked and not self.is_counted(name, dtype)) else name

    def is_counted(self, name: str, dtype: torch.dtype) -> bool:
        """Returns True if truth values are counted, which the ops do without a cast."""
        return dtype == torch.int64 and str(self.graph.dtype(name)) == "bool"

    def cast(self, name: str, dtype: torch.dtype) -> str:
        """Casts a value to an element type."""
        wanted = DType(dtype)
        if self.graph.dtype(name) == wanted:
            return name
        if not dtype.is_floating_point:
            raise refused("program", f"{self.target} casts {self.graph.dtype(name)} to {wanted}, but programs cast only to floating-point types")
        return self.graph.apply("cast", [name], dtype=str(wanted))[0]

    def like(self, name: str) -> str:
        """Converts a value to the shape and the element type of the result."""
        value = self.node.meta["val"]
        made = self.cast(name, value.dtype)
        shape = list(value.shape)
        return made if list(self.graph.shape(made)) == shape else self.graph.apply("expand", [made], shape=shape)[0]

    def filled(self, op: str, shape: list[int], dtype: torch.dtype | DType, **chosen: Any) -> str:
        made = self.graph.apply(op, [], shape=shape, **chosen)[0]
        self.graph.set_dtype(made, DType(dtype))
        return made

    def ignored(self, name: str) -> str:
        """Returns zeros in place of a value that may be NaN, with gradient 0."""
        everywhere = self.filled("ones", list(self.graph.shape(name)), torch.bool)
        return self.graph.apply("masked_fill", [name, everywhere], value=0)[0]

    def fill(self, value: Any) -> str:
        """Returns a tensor that is overwritten by one number."""
        if isinstance(value, torch.fx.Node):
            return self.like(self.names[value])
        made = self.node.meta["val"]
        return self.filled("full", list(made.shape), made.dtype, fill_value=self.element(value))

    def made_like(self) -> str:
        self.check_rest()
        value = self.node.meta["val"]
        chosen = {"fill_value": self.element(self.given["fill_value"])} if self.op == "full_like" else {}
        if self.graph.dtype(self.names[self.given["self"]]) == DType(value.dtype):
            return self.graph.apply(self.op, [self.names[self.given["self"]]], **chosen)[0]
        return self.filled(_LIKE[self.op], list(value.shape), value.dtype, **chosen)

    def mask(self, name: str) -> str:
        """Converts an attention mask to numbers to add: 0 for attended elements, else minus infinity.

        A row that attends to nothing is zero in PyTorch, while a softmax of minus infinity alone is NaN, and
        so are its gradients. Here such a row attends to all elements, and its result is overwritten by zeros.
        """
        if str(self.graph.dtype(name)) != "bool":
            return name
        ignored = self.graph.apply("logical_not", [name])[0]
        attends = self.graph.apply("any", [name], dims=[-1], keepdim=True)[0]
        self.nothing = self.graph.apply("logical_not", [attends])[0]
        hidden = self.graph.apply("logical_xor", [ignored, self.nothing])[0]
        zeros = self.filled("zeros", list(self.graph.shape(name)), self.node.meta["val"].dtype)
        return self.graph.apply("masked_fill", [zeros, hidden], value="-inf")[0]
