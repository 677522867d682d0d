"""Steps of training, inference and evaluation by PyTorch's own parallel APIs, on a device mesh of two axes.

Each is a function of the device mesh that returns the step, a function of no arguments that returns this rank's tensors
to compare. A step changes nothing but its own model, so that two of them with equal calls have equal results.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module

WIDTH, HIDDEN, HEADS, WORDS, TOKENS = 512, 1024, 8, 4096, 512
Step = Callable[[], list[torch.Tensor]]
R = Replicate()


class Attention(nn.Module):
    """Attention over `[batch, tokens, width]` without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """A gated MLP, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A layer of a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp, self.before, self.between = Attention(), Mlp(), nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


def block(mesh: DeviceMesh) -> tuple[Block, Step]:
    """Returns a layer by FSDP2 on the first axis and tensor and sequence parallelism on the second, and its training step.

    The step is forward and backward alone; it returns the gradients.
    """
    torch.manual_seed(0)
    model = Block()
    first, second = mesh.mesh_dim_names or ()
    whole, rows = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=R), RowwiseParallel(output_layouts=Shard(1))
    plan: dict[str, Any] = {"before": SequenceParallel(), "between": SequenceParallel(), "attention": whole, "mlp": whole}
    plan |= {f"attention.{name}": ColwiseParallel() for name in "qkv"} | {"mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel()}
    parallelize_module(model, mesh[second], plan | {"attention.o": rows, "mlp.down": rows})
    fully_shard(model, mesh=mesh[first])
    batch = torch.randn(2, TOKENS // 2, WIDTH, generator=torch.Generator().manual_seed(mesh.get_local_rank(0)))
    x = batch.chunk(mesh.size(1), 1)[mesh.get_local_rank(1)]

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(x).square().mean().backward()
        return [one.grad.to_local() for one in model.parameters() if isinstance(one.grad, DTensor)]

    return model, gradients


def shards(model: nn.Module) -> list[torch.Tensor]:
    """Returns a copy of this rank's shards of the parameters."""
    return [one.to_local().detach().clone() for one in model.parameters() if isinstance(one, DTensor)]


def matrices(model: nn.Module) -> list[DTensor]:
    """Returns the parameters of two dims."""
    return [one for one in model.parameters() if isinstance(one, DTensor) and one.ndim == 2]


def trained(model: Block, gradients: Step, norm: float | None = None) -> Step:
    """Returns a training step with AdamW, and with `clip_grad_norm_` if a norm is given."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> list[torch.Tensor]:
        gradients()
        if norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        return shards(model)

    return step


def train(mesh: DeviceMesh) -> Step:
    """Training with AdamW."""
    return trained(*block(mesh))


def clip(mesh: DeviceMesh) -> Step:
    """Training with AdamW and `clip_grad_norm_`."""
    return trained(*block(mesh), norm=0.1)


def muon(mesh: DeviceMesh) -> Step:
    """Training of the matrices with `torch.optim.Muon`."""
    model, gradients = block(mesh)
    optimizer = torch.optim.Muon(matrices(model), 1e-3)

    def step() -> list[torch.Tensor]:
        gradients()
        optimizer.step()
        return shards(model)

    return step


def newton_schulz(g: torch.Tensor) -> torch.Tensor:
    """Orthogonalizes a matrix, as Muon does."""
    x = g.bfloat16()
    x = x.T if g.shape[0] > g.shape[1] else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def muon_gathered(mesh: DeviceMesh) -> Step:
    """Training of the matrices with Muon that gathers each by `full_tensor()` and orthogonalizes it on every rank."""
    model, gradients = block(mesh)

    def step() -> list[torch.Tensor]:
        gradients()
        with torch.no_grad():
            for one in matrices(model):
                assert isinstance(one.grad, DTensor)
                whole = newton_schulz(one.grad.full_tensor()).to(one.dtype)
                one.add_(DTensor.from_local(whole, one.device_mesh, [R, R], run_check=False).redistribute(placements=one.placements), alpha=-1e-3)
        return shards(model)

    return step


def shampoo(mesh: DeviceMesh) -> Step:
    """Forward, backward, and the factors of Shampoo, `g @ g.T` and `g.T @ g`, sharded by rows on all ranks."""
    model, gradients = block(mesh)

    def step() -> list[torch.Tensor]:
        gradients()
        with torch.no_grad():
            factors = [factor for one in matrices(model) if one.grad is not None for factor in (one.grad @ one.grad.T, one.grad.T @ one.grad)]
            return [one.redistribute(placements=[Shard(0), Shard(0)]).to_local() for one in factors if isinstance(one, DTensor)]

    return step


def state_dict(mesh: DeviceMesh) -> Step:
    """The full state dict of the layer, by `get_model_state_dict`."""
    model, _ = block(mesh)
    return lambda: [one for one in get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)).values() if isinstance(one, torch.Tensor)]


def rollout(mesh: DeviceMesh) -> Step:
    """Training with AdamW, and the matrices to tensor parallelism on all ranks, for generation."""
    model, gradients = block(mesh)
    training = trained(model, gradients)
    layout = [(one, [Shard(1 if name.endswith(("o.weight", "down.weight")) else 0)] * 2) for name, one in model.named_parameters() if one.ndim == 2]

    def step() -> list[torch.Tensor]:
        training()
        with torch.no_grad():
            return [one.redistribute(placements=wanted).to_local() for one, wanted in layout if isinstance(one, DTensor)]

    return step


def average(mesh: DeviceMesh) -> Step:
    """Training with AdamW, and an average of the matrices that is sharded by rows on all ranks."""
    model, gradients = block(mesh)
    training = trained(model, gradients)
    kept = [one.detach().redistribute(placements=[Shard(0), Shard(0)]).clone() for one in matrices(model)]

    def step() -> list[torch.Tensor]:
        training()
        with torch.no_grad():
            for mean, one in zip(kept, matrices(model), strict=True):
                mean.lerp_(one.redistribute(placements=mean.placements), 0.1)
        return [one.to_local().clone() for one in kept]

    return step


def scattered(mesh: DeviceMesh, seed: int, *shape: int, to: list[Any], grad: bool = False) -> DTensor:
    """Returns a random DTensor, equal on all ranks, with scaled elements."""
    whole = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / math.sqrt(shape[-1])
    return distribute_tensor(whole, mesh, to, src_data_rank=None).requires_grad_(grad)


def mlp_both_axes(mesh: DeviceMesh) -> Step:
    """Forward and backward of an MLP with tensor and sequence parallelism on both axes."""
    up, down = (scattered(mesh, of, *shape, to=to, grad=True) for of, shape, to in [(1, (HIDDEN, WIDTH), [Shard(0)] * 2), (2, (WIDTH, HIDDEN), [Shard(1)] * 2)])
    x = scattered(mesh, 3, 2 * TOKENS, WIDTH, to=[Shard(0)] * 2, grad=True)

    def step() -> list[torch.Tensor]:
        made = F.linear(F.gelu(F.linear(x.redistribute(placements=[R, R]), up)), down).redistribute(placements=[Shard(0)] * 2)
        grads = torch.autograd.grad(made.square().sum(), [up, down, x])
        return [made.to_local().detach(), *(one.redistribute(placements=of.placements).to_local() for one, of in zip(grads, (up, down, x), strict=True))]

    return step


def mlp_stationary(mesh: DeviceMesh) -> Step:
    """Inference of an MLP with stationary weights sharded on both axes and both dims, activations by width."""
    up, down = scattered(mesh, 1, HIDDEN, WIDTH, to=[Shard(1), Shard(0)]), scattered(mesh, 2, WIDTH, HIDDEN, to=[Shard(0), Shard(1)])
    x = scattered(mesh, 3, 2 * TOKENS, WIDTH, to=[Shard(1), Shard(1)])

    def step() -> list[torch.Tensor]:
        with torch.no_grad():
            made = F.linear(x.redistribute(placements=[Shard(1), R]), up).redistribute(placements=[Shard(1), Shard(1)])
            made = F.linear(F.gelu(made).redistribute(placements=[R, Shard(1)]), down)
            return [made.redistribute(placements=[Shard(1), Shard(1)]).to_local()]

    return step


class Ulysses(Attention):
    """Attention on this rank's part of a sequence that both axes shard: during attention they shard the heads."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh = mesh

    def switched(self, x: torch.Tensor, before: int, after: int) -> torch.Tensor:
        """Redistributes from one dim on both axes to another."""
        of = DTensor.from_local(x, self.mesh, [Shard(before)] * 2, run_check=False)
        return of.redistribute(placements=[Shard(after)] * 2).to_local()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.switched(layer(x).unflatten(-1, (HEADS, -1)), 1, 2).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.o(self.switched(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2), 2, 1).flatten(2))


def ulysses(mesh: DeviceMesh) -> Step:
    """Training with AdamW, FSDP2 on all ranks, and a sequence sharded on both axes, whose attention shards heads."""
    torch.manual_seed(0)
    model = Block()
    model.attention = Ulysses(mesh)
    ranks = init_device_mesh("cpu", (mesh.size(),))
    fully_shard(model, mesh=ranks)
    x = torch.randn(1, 4 * TOKENS // mesh.size(), WIDTH, generator=torch.Generator().manual_seed(ranks.get_local_rank()))

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(x).square().mean().backward()
        return []

    return trained(model, gradients)


class Experts(nn.Module):
    """Eight experts on all ranks; this rank's tokens go to one each, as many to an expert as its capacity, and return."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.router = nn.Parameter(scattered(mesh, 1, 8, WIDTH, to=[R, R]))
        self.up = nn.Parameter(scattered(mesh, 2, 8, WIDTH, HIDDEN, to=[Shard(0)] * 2))
        self.down = nn.Parameter(scattered(mesh, 3, 8, HIDDEN, WIDTH, to=[Shard(0)] * 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        capacity = len(x) // 4
        router = self.router.to_local(grad_placements=[Partial(), Partial()])  # type: ignore[attr-defined]
        shares, chosen = F.linear(x, router).softmax(-1).max(-1)
        one_hot = F.one_hot(chosen, 8)
        position = (one_hot.cumsum(0) * one_hot).sum(-1) - 1
        slot, kept = chosen * capacity + position.clamp(max=capacity - 1), (position < capacity).to(x.dtype)[:, None]
        slots = x.new_zeros(8 * capacity, WIDTH).index_add(0, slot, x * kept).view(8, capacity, WIDTH)
        of = DTensor.from_local(slots, self.mesh, [Shard(1)] * 2, run_check=False).redistribute(placements=[Shard(0)] * 2)
        made = torch.bmm(F.gelu(torch.bmm(of, self.up)), self.down).redistribute(placements=[Shard(1)] * 2)
        return x + made.to_local().flatten(0, 1)[slot] * kept * shares[:, None]


def experts(mesh: DeviceMesh) -> Step:
    """Training with AdamW of eight experts that both axes shard, with tokens that both axes shard."""
    model = Experts(mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x = scattered(mesh, 4, 4 * TOKENS, WIDTH, to=[Shard(0)] * 2).to_local()

    def step() -> list[torch.Tensor]:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        return shards(model)

    return step


def pairs(mesh: DeviceMesh) -> Step:
    """A pair representation, blocks of rows and columns: attention along rows, along columns, and its symmetric part."""
    side, channels = TOKENS // 4, 64
    weight = scattered(mesh, 1, 3 * channels, channels, to=[R, R])
    x = scattered(mesh, 2, side, side, channels, to=[Shard(0), Shard(1)])

    def along(pair: DTensor, dim: int) -> DTensor:
        """Returns the attention along a dim, while the other dim is sharded on both axes."""
        local = pair.redistribute(placements=[Shard(1 - dim)] * 2).to_local().transpose(1 - dim, 0)
        q, k, v = F.linear(local, weight.to_local()).chunk(3, -1)
        made = F.scaled_dot_product_attention(*(one.unflatten(-1, (4, -1)).transpose(1, 2) for one in (q, k, v))).transpose(1, 2).flatten(2)
        return DTensor.from_local(made.transpose(1 - dim, 0).contiguous(), mesh, [Shard(1 - dim)] * 2, run_check=False)

    def step() -> list[torch.Tensor]:
        with torch.no_grad():
            pair = x + along(x, 1).redistribute(placements=x.placements)
            pair = pair + along(pair, 0).redistribute(placements=x.placements)
            return [((pair + pair.transpose(0, 1)) / 2).redistribute(placements=x.placements).to_local()]

    return step


def vocabulary(mesh: DeviceMesh) -> Step:
    """A head whose words are sharded on the second axis, and its loss under `loss_parallel`."""
    weight = scattered(mesh, 1, WORDS, WIDTH, to=[R, Shard(0)], grad=True)
    x = scattered(mesh, 2, 2 * TOKENS, WIDTH, to=[Shard(0), R], grad=True)
    words = distribute_tensor(torch.arange(2 * TOKENS) % WORDS, mesh, [Shard(0), R], src_data_rank=None)

    def step() -> list[torch.Tensor]:
        with loss_parallel():
            loss = F.cross_entropy(F.linear(x, weight), words, reduction="sum")
            grads = torch.autograd.grad(loss, [weight, x])
        return [one.redistribute(placements=of.placements).to_local() for one, of in zip(grads, (weight, x), strict=True)]

    return step


STEPS: dict[str, Callable[[DeviceMesh], Step]] = {
    one.__name__: one
    for one in (
        train, clip, vocabulary, muon, muon_gathered, shampoo, state_dict, rollout, average, mlp_both_axes, mlp_stationary, ulysses, experts, pairs
    )
}  # fmt: skip
