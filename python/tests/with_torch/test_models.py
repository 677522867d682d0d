"""Constructs of real models: the loss and all gradients on four ranks equal PyTorch's."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ranks import Ranks
import reshard
from reshard import Program, ReshardError
from reshard.torch import CheckReport, Runner, check
from reshard.torch.run import cut


def input_name(of: str) -> str:
    return of.replace(".", "_")


def checked(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> CheckReport:
    """Checks a module with the batch over dp and, where it divides, dim 0 of each parameter over tp."""
    placements = {name: "I,S(0)" if one.dim() and one.shape[0] % 2 == 0 else "I,I" for name, one in module.named_parameters()}
    return check(module, inputs, "dp=2,tp=2", {**placements, "batch*": "S(0),R", "*": "I,I"}, gradient=True)


def given_to(made: CheckReport, module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    known = {input_name(name): one.detach() for name, one in [*module.named_parameters(), *module.named_buffers()]}
    known |= {name: one for name, one in zip((name for name in made.program.inputs if name.startswith("batch")), inputs, strict=True)}
    known |= made.constants
    return {name: known[name] for name in made.program.inputs}


def assert_equals_pytorch(module: torch.nn.Module, inputs: Sequence[torch.Tensor], tolerance: float = 1e-9) -> CheckReport:
    made = checked(module, inputs)
    given = {name: one.numpy() for name, one in given_to(made, module, inputs).items()}
    ranks = made.program.on_ranks(given, kernels="reference")  # with liveness, so that gradients have to be results
    loss = module(*(one.clone() for one in inputs))
    loss.backward()
    np.testing.assert_allclose(ranks.whole(made.results[0]), loss.detach(), rtol=tolerance)
    compared = 0
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            wanted = parameter.grad.numpy()
            near = tolerance * max(float(np.abs(wanted).max()), 1e-3)
            np.testing.assert_allclose(ranks.whole(f"d{input_name(name)}"), wanted, rtol=0, atol=near, err_msg=name)
            compared += 1
    assert compared > 0
    return made


class Decoder(torch.nn.Module):
    """A decoder block: rotary tables, a mask of a window, fewer keys than queries, and ignored labels."""

    inverse: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = torch.nn.Embedding(24, 16, padding_idx=0)
        self.q, self.k, self.v, self.out = (torch.nn.Linear(16, n, bias=False) for n in (16, 8, 8, 16))
        self.scale = torch.nn.Parameter(torch.rand(16))
        self.gate, self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.head = torch.nn.Linear(16, 24, bias=False)
        self.head.weight = self.tokens.weight
        self.frozen = torch.nn.Parameter(torch.ones(16), requires_grad=False)
        self.register_buffer("inverse", 1 / 100 ** (torch.arange(0, 4, 2) / 4), persistent=False)

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)) * self.frozen

    def forward(self, batch: torch.Tensor, batch_labels: torch.Tensor) -> torch.Tensor:
        h = self.tokens(batch)
        b, s, _ = h.shape
        positions = torch.arange(s, device=h.device)
        angles = positions[:, None].float() @ self.inverse.float()[None, :].expand(1, -1)
        table = torch.cat((angles, angles), -1)
        cos, sin = table.cos()[None, None].to(h.dtype), table.sin()[None, None].to(h.dtype)
        mask = (positions[:, None] >= positions) & (positions[:, None] - positions < 4)

        def turned(x: torch.Tensor) -> torch.Tensor:
            one, two = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
            return x * cos + torch.cat((-two, one), -1) * sin

        x = self.norm(h)
        q, k, v = (part(x).view(b, s, -1, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(turned(q), turned(k), v, attn_mask=mask[None, None].expand(b, 1, s, s), enable_gqa=True)
        h = h + self.out(a.transpose(1, 2).reshape(b, s, -1).contiguous())
        x = self.norm(h)
        h = h + self.down(F.silu(self.gate(x)) * self.up(x))
        labels = F.pad(batch_labels, (0, 1), value=-100)[..., 1:].contiguous()
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1).to(torch.float64), labels.view(-1).to(torch.int64), ignore_index=-100)


def tokens_and_labels() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens, labels = (torch.randint(0, 24, (4, 8), generator=generator) for _ in range(2))
    tokens[:, -2:] = 0
    labels[0, 3:] = -100
    return [tokens, labels]


def test_a_decoder_block_is_pytorch() -> None:
    module = Decoder().double()
    made = assert_equals_pytorch(module, tokens_and_labels())
    # Tables and the mask are constants, and a program of the batch's shapes has no statements for them.
    assert 3 <= len(made.constants) <= 4 and "cos" not in str(made.program.statements)
    assert module.tokens.weight.grad is not None and "dfrozen" not in made.program
    for name, elements in made.constants.items():
        assert made.program[name].type == "R|-,R|-" and made.program[name].shape == tuple(elements.shape)


def run_by_ranks(rank: int, program: Program, given: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    runner = Runner(program)
    made = runner({name: runner.shard(name, whole) for name, whole in given.items()})
    for name, whole in wanted.items():
        torch.testing.assert_close(made[name], cut(program[name].sharding, whole, rank), rtol=1e-4, atol=1e-5)


def test_pytorch_runs_a_decoder_block_on_ranks_with_their_part_of_the_batch(four: Ranks) -> None:
    module, inputs = Decoder(), tokens_and_labels()
    made = checked(module, inputs)
    loss = module(*inputs)
    loss.backward()
    wanted = {f"d{input_name(name)}": one.grad for name, one in module.named_parameters() if one.grad is not None}
    four.run(run_by_ranks, made.program, given_to(made, module, inputs), {**wanted, made.results[0]: loss.detach()})


class Outputs(torch.nn.Module):
    """A loss that its own gradient uses, the values that it is made of, and an input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = self.head(batch).tanh()
        return logits.square().mean().sqrt(), logits, logits, batch


@pytest.mark.parametrize("gradient", [False, True])
def test_all_results_are_live_at_the_end(gradient: bool) -> None:
    torch.manual_seed(3)
    module, batch = Outputs().double(), torch.randn(4, 8, dtype=torch.float64)
    made = check(module, [batch], "dp=2,tp=2", {"batch": "S(0),R", "head.weight": "I,S(0)"}, gradient=gradient)
    assert len(set(made.results)) == 4 and reshard.Graph.parse(str(made.program.graph())).solve() == made.program
    ranks = made.program.on_ranks({name: one.numpy() for name, one in given_to(made, module, [batch]).items()}, kernels="reference")
    for name, wanted in zip(made.results, module(batch), strict=True):
        np.testing.assert_allclose(ranks.whole(name), wanted.detach(), rtol=1e-12, err_msg=name)


Construct = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def written(x: torch.Tensor, index: tuple[Any, ...], value: torch.Tensor) -> torch.Tensor:
    """Returns a copy with some elements overwritten."""
    made = x.clone()
    made[index] = value
    return made


# Functions of a parameter [6, 8], of a batch [4, 6] of numbers, and of a batch [4, 3] of indices below 6.
CONSTRUCTS: dict[str, Construct] = {
    "index of one dim": lambda w, x, i: w[:, i % 5 - 5],
    "index of several": lambda w, x, i: w[i[:, :, None], torch.arange(2)],
    "index after a dim": lambda w, x, i: w.view(2, 3, 8)[:, i % 3, i],
    "index around a dim": lambda w, x, i: w.view(2, 3, 8)[i % 2, :, i],
    "index of constants": lambda w, x, i: w[torch.tensor([[0, -1], [2, 3]])],
    "written": lambda w, x, i: torch.index_put(w * 1, [torch.tensor([1, -1])], w[:2] * 3),
    "accumulated": lambda w, x, i: torch.index_put(w * 1, [i.flatten()], w[0].expand(12, 8), accumulate=True),
    "written where": lambda w, x, i: torch.index_put(w * 1, [w > 0.5], torch.tensor(0.25, dtype=w.dtype)),
    "rows written where": lambda w, x, i: torch.index_put(w * 1, [w[:, 0] > 0], w[0] * 2) * torch.index_put(w * 2, [w[:, 0] > 0], w[:1, 0] * 3),
    "columns written where": lambda w, x, i: written(w, (slice(None), w[0] > 0), w[:, :1] * 2),
    "matrices written where": lambda w, x, i: written(w.view(2, 3, 8), (slice(None), w[:3] > 0), w[:2, 3:4]),
    "accumulated where": lambda w, x, i: torch.index_put(w * 1, [w > 0.5], w[0, 0], accumulate=True),
    "rows accumulated where": lambda w, x, i: torch.index_put(w * 1, [w[:, 1] > 0], w[1], accumulate=True),
    "compared": lambda w, x, i: w * (w > 0.3) + w * (i[0, 0] == 2) + w * (w != 0),
    "chosen": lambda w, x, i: torch.where(w > 0, w, 0.5) + torch.where(w < 0, 2, w),
    "cast": lambda w, x, i: w * w.to(torch.int64) + w * w.bool() + w * i.sum().float().double(),
    "masks": lambda w, x, i: w * ((w > 0) & (w < 1) | (w < -1)) + w * (i.to(torch.int32).cumsum(1).sum() & 3) + torch.cat([torch.empty(0), w], 1),
    "split": lambda w, x, i: torch.cat([one * n for n, one in enumerate(w.split([1, 5, 2], 1))], 1),
    "flattened": lambda w, x, i: w.view(2, 3, 8).flatten(1) * w.flatten().unflatten(0, (2, 24)),
    "repeated": lambda w, x, i: w.repeat_interleave(2, 1).repeat(2, 1) + w.tile(2, 2),
    "einsum": lambda w, x, i: torch.einsum("...i,ij", x[None], w) + torch.einsum("b i, i j -> b j", x, w),
    "triangles": lambda w, x, i: w.tril(-1) + w.triu(2) + w.tril(),
    "bounds": lambda w, x, i: w.clamp(0.1, math.inf) + w.clamp(max=0.5) + torch.clamp(w, min=w * 0.5),
    "extrema": lambda w, x, i: torch.max(w, w * 2).min(w + 1) + w.max() + w.amin() + w.max(1, keepdim=True).values,
    "powers": lambda w, x, i: 2**w + torch.pow(w, 3) + 1 / (w + 9),
    "factors": lambda w, x, i: torch.add(w, w, alpha=3) + torch.rsub(w, 2, alpha=0.5) + torch.sub(w, 1, alpha=2),
    "rounded": lambda w, x, i: w * torch.div(w, 0.3, rounding_mode="floor") + w * torch.div(w, 0.3, rounding_mode="trunc"),
    "transposed": lambda w, x, i: w.T.mT * w + w.swapaxes(0, 1).movedim(0, 1),
    "factories": lambda w, x, i: w + w.new_zeros(6, 8) + torch.full_like(w, 2) + w.new_ones(8) + torch.arange(8) + torch.empty_like(w).fill_(3),
    "shapes": lambda w, x, i: w[0].expand_as(w) + torch.broadcast_tensors(w, w[:1])[1] + w.view_as(w) + w.type_as(x),
    "experts": lambda w, x, i: torch.zeros_like(x).scatter(1, x.topk(2, -1).indices, 1.0) @ w,
    "of types": lambda w, x, i: torch.outer(w[0], torch.arange(3)) + torch.outer(w[0], torch.ones(3) * 2),
    "resized": lambda w, x, i: F.interpolate(w.view(2, 3, 2, 4), scale_factor=2.0) * F.interpolate(w.view(2, 3, 2, 4), (4, 8), mode="bilinear"),
    "norms": lambda w, x, i: F.group_norm(w.view(2, 6, 4), 3) * F.layer_norm(w.view(2, 6, 4), (4,), bias=w[0, :4]) * F.rms_norm(w.view(2, 6, 4), (6, 4)),
    "quotients": lambda w, x, i: w / (x @ w.detach()).sum(),
    "lengths": lambda w, x, i: torch._weight_norm(w, w[:, :1]) + torch._weight_norm(w.view(2, 3, 8), w.view(2, 3, 8)[:1, :1], 2).view(6, 8),
    "pools": lambda w, x, i: F.avg_pool1d(w, 3, 1, 1) + F.max_pool1d(w, 3, 1, 1) + F.adaptive_avg_pool1d(w, 1) + F.adaptive_avg_pool1d(w, 8),
    "convolved": lambda w, x, i: F.conv1d(w[None], w.view(2, 6, 4), padding="same") + F.conv1d(w[None], w.view(2, 6, 4)[..., 1:], padding="same"),
    "padded": lambda w, x, i: F.pad(w[None], (2, 1), mode="reflect") + F.pad(w[None], (1, 2), mode="replicate"),
    "unfolded": lambda w, x, i: w.unfold(1, 4, 2) * w.unbind(0)[0][:4],
    "images": lambda w, x, i: F.instance_norm(w.view(2, 3, 8)) + F.pixel_shuffle(F.pixel_unshuffle(w.view(1, 3, 4, 4), 2), 2).view(2, 3, 8).movedim((0, 1), (0, -2)),
    "looked up": lambda w, x, i: F.embedding(i, w, padding_idx=2) * F.embedding(i, w),
    "classes": lambda w, x, i: F.cross_entropy(x @ w, i[:, 0], ignore_index=3) + F.cross_entropy(x @ w, i[:, 1], reduction="sum", label_smoothing=0.2),
    "classes of points": lambda w, x, i: F.cross_entropy((x @ w)[:, :, None].expand(4, 8, 3), i, reduction="none"),
    "weighted classes": lambda w, x, i: F.cross_entropy(x @ w, i[:, 2], weight=torch.arange(8.0).double()) + F.nll_loss(x @ w, i[:, 0], ignore_index=1),
    "chances": lambda w, x, i: F.cross_entropy(x @ w, torch.softmax(x @ w * 2, -1), label_smoothing=0.1) + F.cross_entropy(w[0], i[0, 0]),
    "differences": lambda w, x, i: F.mse_loss(x @ w, w[:4]) + F.smooth_l1_loss(w, w * 2) + F.l1_loss(w, w * 3, reduction="sum"),
}  # fmt: skip


class Constructs(torch.nn.Module):
    """The sum of the squares of all constructs, with a parameter for each."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.names = list(names)
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(6, 8, dtype=torch.float64)) for _ in self.names])

    def forward(self, batch: torch.Tensor, batch_indices: torch.Tensor) -> torch.Tensor:
        made = [CONSTRUCTS[name](weight, batch, batch_indices) for name, weight in zip(self.names, self.weights, strict=True)]
        return torch.stack([one.double().square().mean() for one in made]).sum()


@pytest.mark.parametrize("at", range(3))
def test_constructs_of_models_have_the_gradients_of_pytorch(at: int) -> None:
    names = list(CONSTRUCTS)[at::3]
    generator = torch.Generator().manual_seed(2)
    inputs = [torch.randn(4, 6, dtype=torch.float64, generator=generator), torch.randint(0, 6, (4, 3), generator=generator)]
    assert_equals_pytorch(Constructs(names), inputs)


class Normalized(torch.nn.Module):
    """Batch norms with running statistics, which training writes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm1d(4, affine=False)
        self.weight = torch.nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        x = self.one(F.conv2d(batch, self.weight))
        loss: torch.Tensor = (self.two(x.flatten(2)) * x.flatten(2).sigmoid()).sum()
        return loss


@pytest.mark.parametrize("training", [False, True])
def test_running_statistics_are_constants_unless_training_writes_them(training: bool) -> None:
    module = Normalized().double().train(training)
    x = torch.randn(4, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    made = checked(module, [x])
    given = {name: one.clone().numpy() for name, one in given_to(made, module, [x]).items()}
    before = {name: one.clone() for name, one in module.named_buffers()}
    loss = module(x)
    loss.backward()
    ranks = made.program.on_ranks(given, kernels="reference")
    np.testing.assert_allclose(ranks.whole(made.results[0]), loss.detach(), rtol=1e-9)
    assert module.weight.grad is not None
    np.testing.assert_allclose(ranks.whole("dweight"), module.weight.grad, rtol=1e-7, atol=1e-9)
    written = [name for name, one in module.named_buffers() if not torch.equal(one, before[name])]
    assert bool(written) == training and (training or "one_running_mean" in made.constants)
    for name in written:
        np.testing.assert_allclose(ranks.whole(f"{input_name(name)}'"), module.get_buffer(name), rtol=1e-9, atol=1e-12)


class Dropping(torch.nn.Module):
    """Dropout of activations and of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = (torch.nn.Parameter(torch.ones(64, 64)) for _ in range(2))
        self.value = torch.nn.Parameter(torch.ones(2, 8, 16))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        attended = F.scaled_dot_product_attention(batch, batch, self.value, dropout_p=0.5, is_causal=True)
        return F.dropout(self.weight, 0.25).sum() + F.dropout(self.other, 0.25).sum() + attended.sum()


def test_dropout_draws_by_a_key_of_its_own_and_backward_draws_the_same() -> None:
    module = Dropping()
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(4))
    made = checked(module, [x])
    given = {name: one.numpy() for name, one in given_to(made, module, [x]).items()}
    ranks = made.program.on_ranks(given, kernels="reference")
    one, two = ranks.whole("dweight"), ranks.whole("dother")
    for gradient in (one, two):
        assert set(np.unique(gradient)) == {np.float32(0), np.float32(1 / 0.75)}
        assert abs((gradient == 0).mean() - 0.25) < 0.02
    assert (one != two).any()
    # The values are ones, so that the sum of a value's gradients is that of the result.
    value = ranks.whole("dvalue")
    np.testing.assert_allclose(ranks.whole(made.results[0]), one.sum() + two.sum() + value.sum(), rtol=1e-5)


class Deciding(torch.nn.Module):
    """A module with a submodule whose shapes its data decide."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.LSTM(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.inner(x)[0]
        return made


def test_an_op_that_programs_do_not_have_is_reported_with_its_module_and_line() -> None:
    with pytest.raises(ReshardError, match=r"aten.lstm.input is not an op of the table \(module inner, File .*rnn.py, line \d+, in forward\)"):
        check(Deciding(), [torch.ones(4, 2, 8)], "x=2", {})


class Chooses(torch.nn.Module):
    """A module whose submodule applies a function to its input and to a mask."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.forward = function

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.inner(x, mask)
        return made.sum()


KEEPS_SHAPE = r"programs have fixed shapes: write torch\.where or masked_fill, which keep the shape \(module inner, File .*test_models\.py, line \d+, in "


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x, mask: x[mask], r"aten\.index\.Tensor indexes by the mask mask, and the number of its true elements depends on data; "),
        (lambda x, mask: x[mask[:, 0]], r"aten\.index\.Tensor indexes by a mask, and the number of its true elements depends on data; "),
        (lambda x, mask: torch.index_put(x, [mask], torch.arange(4.0)), r"aten\.index_put\.default writes another value of \[4\] for each true element of"),
        (lambda x, mask: torch.index_put(x, [mask[:, 0], mask[0]], torch.tensor(1.0)), r"aten\.index_put\.default indexes by a mask, and the number"),
        (lambda x, mask: x.masked_select(mask), r"aten\.masked_select\.default has a result whose shape depends on data; "),
        (lambda x, mask: x[0, mask[0].nonzero()], r"aten\.nonzero\.default has a result whose shape depends on data; "),
        (lambda x, mask: torch.where(mask)[0], r"aten\.where\.default has a result whose shape depends on data; "),
    ],
    ids=["read", "rows", "several values", "two masks", "select", "nonzero", "where"],
)
def test_what_data_size_is_reported_with_its_location_and_what_to_write(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], text: str) -> None:
    with pytest.raises(ReshardError, match=f"{text}.*{KEEPS_SHAPE}"):
        check(Chooses(function), [torch.ones(8, 4), torch.arange(32).reshape(8, 4) % 3 == 0], "x=2", {})
