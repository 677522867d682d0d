"""A module that is checked is a program that computes what the module does."""

import numpy as np
import pytest
import torch

from reshard import ReshardError
from reshard.torch import check


class Attention(torch.nn.Module):
    """Tokens, attention, a norm and a small network: what `torch.export` makes of a model."""

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
    (result,) = [name for name in one if name == checked.program.items[-1].makes[0]]
    np.testing.assert_allclose(one[result], module(tokens).detach().numpy(), rtol=1e-9)
    ranks = checked.program.on_ranks(given, kernels="reference")
    np.testing.assert_allclose(ranks.whole(result), one[result], rtol=1e-9)
    assert checked.report.traffic["forward"].received_bytes > 0
    assert "S(0),S(" in str(checked) and "peak" in str(checked)


def test_the_backward_pass_is_checked_too() -> None:
    checked = check(Attention(), [torch.zeros(4, 8, dtype=torch.int64)], "dp=2,tp=4", PLACEMENTS, gradient=True)
    assert checked.report.traffic["backward"].received_bytes > 0
    assert checked.report.gradients_written


class Sorted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigh(x)[0]


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, x, alpha=2)


def test_what_the_table_has_not_is_named() -> None:
    with pytest.raises(ReshardError, match="eigh"):
        check(Sorted(), [torch.ones(4, 4)], "x=2", {})
    with pytest.raises(ReshardError, match="alpha=2"):
        check(Scaled(), [torch.ones(4, 4)], "x=2", {})
