"""A checked module is a program that computes the same as the module."""

import fnmatch
from collections import Counter

import numpy as np
import pytest
import torch
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication

from definition import device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard import ReshardError
from reshard.torch import audit, check


class Attention(torch.nn.Module):
    """Tokens, attention, a norm and a small network: a model as `torch.export` sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 16)
        self.queries, self.keys, self.values = (torch.nn.Linear(16, 16, bias=False) for _ in range(3))
        self.norm = torch.nn.LayerNorm(16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embedding(tokens)
        q, k, v = (part(h).view(4, 8, 4, 4).transpose(1, 2) for part in (self.queries, self.keys, self.values))
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + a.transpose(1, 2).reshape(4, 8, 16) * 0.5
        h = self.norm(h)
        h = h + self.down(torch.nn.functional.gelu(self.up(h)))
        return torch.softmax(h, -1).mean()


PLACEMENTS = {
    "queries.weight": "R,S(0)",
    "keys.weight": "R,S(0)",
    "values.weight": "R,S(0)",
    "up.weight": "R,S(0)",
    "up.bias": "R,S(0)",
    "down.weight": "R,S(1)",
    "tokens": "S(0),R",
}


def test_a_module_is_a_program_that_computes_the_same() -> None:
    torch.manual_seed(0)
    module = Attention().double()
    tokens = torch.randint(0, 32, (4, 8))
    checked = check(module, [tokens], "dp=2,tp=4", PLACEMENTS)
    given = {name.replace(".", "_"): parameter.detach().numpy() for name, parameter in module.named_parameters()}
    given["tokens"] = tokens.numpy()
    one = checked.program.on_one_device(given, kernels="reference")
    (result,) = [name for name in one if name == checked.program.statements[-1].outputs[0]]
    np.testing.assert_allclose(one[result], module(tokens).detach().numpy(), rtol=1e-9)
    ranks = checked.program.on_ranks(given, kernels="reference")
    np.testing.assert_allclose(ranks.whole(result), one[result], rtol=1e-9)
    assert checked.report.traffic["forward"].received_bytes > 0
    assert "S(0),S(" in str(checked) and "peak" in str(checked)


def test_the_backward_pass_is_checked_too() -> None:
    checked = check(Attention(), [torch.zeros(4, 8, dtype=torch.int64)], "dp=2,tp=4", PLACEMENTS, gradient=True)
    assert checked.report.traffic["backward"].received_bytes > 0
    assert checked.report.has_explicit_backward


class Sorted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigh(x)[0]


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x, 4, 0, 3)


def test_what_the_table_has_not_is_named() -> None:
    with pytest.raises(ReshardError, match="eigh"):
        check(Sorted(), [torch.ones(4, 4)], "x=2", {})
    with pytest.raises(ReshardError, match="histc.default has the argument max=3"):
        check(Scaled(), [torch.ones(4, 4)], "x=2", {})


class Block(torch.nn.Module):
    """Ops for which DTensor calls no all-to-all, since CPUs do not have one."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return torch.softmax(h, -1).mean()


WAYS = {
    "megatron": {"up.*": "I,S(0)", "down.weight": "I,S(1)", "x": "S(0),R"},
    "shards of rows": {"up.weight": "I,S(1)", "down.weight": "S(0),S(0)", "x": "S(0),S(1)"},
    "data parallel": {"x": "S(0),S(0)"},
    "all sharded": {"up.weight": "S(0),S(0)", "down.weight": "S(0),S(0)", "x": "S(0),S(0)"},
}


def by_itself(rank: int, name: str) -> list[tuple[str, list[str], int, int]]:
    """Runs the module, and returns DTensor's redistributions: their specs, calls, bytes and counts."""
    mesh = device_mesh((2, 4), ("dp", "tp"))
    torch.manual_seed(0)
    module = Block()
    placed = WAYS[name]

    def placements(of: str) -> list[Placement]:
        text = next((text for pattern, text in placed.items() if fnmatch.fnmatchcase(of, pattern)), "R,R")
        return [Replicate() if word in ("R", "I") else Shard(int(word[2])) for word in text.split(",")]

    for path, part in module.named_modules():
        for key, parameter in list(part.named_parameters(recurse=False)):
            full = f"{path}.{key}" if path else key
            part.register_parameter(key, torch.nn.Parameter(distribute_tensor(parameter.detach(), mesh, placements(full), src_data_rank=None)))
    x = distribute_tensor(torch.ones(8, 16), mesh, placements("x"), src_data_rank=None)
    with audit() as seen:
        loss = module(x)
        loss.backward()
        # Both sides end with the types of the program.
        loss.redistribute(placements=[Replicate(), Replicate()])
        for parameter in module.parameters():
            parameter.grad.redistribute(placements=parameter.placements)
    return [(one.title.partition(": ")[2], [call.kind for call in one.calls], one.received_bytes, one.times) for one in seen.moved]


@pytest.mark.parametrize("name", list(WAYS))
def test_what_dtensor_would_redistribute_is_what_it_does(eight: Ranks, name: str) -> None:
    beside = check(Block(), [torch.ones(8, 16)], "dp=2,tp=4", WAYS[name], pinned={"output": "R,R"}, gradient=True).beside
    assert beside.stopped is None
    # On CPUs a change of dims is a gather, of which a part is used: then the calls are compared without their
    # bytes.
    foretold: Counter[tuple[str, tuple[str, ...], int]] = Counter()
    changes = set()
    for one in (one for row in beside.rows for one in row.theirs or ()):
        calls = tuple("all_gather" if call == "all_to_all" else call for call in one.calls)
        if calls != one.calls:
            changes.add((one.what, calls))
        foretold[(one.what, calls, 0 if calls != one.calls else one.received_bytes)] += 1
    done: Counter[tuple[str, tuple[str, ...], int]] = Counter()
    for what, called, received, times in eight.run(by_itself, name)[0]:
        calls = tuple(called)
        done[(what, calls, 0 if (what, calls) in changes else received)] += times
    assert foretold == done
    assert any(row.theirs and row.op.endswith("a result") for row in beside.rows)


def test_moves_stand_beside_those_of_dtensor() -> None:
    checked = check(Attention(), [torch.zeros(4, 8, dtype=torch.int64)], "dp=2,tp=4", PLACEMENTS, gradient=True)
    beside = checked.beside
    assert beside.stopped is None, beside.stopped
    # All redistributions of the program are listed, with the bytes of its report.
    for of in ("forward", "backward"):
        ours, theirs = beside.received_bytes(of)
        assert ours == checked.report.traffic[of].received_bytes and theirs > 0
        bound = sum(row.bound_bytes for row in beside.rows if row.of == of)
        assert 0 < bound <= ours
    softmax = next(row for row in beside.rows if row.op.startswith("softmax"))
    assert softmax.theirs and softmax.of == "forward"
    assert any(row.ours and row.of == "forward" for row in beside.rows)
    for line in ("ours", "DTensor", f"forward: ours {beside.received_bytes('forward')[0]} B"):
        assert line in str(checked)


class Batched(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.addbmm(x, y, z)


def test_where_dtensor_has_no_way_it_is_said() -> None:
    beside = check(Batched(), [torch.ones(4, 4), torch.ones(2, 4, 4), torch.ones(2, 4, 4)], "x=2", {"y": "S(0)"}).beside
    assert beside.stopped is not None and beside.stopped.startswith("addbmm")
    assert "DTensor stopped: addbmm" in str(beside)
    # What DTensor would have done from there on is not known.
    assert beside.received_bytes("forward")[1] is None and "DTensor -" in str(beside)


class Counting(torch.nn.Module):
    """A block that writes a buffer: its result is not the first output of its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        return (self.up(x) * 2).square().mean()


def test_dtensor_differentiates_what_is_returned_and_not_a_buffer() -> None:
    placed = {"up.*": "S(0)", "x": "S(0)"}
    checked = check(Counting(), [torch.ones(8, 16)], "x=2", placed, gradient=True)
    assert checked.beside.stopped is None
    assert checked.program[checked.results[0]].shape == ()

    class Plain(Counting):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.up(x) * 2).square().mean()

    plain = check(Plain(), [torch.ones(8, 16)], "x=2", placed, gradient=True).beside
    found = [(row.of, row.theirs) for row in checked.beside.rows if row.theirs]
    assert found == [(row.of, row.theirs) for row in plain.rows if row.theirs] and any(of == "backward" for of, _ in found)


def after_a_check(rank: int) -> None:
    """The same module runs after its check, on a device mesh of the same ranks and names."""
    module = torch.nn.LayerNorm(16)
    check(module, [torch.ones(8, 16)], "dp=2,tp=4", {"input": "S(0),S(1)"})
    x = dtensor(whole_of((8, 16)), [Shard(0), Shard(1)], device_mesh((2, 4), ("dp", "tp")))
    with implicit_replication():
        made = module(x)
    torch.testing.assert_close(made.full_tensor(), module(whole_of((8, 16))))


def test_a_module_runs_after_its_check(eight: Ranks) -> None:
    eight.run(after_a_check)
