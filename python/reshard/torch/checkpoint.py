"""Checkpoints into DTensors and out of them, and a `StorageReader` for `torch.distributed.checkpoint`."""

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import StorageReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry
from torch.futures import Future

from reshard import Planner, ReshardError
from reshard._buffers import lend
from reshard.checkpoint import Checkpoint, open_checkpoint
from reshard.checkpoint import save as save_whole

from reshard.torch.execute import default_planner
from reshard.torch.redistribute import moved
from reshard.torch.specs import sharding

Path = str | os.PathLike[str]


def load(path: Path | Checkpoint, state: Mapping[str, Any], *, planner: Planner | None = None) -> int:
    """Fills the tensors of a state from a checkpoint of any format that the package opens; returns the bytes that this rank has read.

    Of a DTensor every byte is read by one rank and gets to the others by a plan, so what all ranks hold is read once. A plain tensor
    is read whole by every rank. All ranks call it with the same names in the same order, and see the same files.

    Errors: `ReshardError` for a name that the checkpoint has not, and for another shape or type.
    """
    opened = path if isinstance(path, Checkpoint) else open_checkpoint(path)
    before = opened.bytes_read
    wanted = {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
    for name, tensor in wanted.items():
        if name not in opened:
            raise ReshardError(f"the checkpoint has no tensor {name}")
        found = opened[name]
        if tuple(found.shape) != tuple(tensor.shape):
            raise ReshardError(f"{name} is {list(tensor.shape)}, and {found.shape} in the checkpoint")
        if str(found.dtype) != str(_dtype(tensor.dtype)):
            raise ReshardError(f"{name} is {tensor.dtype}, and {found.dtype} in the checkpoint")
    with torch.no_grad():
        for name, tensor in wanted.items():
            if isinstance(tensor, DTensor):
                _fill(opened, name, tensor, planner or default_planner())
            else:
                tensor.copy_(_tensor(opened.read(name), tensor.dtype).view(tensor.shape))
    return opened.bytes_read - before


def save(path: Path, state: Mapping[str, Any], *, force: bool = False) -> None:
    """Writes the tensors of a state as whole tensors, into a file that ends in `.safetensors`.

    Rank 0 writes, and holds them all in memory; `torch.distributed.checkpoint` writes by ranks, and the package reads that too. All ranks call it.
    """
    whole = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        full = tensor.detach().full_tensor() if isinstance(tensor, DTensor) else tensor.detach()
        if dist.get_rank() == 0:
            whole[name] = full.cpu().contiguous()
    refused: list[str | None] = [None]
    if dist.get_rank() == 0:
        try:
            save_whole(path, whole, force=force)
        except ValueError as error:
            refused = [str(error)]
    dist.broadcast_object_list(refused, src=0)
    if refused[0] is not None:
        raise ReshardError(refused[0])


def read_once(of: DTensorSpec) -> DTensorSpec:
    """A spec on the same device mesh by which every element is held by one rank, so far as dims are long enough: where several ranks hold
    the same, the axis cuts the longest dim that is left."""
    assert of.tensor_meta is not None
    local = list(of.tensor_meta.shape)
    for axis, one in enumerate(of.placements):
        if isinstance(one, Shard):
            local[one.dim] = -(-local[one.dim] // of.mesh.size(axis))
    placements: list[Placement] = list(of.placements)
    order = [axis for entry in of.shard_order or () for axis in entry.mesh_dims]
    for axis, one in enumerate(of.placements):
        longest = max(range(len(local)), key=lambda dim: local[dim], default=None)
        if isinstance(one, Replicate) and longest is not None and local[longest] >= of.mesh.size(axis):
            placements[axis] = Shard(longest)
            local[longest] = -(-local[longest] // of.mesh.size(axis))
            order.append(axis)
    by_dim: dict[int, list[int]] = {}
    for axis in order:
        by_dim.setdefault(placements[axis].dim, []).append(axis)
    entries = tuple(ShardOrderEntry(dim, tuple(by_dim[dim])) for dim in sorted(by_dim))
    return DTensorSpec(of.mesh, tuple(placements), tensor_meta=of.tensor_meta, shard_order=entries)


def _fill(opened: Checkpoint, name: str, tensor: DTensor, planner: Planner) -> None:
    spec = tensor._spec
    if any(one.is_partial() for one in spec.placements):
        raise ReshardError(f"{name} is in terms, and a checkpoint has none: {spec.placements}")
    plain = all(isinstance(one, Shard | Replicate) for one in spec.placements)
    reading = read_once(spec) if plain else spec
    if not spec.mesh._is_current_rank_part_of_mesh():
        return
    read = _tensor(opened.shard(name, sharding(reading), dist.get_rank()), tensor.dtype).to(tensor._local_tensor.device)
    local = moved(read, reading, spec, planner) if reading != spec else read
    tensor._local_tensor.copy_(local.view(tensor._local_tensor.shape))


def _dtype(of: torch.dtype) -> Any:
    from reshard import DType

    return DType(of)


def _tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    """A flat tensor of an array's bytes."""
    view, _, _ = lend(array)
    raw = bytearray(view)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype) if raw else torch.empty(0, dtype=dtype)


class Reader(StorageReader):
    """Reads checkpoints of every format that the package opens for `torch.distributed.checkpoint.load`.

    >>> torch.distributed.checkpoint.load(state, storage_reader=Reader("model.safetensors"))
    """

    def __init__(self, path: Path) -> None:
        self.reset(path)

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Opens another checkpoint, if one is given."""
        if checkpoint_id is not None:
            self._opened = open_checkpoint(checkpoint_id)

    @property
    def bytes_read(self) -> int:
        """Bytes that this rank has read."""
        return self._opened.bytes_read

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the headers say, every tensor as one chunk."""
        found: dict[str, Any] = {}
        for tensor in self._opened.tensors:
            size = torch.Size(tensor.shape)
            chunk = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
            found[tensor.name] = TensorStorageMetadata(TensorProperties(dtype=_torch_dtype(tensor.dtype)), size, [chunk])
        return Metadata(found)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is to be set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads of every tensor the region that is asked for, and no byte more."""
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                raise ReshardError(f"{item.storage_index.fqn} is no tensor, and is not read")
            target = planner.resolve_tensor(item).detach()
            region = [slice(start, start + length) for start, length in zip(item.storage_offsets, item.lengths, strict=True)]
            read = self._opened.read(item.storage_index.fqn, region)
            target.copy_(_tensor(read, target.dtype).view(torch.Size(item.lengths)))
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Whether there is something at the path."""
        return os.path.exists(checkpoint_id)


def _torch_dtype(of: Any) -> torch.dtype:
    """PyTorch's type of ours."""
    for name in dir(torch):
        found = getattr(torch, name)
        if isinstance(found, torch.dtype):
            try:
                if _dtype(found) == of:
                    return found
            except (ValueError, TypeError):
                continue
    raise ReshardError(f"PyTorch has no elements of {of}")
