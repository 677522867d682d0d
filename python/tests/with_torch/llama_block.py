"""A decoder with the linear layers of Llama, under FSDP2 and tensor parallelism."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from torch.distributed.tensor import Replicate

WIDTH, HEADS, KV_HEADS, HIDDEN, WORDS = 64, 4, 2, 128, 96


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.of_head = WIDTH // HEADS
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * self.of_head, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * self.of_head, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (_local(layer(x)).unflatten(-1, (-1, self.of_head)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        k, v = (one.repeat_interleave(HEADS // KV_HEADS, 1) for one in (k, v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(), Mlp()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), words.flatten())


def _local(x: torch.Tensor) -> torch.Tensor:
    return x.to_local() if hasattr(x, "to_local") else x


def decoder(mesh: DeviceMesh, *, shares_inputs: bool = False, keeps_last: bool = False) -> Decoder:
    """Returns a decoder on a mesh of dp and tp, as a beginner writes it, or with the repairs that audits propose."""
    torch.manual_seed(0)
    model = Decoder()
    for at, layer in enumerate(model.layers):
        plan = {
            "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(), "attention.o": RowwiseParallel(),
            "mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(),
        }  # fmt: skip
        if shares_inputs:
            for parent in ("attention", "mlp"):
                plan[parent] = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=not (keeps_last and at == 1))
    fully_shard(model, mesh=mesh["dp"])
    return model
