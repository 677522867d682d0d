"""Small programs of four ranks: each has one planted waste, or none; a test counts the bytes by hand."""

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

from definition import device_mesh
from reshard.torch import planned

R, F32 = Replicate(), 4


def _mesh(name: str) -> object:
    return device_mesh((2, 2), ("dp", "tp"))[name]


def _world() -> object:
    return device_mesh((4,), ("all",))


def _numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gathered_twice(rank: int) -> None:
    own, once, twice = _numbers(16, seed=rank) + 1, torch.empty(64), torch.empty(64)
    dist.all_gather_into_tensor(once, own)
    mean = once.mean()
    dist.all_gather_into_tensor(twice, own.clone())
    (twice - mean).sum()


def full_in_a_loop(rank: int) -> None:
    w = distribute_tensor(_numbers(8, 4), _world(), [Shard(0)], src_data_rank=None)
    for factor in (1.0, 2.0, 3.0):
        (w.full_tensor() * factor).sum()


def gathered_then_sliced(rank: int) -> None:
    whole = torch.empty(32)
    dist.all_gather_into_tensor(whole, _numbers(8, seed=rank) + 1)
    (whole[:12] * 2).sum()


def gathered_along_columns_then_sliced(rank: int) -> None:
    x = distribute_tensor(_numbers(8, 16), _world(), [Shard(1)], src_data_rank=None)
    (x.redistribute(placements=[R])[:2] * 2).sum()


def reduced_then_sliced(rank: int) -> None:
    partial = _numbers(8, 8, seed=rank) * 2
    total = funcol.all_reduce(partial, "sum", _world())
    total.chunk(4, 1)[rank].relu().sum()


def reduced_then_scattered(rank: int) -> None:
    x = DTensor.from_local(_numbers(8, 8, seed=rank) * 2, _world(), [Partial()], run_check=False)
    x.redistribute(placements=[R]).redistribute(placements=[Shard(0)]).relu()


def reduced_axis_by_axis(rank: int) -> None:
    x = _numbers(32, seed=rank) * 2
    dist.all_reduce(x, group=_mesh("tp").get_group())
    dist.all_reduce(x, group=_mesh("dp").get_group())
    x.sum()


def small_reductions(rank: int) -> None:
    values = [_numbers(4, seed=rank + at) * 2 for at in range(3)]
    for value in values:
        dist.all_reduce(value)
    sum(value.sum() for value in values)


def reduced_before_added(rank: int) -> None:
    x = _numbers(8, 8, seed=rank)
    a, b = (funcol.all_reduce(x @ _numbers(8, 8, seed=seed), "sum", _mesh("tp")) for seed in (5, 6))
    (a.view(64) + b.view(64)).relu().sum()


class _Heads(nn.Module):
    """Three linear layers of one input."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.q(x) * self.k(x) + self.v(x)


def gradient_reduced_before_added(rank: int) -> None:
    heads = parallelize_module(_Heads(), _mesh("tp"), dict.fromkeys("qkv", ColwiseParallel()))
    (x := _numbers(4, 8) * 2).requires_grad_()
    heads(x).sum().backward()


def input_gathered_by_each(rank: int) -> None:
    heads = parallelize_module(_Heads(), _mesh("tp"), dict.fromkeys("qkv", ColwiseParallel(input_layouts=Shard(0))))
    with torch.no_grad():
        heads(_numbers(2, 8, seed=rank % 2) * 2).sum()


def last_layer_regathered(rank: int, *, keeps_last: bool = False) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 32, bias=False))
    fully_shard(model[0], mesh=_world())
    fully_shard(model[1], mesh=_world(), reshard_after_forward=not keeps_last)
    fully_shard(model, mesh=_world())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        model(_numbers(4, 16, seed=4 * step + rank)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def posted_late(rank: int) -> None:
    x, w = _numbers(128, 128, seed=rank), _numbers(128, 128, seed=9)
    y = x * 2
    z = x @ w
    dist.all_reduce(y)
    (y + z).sum()


def unbalanced(rank: int) -> None:
    rows = 12 if rank == 0 else 2
    received = torch.empty(18, 4)
    dist.all_to_all_single(received, _numbers(4 * rows, 4), [12, 2, 2, 2], [rows] * 4)
    received.sum()


def replicated_work(rank: int) -> None:
    x = distribute_tensor(_numbers(8, 16), _world(), [Shard(0)], src_data_rank=None).redistribute(placements=[R])
    w = distribute_tensor(_numbers(16, 4), _world(), [R], src_data_rank=None)
    (x @ w).relu().sum()


def dearer_than_the_plan(rank: int) -> None:
    x = distribute_tensor(_numbers(8, 8), _world(), [Shard(0)], src_data_rank=None)
    x.redistribute(placements=[Shard(1)]).relu()


def padded(rank: int) -> None:
    x = distribute_tensor(_numbers(5, 4), _world(), [Shard(0)], src_data_rank=None)
    (x.full_tensor() * 2).sum()


def clean_fsdp(rank: int) -> None:
    """Two steps, whose second gathers other values, and the last layer stays."""
    last_layer_regathered(rank, keeps_last=True)


def clean_tensor_parallel(rank: int) -> None:
    """One input of several layers, forward and backward, and then again from scratch for its activations."""
    plan = {**dict.fromkeys("qkv", ColwiseParallel()), "": PrepareModuleInput(input_layouts=R, desired_input_layouts=R)}
    heads = parallelize_module(_Heads(), _mesh("tp"), {name: plan[name] for name in "qkv"})
    heads = parallelize_module(heads, _mesh("tp"), plan[""])
    out = parallelize_module(nn.Linear(8, 8), _mesh("tp"), RowwiseParallel())
    (x := _numbers(4, 8) * 2).requires_grad_()
    y = checkpoint(lambda x: out(heads(x)).relu(), x, use_reentrant=False)
    y.sum().backward()


def clean_collectives(rank: int) -> None:
    """Overlap, whole results, equal splits, new values in a loop, results that are still used later."""
    x, w = _numbers(128, 128, seed=rank), _numbers(128, 128, seed=9)
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x @ w
    work.wait()
    whole, own = torch.empty(64), (y + z)[0, :16].contiguous()
    for _ in range(2):
        dist.all_gather_into_tensor(whole, own)
        own += whole.mean()
    received = torch.empty(16)
    dist.all_to_all_single(received, own)
    dist.broadcast(received, 0)
    dist.all_reduce(received, group=_mesh("tp").get_group())
    received.relu().sum()
    (funcol.all_reduce(own, "max", _world()) - funcol.all_reduce(own, "min", _world())).sum()
    for splits in ([4, 4, 4, 4], [16 * (at == rank) for at in range(4)]):
        dist.all_to_all_single(torch.empty(16), own, splits, splits)
    total = funcol.all_reduce(own, "sum", _world())
    (total[:4] * 2).sum()
    (total + received).sum()
    flag, loss = own[:1].clone(), own[1:2].clone()
    dist.all_reduce(flag)
    if flag.item() < 1e9:
        dist.all_reduce(loss)


def clean_redistributions(rank: int) -> None:
    """Uneven shards, which PyTorch pads; plans; a sum of a reduced and a local value; sums over other groups."""
    x = distribute_tensor(_numbers(7, 4), _world(), [Shard(0)], src_data_rank=None)
    (x.full_tensor() * 2).sum()
    with planned(strict=True):
        x.redistribute(placements=[Shard(1)]).relu()
    a, b = (_numbers(8, seed=rank + seed) * 2 for seed in (0, 7))
    over_tp, over_dp = funcol.all_reduce(a, "sum", _mesh("tp")), funcol.all_reduce(b, "sum", _mesh("dp"))
    (over_tp + over_dp + a).sum()


# Each program with its planted kind, the saved bytes of a rank, and the occurrences.
PLANTED: dict[Callable[[int], None], Callable[[int], list[tuple[str, int]]]] = {
    # Each rank receives three shards of 16 numbers again.
    gathered_twice: lambda rank: [("repeated", 3 * 16 * F32)],
    # Two of three times: three shards of 2 rows of 4.
    full_in_a_loop: lambda rank: [("full_tensor in a loop", 2 * 3 * 8 * F32)],
    # 12 of 32 are read: ranks 0 and 1 have 8 and 4 of them themselves, and receive 24 in all.
    gathered_then_sliced: lambda rank: [("gathered, then sliced", (24 - (12 - [8, 4, 0, 0][rank])) * F32)],
    # Two of 8 rows are read, each rank has a quarter of them.
    gathered_along_columns_then_sliced: lambda rank: [("gathered, then sliced", 3 * 8 * 4 * F32 * 6 // 8)],
    # A reduce_scatter receives three quarters of 64 numbers, an all_reduce twice as much.
    reduced_then_sliced: lambda rank: [("reduced, then sliced", 3 * 16 * F32)],
    reduced_then_scattered: lambda rank: [("reduced, then sliced", 3 * 16 * F32)],
    # Twice a half, twice, is 2; over all four ranks it is 3/2.
    reduced_axis_by_axis: lambda rank: [("reduced axis by axis", 32 * F32 * 2 - 32 * F32 * 3 // 2)],
    small_reductions: lambda rank: [("small reductions", 0)],
    # An all_reduce among two receives its operand once.
    reduced_before_added: lambda rank: [("reduced before added", 64 * F32)],
    gradient_reduced_before_added: lambda rank: [("reduced before added", 2 * 32 * F32)],
    # Two of three gathers of the other rank's 2 rows.
    input_gathered_by_each: lambda rank: [("repeated", 2 * 16 * F32)],
    # In each of two steps, three quarters of 16 x 32.
    last_layer_regathered: lambda rank: [("regathered", 2 * 3 * 16 * 32 // 4 * F32)],
    posted_late: lambda rank: [("posted late", 0)],
    # Rank 0 sends 12 of 16 rows, or is this rank; then the others send 2 each.
    unbalanced: lambda rank: [] if rank == 0 else [("unbalanced", 0)],
    replicated_work: lambda rank: [("replicated work", 0)],
    # Without a kernel for it, gloo gathers all: 3/4 of it; an exchange receives 3/4 of a shard.
    dearer_than_the_plan: lambda rank: [("better plan", (3 * 16 - 12) * F32)],
    # PyTorch gathers three shards of 2 rows, the plan 5 rows at most.
    padded: lambda rank: [("better plan", (3 * 8 - 5 * 4) * F32)],
}
CLEAN: list[Callable[[int], None]] = [clean_fsdp, clean_tensor_parallel, clean_collectives, clean_redistributions]
