"""A program that `check` makes equals PyTorch in values and element types, or the function is rejected."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from reshard import ReshardError, OpTable
from reshard.torch import check
from reshard.torch.kernels import torch_dtype
from reshard.torch.overloads import Use, arguments, op_of, with_number


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def compared(function: Callable[..., Any], *inputs: torch.Tensor, ranks: bool = False) -> None:
    """Compares a function's outputs with its program's, in order: values, shapes and element types."""
    copies = [one.clone() for one in inputs]
    results = function(*copies)
    wanted = list(results) if isinstance(results, list | tuple) else [results]
    checked = check(Function(function), inputs, "x=2", {"*": "R"})
    arrays = {f"inputs_{n}": numpy(one) for n, one in enumerate(inputs)}
    arrays |= {name: numpy(one) for name, one in checked.constants.items()}
    program = checked.program
    names = checked.results
    assert len(names) == len(wanted)
    runs = [program.on_one_device(arrays, kernels="reference"), program.on_one_device(arrays, kernels="numpy")]
    for n, value in zip(names, wanted, strict=True):
        assert torch_dtype(program[n].dtype.name) == value.dtype, f"{n} is {program[n].dtype.name}, and PyTorch's {value.dtype}"
        tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(value.dtype, 1e-5)
        for run in runs:
            np.testing.assert_allclose(np.asarray(run[n], dtype=np.float64), value.double().numpy(), rtol=tolerance, atol=tolerance, err_msg=str(program))
    if ranks:
        whole = program.on_ranks(arrays, kernels="reference")
        for n, value in zip(names, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(whole.whole(n), dtype=np.float64), value.double().numpy(), rtol=1e-5, atol=1e-5)


def numpy(tensor: torch.Tensor) -> Any:
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def shifted(x: torch.Tensor) -> torch.Tensor:
    y = x * 1.0
    y[:, 1:].copy_(x[:, :-1])
    return y + 1


def in_a_row(x: torch.Tensor) -> torch.Tensor:
    y = x * 1.0
    y[0].relu_()
    return y


def filled(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1].fill_(3.0)
    y[:, 0].zero_()
    return y


def of_another_type(x: torch.Tensor) -> torch.Tensor:
    y = x.double()
    y[1:3].copy_(x[0])
    return y


def through_two_views(x: torch.Tensor) -> torch.Tensor:
    y = x * 1.0
    view = y.view(16)
    view[2:9].mul_(3)
    y.t()[1].add_(view[:4].clone())
    return y + view.view(4, 4)


def of_steps(x: torch.Tensor) -> torch.Tensor:
    y = x * 1.0
    y[::2].neg_()
    y[-1].exp_()
    return y


WRITTEN = [shifted, in_a_row, filled, of_another_type, through_two_views, of_steps]


@pytest.mark.parametrize("function", WRITTEN, ids=lambda one: one.__name__)
def test_writes_through_views_are_not_lost(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    compared(function, torch.randn(4, 4), ranks=True)


def test_an_input_that_is_written_to_is_a_value_of_the_program() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    checked = check(Function(lambda x: x[1:].add_(1).sum()), [x], "x=2", {"*": "S(0)"})
    after = x.clone()
    after[1:] += 1
    made = checked.program.on_one_device({"inputs_0": x.numpy()}, kernels="reference")
    np.testing.assert_allclose(made["inputs_0'"], after.numpy())
    assert str(checked.program["inputs_0'"].sharding) == str(checked.program["inputs_0"].sharding)


def attended(mask: torch.Tensor, **options: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 4, 8) for _ in range(3))
    return lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options), [q, k, v, mask]


@pytest.mark.parametrize("shape", [(4, 4), (2, 1, 4, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=str)
def test_a_mask_of_truth_values_says_who_attends(shape: Sequence[int], dtype: torch.dtype) -> None:
    mask = torch.ones(shape, dtype=torch.bool).tril().to(dtype)
    function, inputs = attended(mask, scale=0.3)
    compared(function, *inputs, ranks=True)


# Functions that compute in a given type.
TYPED: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: F.softmax(x, -1, dtype=torch.float32),
    lambda x: F.log_softmax(x, 0, dtype=torch.float64),
    lambda x: x.sum(dtype=torch.float64),
    lambda x: x.sum(1, dtype=torch.float32),
    lambda x: x.mean(dtype=torch.float32),
    lambda x: x.mean(0, keepdim=True, dtype=torch.float64),
    lambda x: x.cumsum(0, dtype=torch.float64),
    lambda x: x.prod(0, dtype=torch.float64),
    lambda x: x.cumprod(0, dtype=torch.float64),
    lambda x: x.nansum(0, dtype=torch.float64),
    lambda x: x.to(torch.float32) + 1,
    lambda x: x * x.amax().to(torch.float64),
    lambda x: x.float() + x.double(),
    lambda x: torch.zeros_like(x, dtype=torch.int32),
    lambda x: torch.ones_like(x, dtype=torch.bool),
    lambda x: torch.full_like(x, 3, dtype=torch.float64),
    torch.zeros_like,
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool], ids=str)
def test_a_type_that_is_given_is_that_of_the_result(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    compared(lambda x: [function(x) for function in TYPED], (torch.randn(4, 6) * 1.5).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_factories_make_the_type_that_is_given(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> Any:
        made = [torch.ones(3, dtype=dtype), torch.zeros((2, 3), dtype=dtype), torch.full((4,), 1, dtype=dtype)]
        return [*made, *([] if dtype is torch.bool else [torch.arange(5, dtype=dtype), torch.eye(3, dtype=dtype)]), x + 1]

    compared(function, torch.randn(4))


def test_where_makes_what_it_chooses_from() -> None:
    torch.manual_seed(0)
    condition = torch.rand(4, 6) > 0.5
    types = (torch.int64, torch.int32, torch.bool, torch.float32, torch.float64, torch.bfloat16)
    operands = [(torch.randn(4, 6) * 5).to(dtype) for dtype in types for _ in range(2)]

    def function(condition: torch.Tensor, *operands: torch.Tensor) -> list[torch.Tensor]:
        pairs = zip(operands[::2], operands[1::2], strict=True)
        return [*(torch.where(condition, *pair) for pair in pairs), torch.where(condition, operands[6], operands[8])]

    compared(function, condition, *operands)


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_a_cast_to_integers_is_towards_zero_and_one_to_booleans_is_of_what_is_not_zero(dtype: torch.dtype) -> None:
    x = torch.tensor([-2.7, -1.0, -0.5, 0.0, 0.3, 1.0, 2.5, 100.75]).to(dtype)
    # Negative numbers as unsigned bytes are undefined in PyTorch.
    compared(lambda x, y: [(y if one is torch.uint8 else x).to(one) for one in INTEGERS], x, x[3:].clone(), ranks=True)
    compared(lambda x: [x.sum(dtype=torch.int64), x.cumsum(0, dtype=torch.int32)], x)
    compared(lambda x: [x.to(one) for one in INTEGERS], torch.tensor([-300, -1, 0, 3, 255, 256, 70000, 2**40]))


def test_a_cast_to_a_type_that_programs_do_not_have_is_rejected() -> None:
    with pytest.raises(ReshardError, match="casts f32 to u16, but programs cast only to f64, f32"):
        check(Function(lambda x: x.to(torch.uint16)), [torch.randn(4)], "x=2", {})


@pytest.mark.parametrize("name", ["relu", "_assert_scalar", "sum"])
def test_an_op_of_another_library_is_not_the_one_of_its_name(name: str) -> None:
    with torch.library._scoped_library("elsewhere", "FRAGMENT") as library:
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl(name, torch.empty_like, "Meta")
        op = getattr(torch.ops.elsewhere, name)
        with pytest.raises(ReshardError, match=rf"elsewhere\.{name}\.default is an op of elsewhere, but programs have only ops of aten and prims") as error:
            check(Function(lambda x: op(x) + 1), [torch.randn(4)], "x=2", {})
        assert error.value.kind == "program"


def test_an_op_of_another_library_is_that_of_the_given_table() -> None:
    with torch.library._scoped_library("elsewhere", "FRAGMENT") as library:
        library.define("glu_of(Tensor x, Tensor y) -> Tensor")
        library.impl("glu_of", lambda x, y: torch.relu(x) * y, "CompositeExplicitAutograd")
        library.impl("glu_of", lambda x, y: torch.empty_like(x), "Meta")
        table = OpTable.standard()
        table.add_composite("glu_of", "x, y -> z: a = relu(x); z = mul(a, y)")
        function = Function(lambda x, y: torch.ops.elsewhere.glu_of(x, y) + 1)
        given = [torch.randn(4, 4), torch.randn(4, 4)]
        assert "relu" in str(check(function, given, "x=2", {}, table=table).program)
        with pytest.raises(ReshardError, match="glu_of"):
            check(function, given, "x=2", {})


def test_an_op_of_prims_is_that_of_aten() -> None:
    compared(lambda x: torch.ops.prims.exp(torch.ops.prims.mul(x, x)), torch.randn(4))


DIMS = (
    "sum", "nansum", "mean", "amax", "amin", "var", "std", "var_mean", "std_mean", "count_nonzero", "any", "all", "flip", "squeeze", "norm", "linalg.vector_norm",
)  # fmt: skip


@pytest.mark.parametrize("name", DIMS)
@pytest.mark.parametrize("dims", [(), [0], [1, 0]], ids=str)
def test_no_dims_are_what_pytorch_takes_them_for(name: str, dims: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 1, 4)
    x[0] = 0
    function = torch.linalg.vector_norm if name == "linalg.vector_norm" else getattr(torch, name)
    compared(lambda x: function(x, dims) if name == "flip" else function(x, dim=dims), x)


def test_without_dims_a_roll_is_of_all_elements_in_a_row() -> None:
    compared(lambda x: torch.roll(x, 2, ()), torch.arange(6.0).reshape(2, 3))


# Functions that fill a tensor with a number; other ones fail in PyTorch too.
FILLS: list[Callable[[torch.Tensor, Any], torch.Tensor]] = [
    lambda x, number: torch.full((2,), number, dtype=x.dtype),
    lambda x, number: torch.full_like(x, number),
    lambda x, number: torch.full_like(x.float(), number, dtype=x.dtype),
    lambda x, number: (x + x).fill_(number),
    lambda x, number: x.masked_fill(x == torch.ones_like(x), number),
    lambda x, number: F.pad(x, (1, 2), value=number),
]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool, torch.float32, torch.float16], ids=str)
def test_a_number_that_fills_is_what_pytorch_makes_of_it(dtype: torch.dtype) -> None:
    x, accepted = torch.arange(4).to(dtype), []
    for number in (2.7, -2.7, 0.5, 3, -1, 300, 70000, 1e39, True, False):
        for fill in FILLS:
            try:
                fill(x.clone(), number)
                accepted.append((fill, number))
            except RuntimeError:
                if fill in (FILLS[0], FILLS[4]):
                    with pytest.raises(ReshardError, match="(?i)overflow"):
                        check(Function(lambda x, fill=fill, number=number: fill(x, number)), [x], "x=2", {})
    compared(lambda x: [fill(x, number) for fill, number in accepted], x)
    assert len(accepted) > 30


class Several(torch.nn.Module):
    """A module that returns tensors, numbers and other values."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.tensor([1.0, 2.0])

    def forward(self, x: torch.Tensor) -> Any:
        return None, x.sum(), 3, {"one": torch.tensor([4, 5]) + 1, "two": "text"}, x, self.table


def test_all_that_forward_returns_is_there() -> None:
    x = torch.arange(4.0)
    checked = check(Several(), [x], "x=2", {"x": "S(0)"})
    assert checked.others == {0: None, 2: 3, 4: "text"}
    assert "result 2 is not a tensor: 3" in str(checked)
    constants = {name: tensor.numpy() for name, tensor in checked.constants.items()}
    assert set(checked.program.inputs) == {"x", *constants}
    made = checked.program.on_one_device({"x": x.numpy(), **constants})
    for name, value in zip(checked.results, (6.0, [5, 6], x, [1.0, 2.0]), strict=True):
        np.testing.assert_array_equal(made[name], value)


def test_a_gradient_is_of_the_first_tensor_that_is_returned() -> None:
    class Returns(torch.nn.Module):
        def __init__(self, loss: bool) -> None:
            super().__init__()
            self.weight, self.loss = torch.nn.Parameter(torch.ones(4)), loss

        def forward(self, x: torch.Tensor) -> Any:
            return (None, (x * self.weight).sum()) if self.loss else (None, 3)

    assert check(Returns(True), [torch.ones(4)], "x=2", {}, gradient=True).report.has_explicit_backward
    with pytest.raises(ReshardError, match="it returns no tensor"):
        check(Returns(False), [torch.ones(4)], "x=2", {}, gradient=True)


def raising(x: torch.Tensor) -> torch.Tensor:
    raise ZeroDivisionError("on purpose")


def deciding(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(("function", "inputs", "says"), [(raising, 1, "on purpose"), (deciding, 1, "data-dependent"), (torch.relu, 2, "TypeError")])
def test_what_export_refuses_is_said_by_one_error(function: Callable[..., Any], inputs: int, says: str) -> None:
    with pytest.raises(ReshardError, match=f"torch.export cannot export Function: .*{says}") as error:
        check(Function(function), [torch.ones(4)] * inputs, "x=2", {})
    assert error.value.kind == "program" and error.value.__cause__ is not None and "\n" not in str(error.value)


def test_what_is_no_module_or_no_list_of_tensors_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="found function"):
        check(raising, [torch.ones(4)], "x=2", {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"give \[x\]"):
        check(Function(torch.relu), torch.ones(4), "x=2", {})  # type: ignore[arg-type]


class Attends(torch.nn.Module):
    """Attention with a loss that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (torch.nn.Parameter(torch.randn(2, 2, 4, 8)) for _ in range(3))
        self.weights = torch.nn.Parameter(torch.randn(2, 2, 4, 8))

    def forward(self, mask: torch.Tensor) -> torch.Tensor:
        return (F.scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=mask) * self.weights).sum()


def one_row_of_nothing(shape: Sequence[int], at: Any) -> torch.Tensor:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[at] = False
    return mask


@pytest.mark.parametrize("shape", [(4, 4), (2, 1, 4, 4), (2, 1, 1, 4), (4, 1), (2, 2, 4, 4)], ids=str)
@pytest.mark.parametrize("keys", ["R", "S(-1)"])
def test_a_row_that_attends_to_nothing_is_zeros_with_gradients(shape: Sequence[int], keys: str) -> None:
    mask = one_row_of_nothing(shape, 1)
    placed = "R" if keys == "R" or shape[-1] == 1 else f"S({len(shape) - 1})"
    module = Attends()
    checked = check(module, [mask], "x=2", {"mask": placed, "*": "S(1)"}, gradient=True)
    loss = module(mask)
    loss.backward()
    given = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()} | {"mask": mask.numpy()}
    ranks = checked.program.on_ranks(given, kernels="reference")
    np.testing.assert_allclose(ranks.whole(checked.results[0]), loss.item(), rtol=1e-4)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(ranks.whole(f"d{name}"), parameter.grad, rtol=1e-4, atol=1e-5)


def test_truth_values_are_added_as_pytorch_adds_them() -> None:
    x, y = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    compared(lambda x, y: [x + y, x * y, torch.bitwise_or(x, y), torch.bitwise_and(x, y), torch.bitwise_xor(x, y), torch.bitwise_not(x)], x, y)
    for function in (lambda x, y: torch.addr(x, x, y), lambda x, y: torch.scatter_add(x, 0, torch.tensor([0, 0]), y), lambda x, y: torch.diff(x)):
        with pytest.raises(ReshardError, match="returns truth values"):
            check(Function(function), [x, y], "x=2", {})


def test_what_another_op_of_that_name_does_is_rejected_or_done_by_the_right_one() -> None:
    torch.manual_seed(0)
    x, classes = torch.randn(3, 4), torch.tensor([[1, 2, -1, 0]] * 3)
    with pytest.raises(ReshardError, match="takes class numbers"):
        check(Function(F.multilabel_margin_loss), [x, classes], "x=2", {})
    compared(lambda x: F.rrelu(x, 0.1, 0.4), x)
    compared(lambda x: F.hardtanh(x, -1.5, 2.5), (x * 5).to(torch.int64))
    for function in (lambda x: F.avg_pool1d(x, 2), lambda x: x.index_reduce(0, torch.tensor([0, 0, 1]), x, "mean")):
        with pytest.raises(ReshardError, match="rounds a mean of integers"):
            check(Function(function), [(x * 5).to(torch.int64)], "x=2", {})
    with pytest.raises(ReshardError, match="at most 0.5"):
        check(Function(lambda x: torch.logit(x, 0.6)), [x], "x=2", {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_a_product_is_added_to_what_beta_leaves(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(2, 3, 3) * 3).to(dtype), (torch.randn(2, 3, 3) * 3).to(dtype)
    for beta, alpha in ((0, 1), (0.6, 1.7), (2, 3)):
        x = torch.full((3, 3), float("nan")) if dtype.is_floating_point and beta == 0 else torch.ones(3, 3).to(dtype)

        def function(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: float = beta, alpha: float = alpha) -> Any:
            # PyTorch accepts only this value here.
            whole = {} if x.dtype.is_floating_point or beta == 0 else {"beta": 2}
            return [
                torch.addmm(x, a[0], b[0], beta=beta, alpha=alpha), torch.addmv(x[0], a[0], b[0, 0], beta=beta, alpha=alpha),
                torch.baddbmm(x.expand(2, 3, 3), a, b, beta=beta, alpha=alpha), torch.addbmm(x, a, b, beta=beta, alpha=alpha),
                torch.addr(x, a[0, 0], b[0, 0], **(whole or {"beta": beta, "alpha": alpha})),
            ]  # fmt: skip

        compared(function, x, a, b)


def overloads() -> list[tuple[Any, str]]:
    """Returns all functional overloads of the ops of the table, and the names of their ops."""
    table, found = OpTable.standard(), []
    # `dir(torch.ops.aten)` has only the ops that were used before.
    packets = {name.removeprefix("aten::").partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    for packet in sorted(packets):
        group = getattr(torch.ops.aten, packet)
        if not isinstance(group, torch._ops.OpOverloadPacket):
            continue
        for name in group.overloads():
            one = getattr(group, name)
            types = [str(argument.type) for argument in one._schema.arguments]
            makes = [str(returned.type) for returned in one._schema.returns]
            is_functional = not one._schema.is_mutable and all("Tensor" in made for made in makes) and makes
            # The others are PyTorch's own ops on numbers, lists and texts.
            if not is_functional or not all(any(word in of for word in ("Tensor", *PLAIN)) for of in types):
                continue
            numbers = {argument.name: 2 for argument in one._schema.arguments if str(argument.type) == "number"}
            if (op := with_number(one, numbers) or op_of(one)) in table:
                found.append((one, op))
    return found


PLAIN = ("int", "float", "bool", "number", "str", "Device", "Generator")


def test_every_argument_is_used_left_out_for_a_reason_or_rejected() -> None:
    from reshard import Graph
    from reshard.torch.call import Call
    from reshard.torch.lowering import Lowering

    constants: Any = set()
    table, uses, left_out, tried = OpTable.standard(), Counter[Use](), set(), 0
    for overload, op in overloads():
        parameters = table.parameters(op)
        assert parameters is not None
        said = arguments(overload, op, parameters)
        assert list(said) == [argument.name for argument in overload._schema.arguments]
        for argument in overload._schema.arguments:
            use = said[argument.name]
            uses[use.use] += 1
            assert (use.use is Use.LEFT_OUT) == bool(use.why), f"{overload}: {use}"
            assert use.use is not Use.PARAMETER or use.called in parameters, f"{overload}: {use}"
            assert use.use not in (Use.CAST, Use.ELEMENTS) or argument.name in ("dtype", "half_to_float"), f"{overload}: {use}"
            if use.use is Use.LEFT_OUT:
                left_out.add(argument.name)
            if use.use is Use.REJECTED and op not in ("dropout", "clone", "contiguous"):
                tried += 1
                node = torch.fx.Graph().call_function(overload, (), {argument.name: "another"})
                with pytest.raises(ReshardError, match=rf"has the argument {argument.name}=another"):
                    Call(Lowering(Graph("x=2"), table, constants, False), node).check_rest()
        # Two arguments of one overload are not the same argument of the op.
        called = [use.called for use in said.values() if use.use is Use.PARAMETER]
        assert len(called) == len(set(called)), f"{overload}: {called}"
    # Arguments are left out deliberately: to add one, add its name here and its reason there.
    assert left_out == {
        "device", "pin_memory", "memory_format", "non_blocking", "cudnn_enable", "cudnn_enabled", "implicit", "assume_unique",
        "sparse", "sparse_grad", "sorted", "self",
    }  # fmt: skip
    assert tried > 150 and all(uses[use] > 0 for use in Use), (tried, uses)


def test_an_argument_that_a_form_does_not_read_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    from reshard.torch.forms import FORMS

    monkeypatch.setitem(FORMS, "cumsum", lambda call: call.call("cumsum", [call.operand("self")]))
    with pytest.raises(ReshardError, match="aten.cumsum.default has the argument dim=0, which cumsum of a program does not have"):
        check(Function(lambda x: x.cumsum(0)), [torch.ones(4, 4)], "x=2", {})


def test_every_form_is_of_an_overload_that_pytorch_has() -> None:
    from reshard.torch.forms import FORMS

    names = {op_of(getattr(group, name)) for group in (getattr(torch.ops.aten, packet, None) for packet in FORMS) if group for name in group.overloads()}
    names |= {op_of(torch.ops.prims.convert_element_type.default)}
    assert set(FORMS) <= names and len(FORMS) > 100, set(FORMS) - names


SAMPLED = (
    "add", "mul", "sub", "div", "sum", "mean", "softmax", "cumsum", "where", "var", "std", "nn.functional.gelu", "slice", "select", "roll", "topk",
    "amax", "max", "squeeze", "gather", "index_select", "addmm", "nn.functional.conv2d", "flip", "std_mean", "logsumexp", "prod", "isin",
    "nn.functional.elu", "nn.functional.leaky_relu", "nn.functional.glu", "count_nonzero", "diag_embed", "select_scatter", "slice_scatter",
    "nn.functional.hardtanh", "round", "nan_to_num", "renorm", "lerp", "addcmul", "addmv", "baddbmm", "addbmm", "addr", "bitwise_not", "diff",
    "nn.functional.avg_pool1d", "nn.functional.rrelu", "nn.functional.multilabel_margin_loss", "logit", "scatter_reduce", "index_reduce", "scatter_add",
    "sign", "maximum", "transpose", "cat", "any", "all", "nn.functional.relu", "nn.functional.softplus", "masked_fill", "tril", "unbind", "chunk",
)  # fmt: skip


@pytest.mark.parametrize(("dtype", "most", "wanted"), [(torch.float32, 2, 40), (torch.int64, 1, 25), (torch.bool, 1, 15)], ids=str)
def test_samples_of_pytorch_are_computed_as_there_or_rejected(dtype: torch.dtype, most: int, wanted: int) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    chosen, met = random.Random(0), Counter[str]()
    for op in (one for one in op_db if one.name in SAMPLED and one.supports_dtype(dtype, "cpu")):
        if op.name == "topk" and not dtype.is_floating_point:
            continue  # the index of any equal element is right
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", dtype))
        for sample in chosen.sample(samples, min(most, len(samples))):
            flat, structure = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            at = [n for n, value in enumerate(flat) if isinstance(value, torch.Tensor)]
            if any(flat[n].numel() == 0 for n in at):
                continue

            def function(*tensors: torch.Tensor, op: Any = op, flat: Any = flat, at: Any = at, structure: Any = structure) -> Any:
                given = list(flat)
                for n, tensor in zip(at, tensors, strict=True):
                    given[n] = tensor
                first, args, kwargs = torch.utils._pytree.tree_unflatten(given, structure)
                return op.op(first, *args, **kwargs)

            try:
                compared(function, *(flat[n].detach() for n in at))
                met[op.name] += 1
            except ReshardError:
                continue
    assert len(met) >= wanted, met
