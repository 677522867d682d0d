"""Checkpoints into DTensors and out of them, and a `StorageReader` for `torch.distributed.checkpoint`."""

import os
from collections.abc import Iterator, Mapping
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
from reshard._refusals import refused
from reshard.checkpoint import Checkpoint, _write_pairs, open_checkpoint

from reshard.torch.execute import default_planner
from reshard.torch.memory import settled, why_not
from reshard.torch.nested import entries, listed
from reshard.torch.redistribute import moved
from reshard.torch.specs import sharding

Path = str | os.PathLike[str]


def load(path: Path | Checkpoint, state: Mapping[str, Any], *, only_tensors: bool = False, planner: Planner | None = None) -> int:
    """Fills the tensors of a state from a checkpoint of any format that the package opens; returns the bytes that this rank has read.

    The state may be nested; names are those of `torch.distributed.checkpoint`, such as `model.layers.0.w`. All names, shapes and types are
    compared before anything is filled. Entries that are no tensors are refused, or left as they are with `only_tensors`.

    Of a DTensor every byte is read by one rank and gets to the others by a plan, so what all ranks hold is read once. A plain tensor
    is read whole by every rank. All ranks call it with the same names in the same order, and see the same files.

    Errors: `ReshardError` for names that the checkpoint has not, for other shapes or types, for tensors without memory and for a state
    without a tensor. Nothing is filled then.
    """
    opened = path if isinstance(path, Checkpoint) else open_checkpoint(path)
    before = opened.bytes_read
    found = list(entries(state))
    wanted = {entry.name: entry.value for entry in found if isinstance(entry.value, torch.Tensor)}
    objects = [entry.name for entry in found if entry.name not in wanted]
    _check_wanted(opened, wanted, [] if only_tensors else objects)
    with torch.no_grad():
        for name, tensor in wanted.items():
            if isinstance(tensor, DTensor):
                _fill(opened, name, tensor, planner or default_planner())
            else:
                tensor.copy_(_tensor(opened.read(name), tensor.dtype).view(tensor.shape))
    return opened.bytes_read - before


def _check_wanted(opened: Checkpoint, wanted: dict[str, torch.Tensor], objects: list[str]) -> None:
    """Refuses tensors that the checkpoint cannot fill, all in one sentence."""
    others = set(opened.others)
    missing = [name for name in wanted if name not in opened and name not in others]
    no_tensors = [name for name in wanted if name in others]
    problems = []
    if missing:
        many = "tensor" if len(missing) == 1 else f"{len(missing)} tensors:"
        problems.append(("no_such_tensor", f"the checkpoint has no {many} {listed(missing)}"))
    if no_tensors:
        problems.append(("object", f"no tensors in the checkpoint, but objects, which are not read: {listed(no_tensors)}"))
    if objects:
        problems.append(("object", f"no tensors in the state: {listed(objects)}; only_tensors=True leaves them as they are"))
    fit = [(name, tensor) for name, tensor in wanted.items() if name in opened]
    unfit = [why for name, tensor in fit if (why := _unfit(opened, name, tensor))]
    problems += unfit[:10]
    if len(unfit) > 10:
        problems.append(("shape", f"{len(unfit) - 10} more tensors do not fit"))
    if not wanted:
        problems.append(("no_tensor", "the state has no tensor to fill"))
    if problems:
        raise refused(problems[0][0], "; ".join(message for _, message in problems))


def _unfit(opened: Checkpoint, name: str, tensor: torch.Tensor) -> tuple[str, str] | None:
    """Why a tensor cannot be filled from the one of its name: a kind and a sentence."""
    found = opened[name]
    if isinstance(tensor, DTensor):
        if any(one.is_partial() for one in tensor._spec.placements):
            return "partial", f"{name} is in terms, and a checkpoint has none: {tensor._spec.placements}"
        if not tensor._spec.mesh._is_current_rank_part_of_mesh():
            return None
    if (why := why_not(tensor)) is not None:
        return why.kind, f"{name} cannot be filled: {why}"
    if tuple(found.shape) != tuple(tensor.shape):
        return "shape", f"{name} is {list(tensor.shape)}, and {found.shape} in the checkpoint"
    try:
        dtype = str(_dtype(tensor.dtype))
    except ReshardError:
        dtype = ""
    if str(found.dtype) != dtype:
        return "dtype", f"{name} is {tensor.dtype}, and {found.dtype} in the checkpoint"
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if any(extent > 1 and step == 0 for extent, step in zip(local.shape, local.stride(), strict=True)):
        return "strides", f"{name} cannot be filled: several of its elements are one in memory: give tensor.contiguous()"
    if local.is_inference() and not torch.is_inference_mode_enabled():
        return "read_only", f"{name} cannot be filled: it was made in inference mode: call this within torch.inference_mode()"
    return None


def save(path: Path, state: Mapping[str, Any], *, force: bool = False, only_tensors: bool = False) -> None:
    """Writes the tensors of a state as whole tensors, into a file that ends in `.safetensors`.

    The state may be nested; names are those of `torch.distributed.checkpoint`, such as `model.layers.0.w`. Entries that are no tensors are
    refused, or left out with `only_tensors`.

    Rank 0 writes, and holds them all in memory; `torch.distributed.checkpoint` writes by ranks, and the package reads that too. All ranks
    call it with the same names in the same order.

    Errors: `ReshardError` for entries that are no tensors, for tensors without memory and for a state without a tensor. Nothing is
    written then.
    """
    together = dist.is_initialized()
    writes = not together or dist.get_rank() == 0
    tensors = _wholes(state, only_tensors, writes)
    failed: Exception | None = None
    try:
        if writes:
            _write_pairs(path, tensors, force=force)
        # The other ranks take part in the collectives of all tensors, also of those that rank 0 does not come to.
        for _ in tensors:
            pass
    except Exception as error:
        failed = error
        for _ in tensors:
            pass
    refusal: list[tuple[str, str] | None] = [None]
    if writes and failed is not None:
        refusal = [(getattr(failed, "kind", "raised"), str(failed))]
    if together:
        dist.broadcast_object_list(refusal, src=0)
    if failed is not None:
        raise failed
    if refusal[0] is not None:
        kind, message = refusal[0]
        raise refused(kind, message)


def _wholes(state: Mapping[str, Any], only_tensors: bool, writes: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """The names and whole tensors of a state, made one at a time; at the end what is wrong with all is raised."""
    objects, problems, any_tensor = [], [], False
    for entry in entries(state):
        if not isinstance(entry.value, torch.Tensor):
            objects.append(entry.name)
            continue
        any_tensor = True
        if (why := why_not(entry.value)) is not None:
            problems.append((why.kind, f"{entry.name} cannot be read: {why}"))
            continue
        tensor = entry.value.detach()
        whole = settled(tensor.full_tensor() if isinstance(tensor, DTensor) else tensor)
        if not problems:
            yield entry.name, whole.cpu() if writes else whole
    if objects and not only_tensors:
        problems.append(("object", f"no tensors in the state: {listed(objects)}; only_tensors=True leaves them out"))
    if not any_tensor:
        problems.append(("no_tensor", "the state has no tensor to write"))
    if problems:
        raise refused(problems[0][0], "; ".join(message for _, message in problems[:10]))


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
        # PyTorch's planner for states that are not there yet looks up the path of each name.
        return Metadata(found, planner_data={name: (name,) for name in found})

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
                raise refused("object", f"{item.storage_index.fqn} is no tensor, and is not read")
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
    raise refused("dtype", f"PyTorch has no elements of {of}")
