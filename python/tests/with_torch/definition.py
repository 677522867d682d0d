"""A slow definition of a rank's shard by nested `torch.chunk`, and a counter of collective calls."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed.tensor.placement_types as placement_types
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._python_dispatch import TorchDispatchMode

R = Replicate()
COMBINE = {"sum": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum}


@functools.lru_cache(maxsize=None)
def device_mesh(shape: tuple[int, ...], names: tuple[str, ...] | None = None) -> DeviceMesh:
    """Returns the device mesh over the first ranks, which is made once."""
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def whole_of(shape: Sequence[int], dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Returns a tensor with distinct elements, whose order depends on the seed."""
    size = int(torch.Size(shape).numel())
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return (order + 1).reshape(tuple(shape)).to(dtype)


def piece(whole: torch.Tensor, placement: Placement, size: int, at: int, seed: int = 0) -> torch.Tensor:
    """Returns the shard of member `at` of an axis, given the tensor that the axis shards."""
    if isinstance(placement, Shard):
        chunks = whole.chunk(size, placement.dim)
        return chunks[at] if at < len(chunks) else whole.narrow(placement.dim, 0, 0)
    if isinstance(placement, _StridedShard):
        parts = whole.chunk(int(placement.split_factor), placement.dim)
        return torch.cat([piece(part, Shard(placement.dim), size, at) for part in parts], placement.dim)
    if isinstance(placement, Partial):
        return terms(whole, placement.reduce_op, size, seed)[at]
    return whole


def terms(whole: torch.Tensor, op: str, size: int, seed: int) -> list[torch.Tensor]:
    """Returns `size` different partial values that reduce to a tensor."""
    numbers = torch.Generator().manual_seed(seed + 7 * size)
    drawn = [torch.randint(1, 5, whole.shape, generator=numbers).to(whole.dtype) for _ in range(size - 1)]
    if op == "sum":
        return [*drawn, whole - sum(drawn)]
    if op == "avg":
        return [*(whole + one for one in drawn), whole - sum(drawn)]
    if op == "max":
        return [whole - drawn[0] if size > 1 else whole, *(whole - one for one in drawn[1:]), whole]
    if op == "min":
        return [whole + drawn[0] if size > 1 else whole, *(whole + one for one in drawn[1:]), whole]
    assert op == "product"
    return [*(torch.full_like(whole, 2.0) for _ in drawn), whole / 2.0 ** len(drawn)]


def shard(whole: torch.Tensor, placements: Sequence[Placement], mesh: DeviceMesh, order: Sequence[int] | None = None) -> torch.Tensor:
    """Returns this rank's shard: split axis by axis, in mesh order or another."""
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    for axis in order if order is not None else range(mesh.ndim):
        whole = piece(whole, placements[axis], mesh.size(axis), coordinate[axis], seed=axis)
    return whole.contiguous()


def dtensor(whole: torch.Tensor, placements: Sequence[Placement], mesh: DeviceMesh, requires_grad: bool = False) -> DTensor:
    """Returns a DTensor with these shards, without a collective."""
    local = shard(whole, placements, mesh)
    if requires_grad:
        local.requires_grad_()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.contiguous().stride())


class Counted(TorchDispatchMode):
    """Counts collective calls and the bytes that this rank receives by them; for reductions, the minimum.

    On CPUs PyTorch changes the dim of a shard by a gather; it counts as the all-to-all that other devices
    use.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.bytes = 0
        self._within = 0

    def __enter__(self) -> "Counted":
        self._own = placement_types.shard_dim_alltoall

        def change(tensor: torch.Tensor, gather: int, cut: int, mesh: DeviceMesh, axis: int) -> torch.Tensor:
            self._within += 1
            try:
                made = self._own(tensor, gather, cut, mesh, axis)
            finally:
                self._within -= 1
            self._count("all_to_all", made.numel() * made.itemsize // mesh.size(axis) * (mesh.size(axis) - 1))
            return made

        placement_types.shard_dim_alltoall = change
        return super().__enter__()

    def __exit__(self, *args: Any) -> None:
        placement_types.shard_dim_alltoall = self._own
        super().__exit__(*args)

    def _count(self, kind: str, received: int) -> None:
        if not self._within:
            self.calls.append(kind)
            self.bytes += received

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if function.namespace == "_c10d_functional":
            name = function._schema.name.partition("::")[2]
            if name == "all_gather_into_tensor":
                self._count("all_gather", args[0].numel() * args[0].itemsize * (args[1] - 1))
            elif name == "reduce_scatter_tensor":
                self._count("reduce_scatter", made.numel() * made.itemsize * (args[2] - 1))
            elif name == "all_reduce":
                size = torch.distributed.distributed_c10d._resolve_process_group(args[2]).size()
                self._count("all_reduce", 2 * (args[0].numel() * args[0].itemsize) * (size - 1) // size)
            elif name == "all_to_all_single":
                group = torch.distributed.distributed_c10d._resolve_process_group(args[3])
                self._count("all_to_all", (sum(args[1]) - args[1][group.rank()]) * args[0].itemsize)
            else:
                assert name.startswith(("wait_tensor", "_wrap_tensor")), name
        return made


def kept_graphs() -> tuple[list[str], Callable[[torch.fx.GraphModule, Any], Any]]:
    """Returns a list, and a compiler of `torch.compile` that runs a graph as it is and appends its targets to the list."""
    graphs: list[str] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append("\n".join(str(node.target) for node in graph.graph.nodes))
        return graph.forward

    return graphs, keep
