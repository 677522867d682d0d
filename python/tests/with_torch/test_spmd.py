"""The types of spmd_types: conversion, checked modules, and redistributions whose values are compared by brute force."""

import itertools
import re

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate

from definition import device_mesh
from pages import DOCS, blocks_of, check_page
from ranks import Ranks

pytest.importorskip("spmd_types", reason="the package spmd_types is not installed; scripts/fetch_torch.sh fetches it")

from spmd_types import I, MeshAxis, P, PartitionSpec, R, S, SpmdType, SpmdTypeError, V  # noqa: E402
from spmd_types import assert_type, dtensor_placement_to_spmd_type, get_local_type, get_partition_spec, set_current_mesh  # noqa: E402
from spmd_types import redistribute as redistribute_axis  # noqa: E402
from spmd_types.checker import typecheck  # noqa: E402
from spmd_types.types import RedistributeError  # noqa: E402

from reshard import Mesh, NotRepresentable, Planner, Program, ReshardError, Sharding, ShardingType  # noqa: E402
from reshard.torch import check  # noqa: E402
from reshard.torch.spmd import assert_types, redistribute, sharding_type, spmd_type, typed  # noqa: E402

PAGE = DOCS / "spmd_types.md"
WORDS = [R, I, P, S(0), S(1)]
DUAL = {R: P, I: I, P: R, V: V}


def spec_types(axes: tuple[str, ...], dims: int = 2) -> list[SpmdType]:
    """Returns every type over these axes, with every order of the axes of one dim."""
    found = []
    for words in itertools.product(WORDS, repeat=len(axes)):
        by_dim = [[axis for axis, one in zip(axes, words) if one == S(dim)] for dim in range(dims)]
        for orders in itertools.product(*(itertools.permutations(one) for one in by_dim)):
            entries = (None if not one else one[0] if len(one) == 1 else one for one in orders)
            found.append(SpmdType({axis: V if isinstance(one, S) else one for axis, one in zip(axes, words)}, PartitionSpec(*entries)))
    return found


def test_every_type_is_converted_and_back() -> None:
    done = 0
    for over in ("dp=2,tp=3", "a=2,b=3,c=2", "x=4"):
        mesh = Mesh(over)
        for type in spec_types(mesh.names):
            shape = (24, 36)
            ours = sharding_type(mesh, shape, type)
            types, spec = spmd_type(ours)
            assert (types, spec) == (type.local_type, type.partition_spec), ours
            # The gradient's type is that of the gradient.
            dual = ours.gradient_type()
            assert dual is not None
            assert spmd_type(dual) == ({axis: DUAL[one] for axis, one in types.items()}, spec)
            # The axes of spmd_types are those of the names.
            if not any(isinstance(entry, tuple) for entry in spec):
                shards = {axis: next(S(dim) for dim, entry in enumerate(spec) if entry == axis) if one is V else one for axis, one in types.items()}
                assert sharding_type(mesh, shape, shards) == ours
            done += 1
    assert done == 191
    # spmd_types drops the type along an axis of one rank, and it is R then.
    for one, word in [({}, "R"), ({"one": I}, "I"), ({"one": S(1)}, "S(1)"), ({"one": P}, "P(sum)")]:
        assert str(sharding_type("x=4,one=1", (8, 8), {"x": S(0)} | one)) == f"S(0),{word}"
    assert str(sharding_type("x=4,one=1", (8, 8), {"x": V, "one": V}, PartitionSpec(("x", "one"), None))) == "S(0),S(0)"


def test_a_sharding_has_the_type_whose_replicas_do_different_work() -> None:
    value = Sharding("dp=2,tp=4", (64, 32), "S(0),R")
    assert spmd_type(value) == ({"dp": V, "tp": R}, PartitionSpec("dp", None)) == spmd_type(ShardingType.from_value(value))
    assert spmd_type(ShardingType.of(value)) == spmd_type(value)
    invariant = ShardingType.invariant_along(value, "tp")
    assert spmd_type(invariant) == ({"dp": V, "tp": I}, PartitionSpec("dp", None))


def test_axes_are_those_of_spmd_types_too() -> None:
    mesh = Mesh("dp=2,tp=4")
    assert str(sharding_type(mesh, (8, 8), {MeshAxis.of(2, 4): S(-1), MeshAxis.of(4, 1): I})) == "S(1),I"
    transposed = Mesh("tp=4,dp=2@[0,4,1,5,2,6,3,7]")
    assert str(sharding_type(transposed, (8, 8), {MeshAxis.of(4, 1): P, MeshAxis.of(2, 4): R})) == "P(sum),R"


@pytest.mark.parametrize("word", ["SS(0,2)", "RG(0,[3,5])", "Z(0)", "P(max)"])
def test_what_has_no_type_is_rejected_with_its_axis(word: str) -> None:
    for text, axis in [(f"{word},R", "dp"), (f"R,{word}", "tp")]:
        with pytest.raises(NotRepresentable, match=f"^along {axis}: ") as error:
            spmd_type(Sharding("dp=2,tp=2", (8, 8), text))
        assert error.value.kind == "not_representable"
    split = ShardingType.of(Sharding("dp=2,tp=2", (8, 8), "R,R"), Sharding("dp=2,tp=2", (8, 8), "P,S(0)"))
    with pytest.raises(NotRepresentable, match="^along tp: the gradient of"):
        spmd_type(split)


def test_what_has_no_sharding_is_rejected_with_its_axis() -> None:
    for types, kind, message in [
        ({"dp": R, "tp": V}, "not_representable", "^along tp: V has no dim"),
        ({"dp": R}, "placement", "no type along tp"),
        ({"dp": S(0), "tp": S(0)}, "placement", "dp and tp shard dim 0, in no order"),
        ({"dp": S(2), "tp": R}, "placement", r"S\(2\) along dp is outside a tensor of 2 dims"),
        ({"dp": R, "tp": R, "pp": R}, "placement", "pp is not an axis of the mesh dp=2,tp=2; expected one of: dp, tp"),
        (SpmdType({"dp": R, "tp": R}, PartitionSpec(None, None, None)), "placement", "3 dims, but the tensor has 2"),
    ]:
        with pytest.raises(ReshardError, match=message) as error:
            sharding_type("dp=2,tp=2", (8, 8), types)
        assert error.value.kind == kind
    with pytest.raises(ReshardError, match="dp shards dim 0 in the partition_spec, but its type is R"):
        sharding_type("dp=2,tp=2", (8, 8), {"dp": R, "tp": R}, PartitionSpec("dp", None))
    with pytest.raises(TypeError, match="expected R, I, P, V or S"):
        sharding_type("dp=2,tp=2", (8, 8), {"dp": "R", "tp": R})


# The definition of types, by slices and sums.


def local(whole: torch.Tensor, type: SpmdType, mesh: DeviceMesh, *, gradient: bool = False) -> torch.Tensor:
    """Returns this rank's tensor of a type, or of its gradient's type."""
    at = dict(zip(mesh.mesh_dim_names, mesh.get_coordinate()))  # type: ignore[arg-type]
    sizes = dict(zip(mesh.mesh_dim_names, mesh.shape))  # type: ignore[arg-type]
    for dim, entry in enumerate(type.partition_spec or ()):
        for axis in () if entry is None else (entry,) if isinstance(entry, str) else entry:
            whole = whole.chunk(sizes[axis], dim)[at[axis]]
    for axis, one in type.local_type.items():
        if (DUAL[one] if gradient else one) is P:
            # Different partial values on all ranks, with an exact sum.
            others = [torch.full_like(whole, 3 * k - 7) for k in range(1, sizes[axis])]
            whole = whole - sum(others) if at[axis] == 0 else others[at[axis] - 1]
    return whole.contiguous().clone()


def agrees(made: torch.Tensor, whole: torch.Tensor, type: SpmdType, mesh: DeviceMesh, *, gradient: bool = False) -> bool:
    """Returns True if all ranks' tensors represent the whole tensor."""
    total = made.detach().clone()
    for axis, one in type.local_type.items():
        if (DUAL[one] if gradient else one) is P:
            torch.distributed.all_reduce(total, group=mesh.get_group(axis))
    replicated = SpmdType({axis: V if one is V else I for axis, one in type.local_type.items()}, type.partition_spec)
    return torch.equal(total, local(whole, replicated, mesh))


def numbers(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randint(-40, 40, shape, generator=torch.Generator().manual_seed(seed)).double()


def transitions(rank: int) -> int:
    mesh = device_mesh((2, 2), ("dp", "tp"))
    whole, cotangent = numbers((8, 4), 1), numbers((8, 4), 2)
    done = 0
    for src, dst in itertools.product(spec_types(("dp", "tp")), repeat=2):
        x = local(whole, src, mesh).requires_grad_()
        made = redistribute(x, mesh, src=src, dst=dst)
        assert agrees(made, whole, dst, mesh), (src, dst)
        made.backward(local(cotangent, dst, mesh, gradient=True))
        assert x.grad is not None and agrees(x.grad, cotangent, src, mesh, gradient=True), (src, dst)
        done += 1
    return done


def test_every_transition_and_its_gradient(four: Ranks) -> None:
    assert four.run(transitions) == [27 * 27] * 4


def twice(rank: int) -> None:
    """The sum of cubes of a tensor and its second derivative, with a redistribution in between."""
    mesh = device_mesh((2, 2), ("dp", "tp"))
    whole = numbers((8, 4), 3)
    src, dst = SpmdType({"dp": V, "tp": I}, PartitionSpec("dp", None)), SpmdType({"dp": I, "tp": V}, PartitionSpec(None, "tp"))
    x = local(whole, src, mesh).requires_grad_()
    (first,) = torch.autograd.grad((redistribute(x, mesh, src=src, dst=dst) ** 3).sum(), x, create_graph=True)
    assert torch.equal(first, 3 * x.detach() ** 2)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, 6 * x.detach())
    # A transition without a call returns another tensor than its input.
    same = redistribute(x, mesh, src=src, dst=src)
    same.sum().backward()
    assert same is not x and torch.equal(x.grad, torch.ones_like(x))  # type: ignore[arg-type]
    # A dim that the ranks do not split evenly.
    uneven = numbers((5, 3), 4)
    tp = mesh["tp"]
    part = uneven.chunk(2)[mesh.get_coordinate()[1]]  # type: ignore[index]
    assert torch.equal(redistribute(part, tp, src=S(0), dst=R, shape=(5, 3)), uneven)
    for arguments, message in [
        ({"src": S(0), "dst": R, "shape": (8, 3)}, "this rank's shard"),
        ({"src": V, "dst": R}, "along tp: V has no dim"),
        ({"src": {"dp": R}, "dst": R}, "dp is not an axis"),
    ]:
        with pytest.raises(ReshardError, match=message):
            redistribute(part, tp, **arguments)
    with pytest.raises(ReshardError, match="has the axes dp, tp, but the type is R"):
        redistribute(part, mesh, src=R, dst=R)


def test_derivatives_uneven_dims_and_errors(four: Ranks) -> None:
    four.run(twice)


def one_axis(rank: int) -> list[str]:
    """Compares with spmd_types' redistribution along one axis; returns the compared pairs."""
    mesh = device_mesh((4,), ("tp",))
    whole, cotangent = numbers((8, 4), 5), numbers((8, 4), 6)
    compared = []
    for src, dst in itertools.product([R, I, P, S(0), S(1)], repeat=2):
        if src == dst:
            continue
        types = [SpmdType({"tp": V}, PartitionSpec(*("tp" if dim == one.dim else None for dim in range(2)))) if isinstance(one, S) else SpmdType({"tp": one}, PartitionSpec(None, None)) for one in (src, dst)]
        results = []
        for theirs in (True, False):
            x = local(whole, types[0], mesh).requires_grad_()
            try:
                made = redistribute_axis(x, mesh.get_group("tp"), src=src, dst=dst) if theirs else redistribute(x, mesh, src=src, dst=dst)
            except (SpmdTypeError, ValueError):
                # A transition that spmd_types does not have, or not by this function and with this PyTorch.
                break
            made.backward(local(cotangent, types[1], mesh, gradient=True))
            assert x.grad is not None
            results.append((agrees(made, whole, types[1], mesh), agrees(x.grad, cotangent, types[0], mesh, gradient=True)))
        else:
            assert results == [(True, True)] * 2, (src, dst, results)
            compared.append(f"{src!r}->{dst!r}")
    return compared


def test_one_axis_is_as_in_spmd_types(four: Ranks) -> None:
    compared = four.run(one_axis)
    assert compared[0] == compared[1] == compared[2] == compared[3]
    assert len(compared[0]) == 20, compared[0]


class MLP(torch.nn.Module):
    """A product sharded by columns, one sharded by rows, and their reduction over tp if there is a mesh."""

    def __init__(self, width: int, mesh: DeviceMesh | None = None) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, width, bias=False)
        self.down = torch.nn.Linear(width, 8, bias=False)
        self.register_buffer("scale", torch.ones(8))
        self.mesh = mesh

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(torch.relu(self.up(x * self.scale)))
        if self.mesh is not None:
            y = redistribute(y, self.mesh, src={"dp": S(0), "tp": P}, dst={"dp": S(0), "tp": R})
        return y


TYPES = {"up.weight": "R,S(0)", "down.weight": "R,S(1)", "x": "S(0),R", "*": "R,R"}


def checked_while_it_runs(rank: int) -> dict[str, str]:
    """Runs a rank's shards of a checked module under `typecheck`; returns the types as `placements`."""
    mesh = device_mesh((2, 2), ("dp", "tp"))
    torch.manual_seed(0)
    whole, x = MLP(16), torch.randn(12, 8)
    report = check(whole, [x], mesh, TYPES)
    module = MLP(8, mesh)
    dp, tp = mesh.get_coordinate()  # type: ignore[misc]
    with torch.no_grad():
        module.up.weight.copy_(whole.up.weight.chunk(2, 0)[tp])
        module.down.weight.copy_(whole.down.weight.chunk(2, 1)[tp])
    part = x.chunk(2)[dp].clone()
    with set_current_mesh(mesh), typecheck(local=False):
        assert_types(report, module, [part])
        made = module(part)
    # The type that the checker finds is that of the program, but for its partial values.
    tp_axis, dp_axis = (MeshAxis.of(mesh.get_group(axis)) for axis in ("tp", "dp"))
    assert get_local_type(made) == {dp_axis: V, tp_axis: R} and get_partition_spec(made) == PartitionSpec(dp_axis, None)
    assert report.program[report.results[0]].type == "S(0),P(sum)"
    torch.testing.assert_close(made, whole(x).chunk(2)[dp])
    # A tensor that has another type, and shards that are not those of the program.
    again = MLP(8, mesh)
    assert_type(again.up.weight, {dp_axis: I, tp_axis: R})
    with pytest.raises(SpmdTypeError, match="SPMD type mismatch"):
        assert_types(report, again)
    for other, message in [(MLP(16, mesh), r"up_weight has the shape \[16, 8\], but shards of R,S\(0\) of \[16, 8\] have \[8, 8\]"), (torch.nn.Linear(8, 8), "weight is not an input of the program")]:
        with pytest.raises(ReshardError, match=message):
            assert_types(report, other)
        # No tensor has a type if one is rejected.
        assert not any(get_local_type(one) for one in other.parameters())
    with pytest.raises(ReshardError, match="the program has 1 input, x, but got 2 tensors"):
        assert_types(report, MLP(8, mesh), [part, part])
    return typed(module, [part], mesh)


def test_a_checked_module_is_checked_while_it_runs(four: Ranks) -> None:
    placements = four.run(checked_while_it_runs)[0]
    # And back: the same types for the whole module.
    assert placements == {"up.weight": "R,S(0)", "down.weight": "R,S(1)", "scale": "R,R", "x": "S(0),R"}
    program = check(MLP(16), [torch.zeros(12, 8)], "dp=2,tp=2", placements).program
    assert program == check(MLP(16), [torch.zeros(12, 8)], "dp=2,tp=2", TYPES).program


class Tied(torch.nn.Module):
    """One tensor with two names, a buffer that forward writes, and a number that becomes a constant."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(width, width, bias=False)
        self.second = torch.nn.Linear(width, width, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("calls", torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1.0)
        return (self.second(self.first(x)) + self.calls * torch.tensor(2.0)).sum()


def test_tensors_with_two_names_and_constants() -> None:
    report = check(Tied(4), [torch.ones(2, 4)], "tp=2", {"x": "S(0)", "*.weight": "I"}, gradient=True)
    module, x = Tied(4), torch.ones(1, 4)
    assert_types(report, module, [x])
    axis = MeshAxis.of(2, 1)
    assert (get_local_type(module.second.weight), get_local_type(module.calls), get_local_type(x)) == ({axis: I}, {axis: R}, {axis: V})
    assert typed(module, [x], "tp=2") == {"first.weight": "I", "second.weight": "I", "calls": "R", "x": "S(0)"}
    check(Tied(4), [torch.ones(2, 4)], "tp=2", typed(module, [x], "tp=2"), gradient=True)
    assert typed(Tied(4), [], "tp=2") == {}
    assert_type(module.calls, {MeshAxis.of(3, 2): V})
    with pytest.raises(ReshardError, match="is not an axis of the mesh tp=2"):
        typed(module, [x], "tp=2")


def wrong_types(rank: int) -> None:
    mesh = device_mesh((2, 2), ("dp", "tp"))
    dp_axis, tp_axis = (MeshAxis.of(mesh.get_group(axis)) for axis in ("dp", "tp"))
    whole = numbers((8, 4), 7)
    src = SpmdType({"dp": V, "tp": P}, PartitionSpec("dp", None))
    x = local(whole, src, mesh).requires_grad_()
    with set_current_mesh(mesh), typecheck(local=False):
        assert_type(x, {"dp": S(0), "tp": P})
        made = redistribute(x, mesh, src=src, dst={"dp": R, "tp": S(1)})
        assert get_local_type(made) == {dp_axis: R, tp_axis: V} and get_partition_spec(made) == PartitionSpec(None, tp_axis)
        with pytest.raises(SpmdTypeError, match="SPMD type mismatch"):
            redistribute(x, mesh, src={"dp": S(0), "tp": R}, dst={"dp": R, "tp": R})
    made.backward(local(numbers((8, 4), 8), SpmdType({"dp": R, "tp": V}, PartitionSpec(None, "tp")), mesh, gradient=True))
    assert x.grad is not None and agrees(x.grad, numbers((8, 4), 8), src, mesh, gradient=True)


def test_a_transition_is_typed_while_it_runs(four: Ranks) -> None:
    four.run(wrong_types)


# The differences of docs/spmd_types.md.


def test_replicate_of_dtensor_is_invariant_there_and_replicated_here() -> None:
    assert dtensor_placement_to_spmd_type(Replicate()) is I
    assert dtensor_placement_to_spmd_type(Replicate(), Partial()) is R
    # For `check` a parameter without a placement is I, as DTensor's Replicate is; an input is R.
    program = check(torch.nn.Linear(4, 4), [torch.zeros(2, 4)], "tp=2", {}).program
    assert program["weight"].type == "I" and program["input"].type == "R"


def all_axes(rank: int) -> tuple[int, int, int, int]:
    """Returns the collectives and the bytes of one plan and of a transition for each axis."""
    mesh = device_mesh((2, 2), ("dp", "tp"))
    whole = numbers((8, 4), 9)
    src, dst = SpmdType({"dp": P, "tp": P}, PartitionSpec(None, None)), SpmdType({"dp": R, "tp": R}, PartitionSpec(None, None))
    x = local(whole, src, mesh)
    plan = Planner().plan(Sharding("dp=2,tp=2", (8, 4), "P,P"), Sharding("dp=2,tp=2", (8, 4), "R,R"), "f64")
    each = [Planner().plan(Sharding("tp=2", (8, 4), "P"), Sharding("tp=2", (8, 4), "R"), "f64")] * 2
    stepped = x
    for axis in ("dp", "tp"):
        stepped = redistribute_axis(stepped, mesh.get_group(axis), src=P, dst=R)
    assert agrees(stepped, whole, dst, mesh) and agrees(redistribute(x, mesh, src=src, dst=dst), whole, dst, mesh)
    return plan.communicating_steps, plan.received_bytes, sum(one.communicating_steps for one in each), sum(one.received_bytes for one in each)


def test_all_axes_are_one_transition(four: Ranks) -> None:
    # 2 N 3/4 for N = 256 bytes in one all_reduce of 4, and 2 N in two of 2.
    assert set(four.run(all_axes)) == {(1, 384, 2, 512)}


def outer_axis(rank: int) -> None:
    mesh = device_mesh((2, 2), ("dp", "tp"))
    whole = numbers((8, 4), 10)
    src = SpmdType({"dp": V, "tp": V}, PartitionSpec(("dp", "tp"), None))
    dst = SpmdType({"dp": R, "tp": V}, PartitionSpec("tp", None))
    x = local(whole, src, mesh)
    with set_current_mesh(mesh), typecheck(local=False):
        assert_type(x, src)
        with pytest.raises(RedistributeError):
            redistribute_axis(x, mesh.get_group("dp"), src=S(0), dst=R)
        made = redistribute(x, mesh, src=src, dst=dst)
    assert agrees(made, whole, dst, mesh)


def test_an_outer_axis_of_a_dim_is_a_plan_here_and_an_error_there(four: Ranks) -> None:
    four.run(outer_axis)


def test_a_varying_value_becomes_partial_without_a_word_there() -> None:
    x = torch.zeros(4)
    axis = MeshAxis.of(2, 1)
    assert_type(x, {axis: V})
    assert_type(x, {axis: P})
    assert get_local_type(x) == {axis: P}
    # Here it is a statement of the program: V leaves a region as P, and nothing else changes its type.
    region = "mesh tp=2\nx: f32[8] S(0)\nw: f32[4] P\nlocal tp\n  in x: S(0)\n  in w: P\n{}  y = add({}, w)\n  out y: P = y\nend"
    with pytest.raises(ReshardError) as error:
        Program(region.format("", "x"))
    assert error.value.kind == "program"
    assert Program(region.format("  p: P = x\n", "p"))["y"].type == "P(sum)"


def test_an_axis_of_one_rank_is_not_checked_there() -> None:
    one = MeshAxis.of(1, 1)
    x, w = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    with set_current_mesh({"tp": one}), typecheck():
        assert_type(x, {"tp": I})
        assert_type(w, {"tp": V})
        # With two ranks I and V are an error, as they are here with one.
        made = x * w
    assert get_local_type(made) == {}
    two = MeshAxis.of(2, 1)
    x, w = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    with set_current_mesh({"tp": two}), typecheck():
        assert_type(x, {"tp": I})
        assert_type(w, {"tp": V})
        with pytest.raises(SpmdTypeError):
            x * w
    for size in (1, 2):
        with pytest.raises(ReshardError, match="an invariant operand") as error:
            Program(f"mesh tp={size}\nx: f32[4] I\nw: f32[{4 * size}] S(0)\nlocal tp\n  in x: I\n  in w: S(0)\n  y = mul(x, w)\nend")
        assert error.value.kind == "program"


def test_the_examples_of_the_page_print_what_is_said(four: Ranks) -> None:
    page = PAGE.read_text()
    assert len(blocks_of(PAGE.name)) == 4 and len(page.splitlines()) <= 200
    check_page(four, PAGE.name)
    # Every test that the page names is one of these.
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 8 and named <= set(globals()), named - set(globals())
