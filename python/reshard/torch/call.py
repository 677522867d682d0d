"""A call of an overload of PyTorch, as statements of a program."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from reshard import DType, ReshardError
from reshard._refusals import refused, said

from reshard.torch.forms import FORMS
from reshard.torch.indexing import KEEPS_SHAPE
from reshard.torch.lowering import Lowering
from reshard.torch.overloads import CASTING, CASTS, Argument, Use, arguments, by_name, is_default, op_of, taken, value_of, with_defaults, with_number

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


class Given(dict[str, Any]):
    """The arguments of a call by name, and which of them were read."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


class Call:
    """A call of an overload, with its arguments by name."""

    def __init__(self, lowering: Lowering, node: torch.fx.Node) -> None:
        self.lowering, self.graph, self.table, self.node = lowering, lowering.graph, lowering.table, node
        self.target: Any = node.target
        self.given = Given(with_defaults(self.target, node.args, node.kwargs))
        number = with_number(self.target, self.given)
        self.op = op_of(self.target) if number is None else number
        if self.makes_truth():
            self.op = _OF_TRUTH.get(self.op, self.op)
        self.parameters = self.table.parameters(self.op) or {}
        self.uses = arguments(self.target, self.op, self.parameters)
        # The name of the rows of attention that attend to nothing, if there is a mask of truth values.
        self.nothing: str | None = None

    @property
    def result(self) -> Any:
        """The tensor that PyTorch returns, without elements."""
        return self.node.meta["val"]

    def makes_truth(self) -> bool:
        """Returns True if the result has truth values."""
        value = self.node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.dtype is torch.bool

    def rejected(self, why: str) -> ReshardError:
        """Returns the error of an overload that cannot be a part of a program."""
        return refused("program", f"{self.target} {why}")

    def operand(self, key: str) -> str:
        """Returns the name of a tensor argument."""
        given = self.given[key]
        if not isinstance(given, torch.fx.Node):
            raise self.rejected(f"has {key}={given}, but {self.op} of the table takes a tensor")
        name: str = self.lowering.name(given)
        return name

    def maybe(self, key: str) -> str | None:
        """Returns the name of a tensor argument that may be missing."""
        return None if self.given.get(key) is None else self.operand(key)

    def call(self, op: str, operands: Sequence[str], **arguments: Any) -> str:
        """Applies an op of the table; returns the name of its first result."""
        return self.graph.apply(op, list(operands), **arguments)[0]

    def lowered(self) -> Any:
        op, given = self.op, self.given
        form = FORMS.get(op_of(self.target))
        if form is not None:
            made = form(self)
            self.check_read()
            return made
        self.check_shape()
        if op in _SAME:
            return self.lowering.name(next(iter(given.values())))
        if op == "copy":
            self.check_rest()
            return self.like(self.operand("src"))
        if op in ("fill", "zero"):
            return self.fill(given.get("value", 0))
        if op == "cast":
            self.check_rest()
            return self.cast(self.operand(next(iter(given))), self.result.dtype)
        if op in _LIKE:
            return self.made_like()
        return self.of_table()

    def check_shape(self) -> None:
        """Rejects results whose shapes depend on elements."""
        made = self.node.meta.get("val")
        for one in made if isinstance(made, list | tuple) else [made]:
            if isinstance(one, torch.Tensor) and not all(type(extent) is int for extent in one.shape):
                raise self.rejected(f"has a result whose shape depends on data; {KEEPS_SHAPE}")

    def of_table(self) -> Any:
        """Applies the op of the table with this name."""
        op = self.op
        if op not in self.table:
            raise self.rejected("is not an op of the table")
        self.follow_result()
        if op == "rrelu" and self.given["training"] is False:
            # In evaluation the slope is not random.
            slope = (self.given["lower"] + self.given["upper"]) / 2
            return self.call("leaky_relu", self.operands(), negative_slope=slope)
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
        name = self.operand("self")
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

    def follow_result(self) -> None:
        """Marks all arguments as used, for a form that takes the shape and the type of PyTorch's result."""
        self.given.read.update(self.given)

    def check_read(self) -> None:
        """Rejects arguments that a form did not read, unless they are the default or change nothing."""
        defaults = {one.name: one.default_value for one in self.target._schema.arguments if one.has_default_value()}
        for key, value in self.given.items():
            is_default = key in defaults and value == defaults[key] or value is None or (key == "layout" and value is torch.strided)
            if key not in self.given.read and self.uses[key].use is not Use.LEFT_OUT and not is_default:
                raise self.rejected(f"has the argument {key}={value}, which {self.op} of a program does not have")

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
                if isinstance(one, int | float):
                    taken.append(self.number(one, self.computed_in()))
                    continue
                if not isinstance(one, torch.fx.Node):
                    raise self.rejected(f"has {key}={value}, but {self.op} of the table takes tensors")
                taken.append(self.mask(one) if key == "attn_mask" else self.lowering.name(one))
        if any(isinstance(value, int | float) for key, value in self.given.items() if self.uses[key].use is Use.OPERAND):
            # PyTorch computes with a number in the type that the tensors and the kind of the number decide.
            from_ = 1 if self.op == "where" else 0
            taken[from_:] = [self.cast(name, self.computed_in()) for name in taken[from_:]]
        value = self.node.meta.get("val")
        casts = any(use.use is Use.CAST and self.given.get(use.name) for use in self.uses.values())
        if isinstance(value, torch.Tensor) and (casts or self.op in _PROMOTING or self.op in CASTING):
            from_ = 1 if self.op == "where" else 0
            taken[from_:] = [self.promoted(name, value.dtype, casts) for name in taken[from_:]]
            if self.op in CASTING:
                # Sums of narrow integers are wide.
                taken = [name if self.is_counted(name, value.dtype) else self.cast(name, value.dtype) for name in taken]
        return taken

    def computed_in(self) -> torch.dtype:
        """Returns the element type that PyTorch computes in, for tensors and a number."""
        if self.op == "where":
            dtype: torch.dtype = self.result.dtype
            return dtype
        known = [
            value.meta["val"] if isinstance(value, torch.fx.Node) else value
            for key, value in self.given.items()
            if self.uses[key].use is Use.OPERAND and value is not None
        ]
        return torch.result_type(*known) if len(known) == 2 else self.result.dtype

    def number(self, number: float, dtype: torch.dtype) -> str:
        """Returns a tensor without dims that is a number."""
        return self.filled("full", [], dtype, fill_value=int(number) if isinstance(number, bool) else number)

    def promoted(self, name: str, dtype: torch.dtype, asked: bool) -> str:
        """Casts an operand to a floating-point result type; to an integer type only if `dtype=` is given."""
        return self.cast(name, dtype) if dtype.is_floating_point or (asked and not self.is_counted(name, dtype)) else name

    def is_counted(self, name: str, dtype: torch.dtype) -> bool:
        """Returns True if truth values are counted, which the ops do without a cast."""
        return dtype == torch.int64 and str(self.graph.dtype(name)) == "bool"

    def cast(self, name: str, dtype: torch.dtype) -> str:
        """Casts a value to an element type."""
        wanted = DType(dtype)
        if self.graph.dtype(name) == wanted:
            return name
        if str(wanted) not in CASTS:
            raise self.rejected(f"casts {self.graph.dtype(name)} to {wanted}, but programs cast only to {', '.join(CASTS)}")
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
            return self.like(self.lowering.name(value))
        made = self.node.meta["val"]
        return self.filled("full", list(made.shape), made.dtype, fill_value=self.element(value))

    def made_like(self) -> str:
        self.check_rest()
        value = self.node.meta["val"]
        chosen = {"fill_value": self.element(self.given["fill_value"])} if self.op == "full_like" else {}
        # Without an operand, a constant is not made an input for its shape alone.
        is_constant = self.given["self"] in self.lowering.folded
        if not is_constant and self.graph.dtype(self.operand("self")) == DType(value.dtype):
            return self.graph.apply(self.op, [self.operand("self")], **chosen)[0]
        return self.filled(_LIKE[self.op], list(value.shape), value.dtype, **chosen)

    def mask(self, node: torch.fx.Node) -> str:
        """Converts an attention mask to numbers to add: 0 for attended elements, else minus infinity.

        A row that attends to nothing is zero in PyTorch, while a softmax of minus infinity alone is NaN, and
        so are its gradients. Here such a row attends to all elements, and its result is overwritten by zeros.
        """
        if node.meta["val"].dtype is not torch.bool:
            return self.cast(self.lowering.name(node), self.result.dtype)
        known = self.lowering.known(node)
        if known is not None and known.any(-1).all():
            added = torch.zeros_like(known, dtype=self.result.dtype).masked_fill(~known, float("-inf"))
            return self.lowering.constant(f"{node.name}_added", added)
        name = self.lowering.name(node)
        ignored = self.call("logical_not", [name])
        attends = self.call("any", [name], dims=[-1], keepdim=True)
        self.nothing = self.call("logical_not", [attends])
        hidden = self.call("logical_xor", [ignored, self.nothing])
        zeros = self.filled("zeros", list(self.graph.shape(name)), self.result.dtype)
        return self.call("masked_fill", [zeros, hidden], value="-inf")
