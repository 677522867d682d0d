"""The types that `check` is given: by patterns of inputs, results and modules, and by a module that is parallelized already."""

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from ranks import Ranks
from reshard import ReshardError, Sharding, ShardingSolver
from reshard.torch import check, sharding
from reshard.torch import mesh as as_mesh
from reshard.torch.parallelized import type_of
from reshard.torch.version import DTensorSpec, ShardOrderEntry, TensorMeta


class Block(torch.nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x) * self.scale)))


class Loss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()
        # Shared by both.
        self.second.up.weight = self.first.up.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)).square().mean()


def test_gradients_of_parameters_are_reduced() -> None:
    # The batch is large, so weights are gathered and not activations.
    checked = check(Loss(), [torch.ones(1 << 17, 8)], "dp=4", {"x": "S(0)"}, gradient=True)
    program = checked.program
    types = {name: program[name].type for name in program.graph().inputs}
    assert {kind for name, kind in types.items() if name.endswith(("weight", "bias"))} == {"I"} and types["x"] == "S(0)|-"
    assert program["dfirst_down_weight"].type == "R|-"
    # Each gradient of n bytes is reduced once: 2 x 3/4 n bytes are received, or a quarter more if it is padded.
    bytes_of_gradients = sum(4 * one.numel() for one in Loss().parameters())
    received = checked.report.traffic["backward"].received_bytes
    assert 1.5 * bytes_of_gradients <= received <= 2 * bytes_of_gradients


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(ReshardError, match=r"pattern 'frist\.\*' of `placements` matches none of .* the nearest: first") as raised:
        check(Loss(), [torch.ones(4, 8)], "dp=2", {"x": "S(0)", "frist.*": "R"})
    assert raised.value.kind == "unused_pattern"
    with pytest.raises(ReshardError, match=r"pattern 'first\.nrom' of `pinned` matches none of .* the nearest: first\.norm"):
        check(Loss(), [torch.ones(4, 8)], "dp=2", pinned={"first.nrom": "S(0)"})
    # The second pattern matches as well; it is not used, and no mistake.
    check(Loss(), [torch.ones(4, 8)], "dp=2", {"*.weight": "I", "first.up.weight": "S(0)"})


def test_results_and_values_of_modules_are_pinned() -> None:
    free = check(Loss(), [torch.ones(4, 8)], "dp=2", {"x": "S(0)"})
    pinned = check(Loss(), [torch.ones(4, 8)], "dp=2", {"x": "S(0)"}, pinned={"output": "P(sum)", "*.up": "S(1)"})
    program = pinned.program
    assert program[pinned.results[0]].type == "P(sum)" != free.program[free.results[0]].type
    values = [program[name] for one in program.statements for name in one.outputs]
    assert sum(value.shape == (4, 32) and value.type == "S(1)" for value in values) >= 2
    assert not any(value.type == "S(1)" for one in free.program.statements for value in map(free.program.__getitem__, one.outputs))


class Pair(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2


def test_one_of_several_results_is_pinned() -> None:
    checked = check(Pair(), [torch.ones(4)], "dp=2", {"x": "S(0)"}, pinned={"output.1": "R"})
    assert [checked.program[name].type for name in checked.results] == ["S(0)", "R"]


def test_a_gradient_needs_a_number() -> None:
    with pytest.raises(ReshardError, match=r"a single number, but forward returns f32\[4, 8\]; return a loss"):
        check(Block(), [torch.ones(4, 8)], "dp=2", gradient=True)


def test_a_mesh_is_needed() -> None:
    with pytest.raises(ReshardError, match="the module has no DTensors, so its mesh is not known; give one"):
        check(Block(), [torch.ones(4, 8)])


def parallelized(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    module = Loss()
    parallelize_module(module.first, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel(), "norm": SequenceParallel(sequence_dim=0)})
    sharded = parallelize_module(torch.nn.Linear(8, 8), mesh["tp"], ColwiseParallel())
    module.head = sharded
    fully_shard(module.first, mesh=mesh["dp"])
    fully_shard(module, mesh=mesh["dp"])
    x = distribute_tensor(torch.ones(64, 8), mesh, [Shard(0), Replicate()])
    checked = check(module, [x], gradient=True)
    types = {name: checked.program[name].type for name in checked.program.graph().inputs}
    assert types["first_up_weight"] == types["first_up_bias"] == "SS(0,4),S(0)"
    assert types["first_down_weight"] == "S(0),S(1)"
    # Modules that are not parallelized are on dp alone, so it is invariant on tp.
    assert types["second_down_bias"] == types["first_norm_weight"] == "S(0),I"
    assert types["x"] == "S(0)|-,R|-"
    assert checked.program["dfirst_down_weight"].type == "S(0)|-,S(1)|-"
    # A pattern replaces what the module has; the module is as before.
    other = check(module, [x], placements={"first.down.bias": "I,I"})
    assert other.program["first_down_bias"].type == "I,I"
    assert type(module.first).__name__ == "FSDPBlock" and module.first._forward_pre_hooks
    with pytest.raises(ReshardError, match="the DTensors of the module are on the mesh dp=2,tp=4, not on dp=4,tp=2"):
        check(module, [x], "dp=4,tp=2")


def test_a_module_that_is_parallelized_says_its_types(eight: Ranks) -> None:
    eight.run(parallelized)


def one_rank(rank: int) -> None:
    deny = ShardingSolver("deny")
    for sizes in [(2, 2), (1, 4), (4, 1)]:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "tp"))

        def on(shape: tuple[int, ...], *placements: Placement, mesh: DeviceMesh = mesh) -> DTensor:
            return distribute_tensor(torch.ones(shape), mesh, placements)

        x = on((8, 8), Shard(0), Replicate())
        module = torch.nn.Linear(8, 8, bias=False)
        right = {"weight": "R,S(0)"}
        for weight in ([Shard(0), Shard(0)], [Shard(1), Shard(0)], [Replicate(), Shard(0)]):
            module.weight = torch.nn.Parameter(on((8, 8), *weight))
            # A parameter is invariant where it is replicated, so that the last one is wrong too.
            with pytest.raises(ReshardError, match="along dp") as wrong:
                check(module, [x], solver=deny)
            assert wrong.value.kind.startswith("needs_")
            checked = check(module, [x], placements=right, solver=deny)
            assert [checked.program[name].type for name in ("weight", "input", *checked.results)] == ["R,S(0)", "S(0),R", "S(0),S(1)"]
        sharded = parallelize_module(torch.nn.Linear(8, 8, bias=False), mesh["tp"], ColwiseParallel())
        fully_shard(sharded, mesh=mesh["dp"])
        with pytest.raises(ReshardError, match="needs a redistribution"):
            check(sharded, [x], solver=deny)
        # On its own slice of the mesh.
        part = torch.nn.Linear(8, 8, bias=False)
        part.weight = torch.nn.Parameter(distribute_tensor(torch.ones(8, 8), mesh["dp"], [Shard(0)]))
        with pytest.raises(ReshardError, match="along dp"):
            check(part, [x], solver=deny)
    # The order of axes that shard one dim has those of one rank too.
    for sizes, expected in [((2, 1, 2), "S(0),S(0),S(0) order={z,x,y}"), ((2, 2, 1), "S(0),S(0),S(0) order={y,x,z}")]:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("x", "y", "z"))
        order = tuple(reversed(range(3)))
        meta = TensorMeta(torch.Size([7, 5]), (5, 1), torch.float32)
        spec = DTensorSpec(mesh, (Shard(0),) * 3, tensor_meta=meta, shard_order=(ShardOrderEntry(0, order),))
        held = DTensor(torch.ones(sharding(spec).local_shape(rank)), spec, requires_grad=False)
        text = type_of("x", held, mesh, "R", 3)
        assert text == expected and Sharding(as_mesh(mesh), (7, 5), text) == sharding(spec)


def test_what_is_wrong_for_two_ranks_is_rejected_for_one(four: Ranks) -> None:
    four.run(one_rank)
