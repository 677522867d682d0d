"""Placements that `reshard.torch.parallelize` chooses: the program fits, and DTensor with these placements trains the same."""

import functools

import pytest
import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from definition import device_mesh
from ranks import Ranks
from reshard import ComputeRates, Graph, Program, ReshardError, ShardingSolver
from reshard.torch import ParallelizedModule, Runner, check, parallelize


class Mlp(torch.nn.Module):
    """A network that returns its loss, with a parameter that is not trained and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(64, 256)
        self.down = torch.nn.Linear(256, 64, bias=False)
        self.shift = torch.nn.Parameter(torch.ones(64), requires_grad=False)
        self.register_buffer("scale", torch.full((64,), 0.5))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x + self.down(torch.nn.functional.gelu(self.up(x)))
        return torch.nn.functional.mse_loss(x * self.scale + self.shift, y, reduction="sum") / 512


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return torch.randn(64, 64), torch.randn(64, 64)


@functools.cache
def chosen(percent: int = 100) -> ParallelizedModule:
    """Returns the answer with this part of the peak that it has without a limit."""
    if percent == 100:
        return parallelize(Mlp(), data(), mesh="dp=2,tp=2", topology="h100")
    return parallelize(Mlp(), data(), mesh="dp=2,tp=2", topology="h100", memory=chosen().peak_bytes * percent // 100)


def total_us(program: Program, rates: ComputeRates) -> float:
    report = program.report(rates)
    return sum(report.compute_us.values()) + sum(traffic.cost_us for traffic in report.traffic.values())


@pytest.mark.parametrize("percent", [100, 60, 50])
def test_the_answer_is_a_program_without_implicit_redistributions(percent: int) -> None:
    found, rates = chosen(percent), ComputeRates.h100()
    explicit = ShardingSolver("deny", "h100").solve(Graph.parse(str(found.program)))
    assert total_us(explicit, rates) == pytest.approx(found.time_us, abs=1e-6)
    assert explicit.report(rates).peak_bytes == found.peak_bytes <= chosen().peak_bytes * percent // 100
    assert 0 < found.bound_us <= found.time_us
    assert list(found.parameters) == ["shift", "up.weight", "up.bias", "down.weight"] and list(found.states) == list(found.parameters)[1:]
    assert list(found.buffers) == ["scale"] and list(found.inputs) == ["x", "y"]


def test_less_memory_takes_longer() -> None:
    answers = [chosen(percent) for percent in (100, 60, 50)]
    assert [found.time_us for found in answers] == sorted(found.time_us for found in answers)
    assert answers[0].time_us < answers[-1].time_us


def test_placements_are_those_of_the_program() -> None:
    found = chosen(50)
    assert any(isinstance(one, Shard) for placements in found.parameters.values() for one in placements)
    for name, placements in {**found.parameters, **found.inputs}.items():
        text = str(found.program[name.replace(".", "_")].sharding)
        assert ",".join("R" if isinstance(one, Replicate) else f"S({one.dim})" for one in placements) == text
    assert str(found).splitlines()[1:5] == [f"parameter {name}: {', '.join(map(str, of))}" for name, of in found.parameters.items()]


def test_given_types_stay() -> None:
    found = parallelize(Mlp(), data(), mesh="dp=2,tp=2", placements={"[xy]": "S(0),R", "up.weight": "?,S(0)"}, optimizer=None)
    assert found.inputs == {"x": (Shard(0), Replicate()), "y": (Shard(0), Replicate())}
    assert found.parameters["up.weight"][1] == Shard(0) and found.states == {}
    with pytest.raises(ReshardError, match="'heads.*' of `placements` matches none"):
        parallelize(Mlp(), data(), mesh="dp=2", placements={"heads.*": "R"})


def test_what_cannot_be_met_is_rejected() -> None:
    with pytest.raises(ReshardError, match="no types were found for which the program fits in 10000 bytes per rank"):
        parallelize(Mlp(), data(), mesh="dp=2,tp=2", memory="10kB")
    with pytest.raises(ReshardError, match="a single number"):
        parallelize(torch.nn.Linear(4, 4), [torch.ones(4, 4)], mesh="dp=2")
    with pytest.raises(ReshardError, match="unknown optimizer 'lamb'; expected 'adamw' or None"):
        parallelize(Mlp(), data(), mesh="dp=2", optimizer="lamb")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give \\[x\\]"):
        parallelize(torch.nn.Linear(4, 4), torch.ones(4, 4), mesh="dp=2")


def step(rank: int, found: ParallelizedModule) -> None:
    """Trains one step by DTensor with the placements, and by a runner of the program; compares both with one rank."""
    torch.manual_seed(7)
    whole, placed = Mlp(), Mlp()
    placed.load_state_dict(whole.state_dict())
    placed = found.apply(placed, device_mesh((2, 2), ("dp", "tp")))
    for name, parameter in placed.named_parameters():
        assert isinstance(parameter, DTensor) and parameter.placements == found.parameters[name]
        assert parameter.requires_grad == (name != "shift")
    assert placed.scale.placements == found.buffers["scale"]
    loss = whole(*data())
    loss.backward()
    made = placed(*data())
    torch.testing.assert_close(made.full_tensor(), loss)
    made.backward()
    for name in found.states:
        torch.testing.assert_close(placed.get_parameter(name).grad.full_tensor(), whole.get_parameter(name).grad)

    given = {name.replace(".", "_"): one.detach() for name, one in whole.named_parameters()}
    given |= {**dict(zip("xy", data(), strict=True)), **found.constants}
    given |= {name: torch.zeros(found.program[name].shape) for name in found.program.inputs if name not in given}
    runner = Runner(found.program)
    results = runner({name: runner.shard(name, one) for name, one in given.items()})
    for name in found.states:
        weight, slope = whole.get_parameter(name).detach(), whole.get_parameter(name).grad
        # AdamW by its definition, without the correction of bias.
        expected = weight * (1 - 1e-3 * 0.01) - 1e-3 * 0.1 * slope / ((0.001 * slope**2).sqrt() + 1e-8)
        updated = f"{name.replace('.', '_')}'"
        torch.testing.assert_close(results[updated], runner.shard(updated, expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("percent", [100, 50])
def test_placed_modules_and_runners_train_as_one_rank(four: Ranks, percent: int) -> None:
    four.run(step, chosen(percent))


def test_a_placed_module_is_checked_with_its_placements(four: Ranks) -> None:
    found = chosen(50)
    four.run(checked, found)
    assert all(sentence.endswith(".") for sentence in found.beyond) and found.beyond


def checked(rank: int, found: ParallelizedModule) -> None:
    placed = found.apply(Mlp(), device_mesh((2, 2), ("dp", "tp")))
    report = check(placed, data(), gradient=True)
    for name, parameter in placed.named_parameters():
        assert str(report.program[name.replace(".", "_")].sharding) == str(found.program[name.replace(".", "_")].sharding)
    with pytest.raises(ReshardError, match="the module has DTensors"):
        parallelize(placed, data(), mesh="dp=2,tp=2")
    with pytest.raises(ReshardError, match="give one of the same sizes"):
        found.apply(Mlp(), device_mesh((4,), ("dp",)))


def test_a_module_without_elements_has_the_same_answer() -> None:
    with torch.device("meta"):
        module, inputs = Mlp(), [torch.empty(64, 64), torch.empty(64, 64)]
    found = parallelize(module, inputs, mesh="dp=2,tp=2", topology="h100")
    assert str(found) == str(chosen()) and str(found.program) == str(chosen().program)
