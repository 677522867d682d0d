"""Checkpoints from and into DTensors, and a `StorageReader` for `torch.distributed.checkpoint`."""

import io
import os
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import StorageReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.futures import Future

from reshard import Planner, ReshardError
from reshard._buffers import lend
from reshard._refusals import counted, refused, said
from reshard.checkpoint import Checkpoint, _write_pairs, open_checkpoint

from reshard.torch.agreed import agree, digest, ranks_of, tensors_on, world
from reshard.torch.execute import default_planner
from reshard.torch.memory import settled, why_no_target, why_not
from reshard.torch.nested import Entry, entries, holds_tensors, listed
from reshard.torch.redistribute import moved
from reshard.torch.specs import mesh, sharding
from reshard.torch.version import DTensorSpec, ShardOrderEntry

Path = str | os.PathLike[str]


def load(
    path: Path | Checkpoint, state: Mapping[str, Any], *, only_tensors: bool = False, trusted: bool = False, planner: Planner | None = None
) -> int:
    """Loads a state from a checkpoint; returns the bytes that this rank has read.

    The checkpoint may have any format that the package opens. The state may be nested; names are those of
    `torch.distributed.checkpoint`, such as `model.layers.0.w`. Tensors are filled in place. Objects, the
    entries that are not tensors, are replaced in their dict or list; `only_tensors` leaves them as they are.
    A tuple is one object. All names, shapes and types are compared, and all objects unpickled, before
    anything is changed.

    Objects are unpickled by `torch.load` with `weights_only=True`, which rejects other classes than those of
    `torch.serialization.add_safe_globals`. `trusted=True` accepts any class: such an object can run any code.

    Each byte of a DTensor is read by one rank and reaches the others by a plan, so replicas are read once. A
    plain tensor or an object is read whole by every rank. All ranks call it with the same names of tensors in
    the same order, and see the same files; the objects may differ by rank.

    Errors: `ReshardError` for names that the checkpoint does not have, for other shapes or types, for tensors
    that are objects in the checkpoint or the reverse, for tensors without memory or with overlapping elements,
    for objects that cannot be unpickled or are in immutable mappings, and for a state without an entry. With
    `only_tensors`: also for tensors inside of objects, and for a state without a tensor. Nothing is changed
    then. An error of one rank is raised on all ranks of its DTensors.
    """
    refusal: Exception | None = None
    wanted: dict[str, torch.Tensor] = {}
    found: list[Entry] = []
    replacements: list[tuple[Entry, Any]] = []
    try:
        # If the state cannot be walked to its end, the ranks of the tensors found so far have to learn of the
        # error.
        for entry in entries(state):
            found.append(entry)
        wanted = {entry.name: entry.value for entry in found if isinstance(entry.value, torch.Tensor)}
        opened = path if isinstance(path, Checkpoint) else open_checkpoint(path)
        before = opened.bytes_read
        _check_wanted(opened, found, only_tensors)
        if not only_tensors:
            replacements = _unpickled(opened, [entry for entry in found if entry.name not in wanted], trusted)
    except Exception as error:
        refusal = error
    # Errors of plain tensors and of objects on ranks without a DTensor concern this rank only.
    groups = [ranks_of(entry.value.device_mesh) for entry in found if isinstance(entry.value, DTensor)]
    agree("loading", refusal, groups, _said(wanted))
    chosen = planner or default_planner()
    failed: Exception | None = None
    with torch.no_grad():
        for name, tensor in wanted.items():
            why = _filled(opened, name, tensor, chosen)
            failed = failed or why
    agree("loading", failed, groups, {})
    for entry, value in replacements:
        entry.replace(value)
    return opened.bytes_read - before


def _said(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Returns a digest of the DTensors on each device mesh, which is equal on all of its ranks."""
    return tensors_on((name, tensor) for name, tensor in tensors.items() if isinstance(tensor, DTensor))


def _lost_within(objects: list[Entry]) -> tuple[str, str] | None:
    """Returns the error for entries that are not tensors and contain tensors, or None."""
    within = [entry.name for entry in objects if holds_tensors(entry.value)]
    if not within:
        return None
    return "object", f"tensors are inside entries that are not tensors, and would be lost: {listed(within)}; put them in dicts or lists"


def _check_wanted(opened: Checkpoint, found: list[Entry], only_tensors: bool) -> None:
    """Rejects the entries that the checkpoint cannot fill or replace, with all problems in one message."""
    wanted = {entry.name: entry.value for entry in found if isinstance(entry.value, torch.Tensor)}
    objects = [entry for entry in found if entry.name not in wanted]
    replaced = [] if only_tensors else objects
    non_tensors = set(opened.non_tensors)
    problems = []
    if (missing := _missing(opened, non_tensors, [entry for entry in found if entry.name in wanted or not only_tensors])) is not None:
        problems.append(missing)
    if no_tensors := [name for name in wanted if name in non_tensors]:
        problems.append(("object", f"tensors in the state but objects in the checkpoint: {listed(no_tensors)}"))
    if no_objects := [entry.name for entry in replaced if entry.name in opened]:
        problems.append(("object", f"objects in the state but tensors in the checkpoint: {listed(no_objects)}; give tensors of their shapes"))
    if fixed := [entry.name for entry in replaced if not entry.is_replaceable]:
        problems.append(("object", f"objects are in mappings that cannot be changed: {listed(fixed)}; put them in dicts"))
    if only_tensors and (within := _lost_within(objects)) is not None:
        problems.append(within)
    unfit = [why for name, tensor in wanted.items() if name in opened and (why := _unfit(opened, name, tensor))]
    problems += unfit[:10]
    if len(unfit) > 10:
        problems.append(("shape", f"{len(unfit) - 10} more tensors do not fit"))
    if not wanted and not replaced:
        problems.append(("no_tensor", "the state has no tensor to fill"))
    if problems:
        raise refused(problems[0][0], "; ".join(message for _, message in problems))


def _missing(opened: Checkpoint, non_tensors: set[str], wanted: list[Entry]) -> tuple[str, str] | None:
    """Returns the error for entries of which the checkpoint does not have the name, or None."""
    missing = [entry for entry in wanted if entry.name not in opened and entry.name not in non_tensors]
    if not missing:
        return None
    tensors = sum(isinstance(entry.value, torch.Tensor) for entry in missing)
    noun = "name" if 0 < tensors < len(missing) else "tensor" if tensors else "object"
    many = noun if len(missing) == 1 else f"{counted(len(missing), noun)}:"
    instead = "" if tensors == len(missing) else "; only_tensors=True leaves objects as they are"
    names = listed([entry.name for entry in missing])
    return "no_such_tensor" if tensors else "no_such_object", f"the checkpoint has no {many} {names}{instead}"


def _unpickled(opened: Checkpoint, objects: list[Entry], trusted: bool) -> list[tuple[Entry, Any]]:
    """Returns the values of objects from a checkpoint; raises all problems as one message."""
    made: list[tuple[Entry, Any]] = []
    problems: list[tuple[str, str]] = []
    unsafe: list[str] = []
    broken: list[str] = []
    for entry in objects:
        try:
            archive = io.BytesIO(opened.object(entry.name))
        except ReshardError as error:
            problems.append((str(error.kind), str(error)))
            continue
        try:
            made.append((entry, torch.load(archive, weights_only=not trusted, mmap=False)))
        except pickle.UnpicklingError as error:
            (broken if trusted else unsafe).append(f"{entry.name} ({_reason(error)})")
        except Exception as error:
            broken.append(f"{entry.name} ({said(error)})")
    if len(problems) > 10:
        problems[10:] = [("object", f"{counted(len(problems) - 10, 'more object')} cannot be read")]
    if problems:
        problems.append(("object", "only_tensors=True leaves objects as they are"))
    if unsafe:
        problems.append(("pickle", f"rejected by torch.load with weights_only=True: {listed(unsafe)}; trusted=True accepts any class, and runs its code"))
    if broken:
        problems.append(("pickle", f"cannot be unpickled: {listed(broken)}"))
    if problems:
        raise refused(problems[0][0], "; ".join(message for _, message in problems))
    return made


def _reason(error: pickle.UnpicklingError) -> str:
    """Returns the reason in PyTorch's error, without its advice."""
    for line in map(str.strip, str(error).splitlines()):
        if line and not line.startswith(("Weights only load failed", "(1)", "(2)", "Check the documentation")):
            return line.removeprefix("WeightsUnpickler error: ").partition(". ")[0][:300]
    return said(error)


def _unfit(opened: Checkpoint, name: str, tensor: torch.Tensor) -> tuple[str, str] | None:
    """Returns why a tensor cannot be filled from the checkpoint, as a kind and a message, or None."""
    found = opened[name]
    if isinstance(tensor, DTensor):
        if any(one.is_partial() for one in tensor._spec.placements):
            return "partial", f"{name} has partial values, which a checkpoint cannot fill: {tensor._spec.placements}"
        if not tensor._spec.mesh._is_current_rank_part_of_mesh():
            return None
    if (why := why_not(tensor)) is not None:
        return why.kind, f"{name} cannot be filled: {why}"
    if tuple(found.shape) != tuple(tensor.shape):
        return "shape", f"{name} is {list(tensor.shape)}, but {found.shape} in the checkpoint"
    try:
        dtype = str(_dtype(tensor.dtype))
    except ReshardError:
        dtype = ""
    if str(found.dtype) != dtype:
        return "dtype", f"{name} is {tensor.dtype}, but {found.dtype} in the checkpoint"
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if (why := why_no_target(local)) is not None:
        return why.kind, f"{name} cannot be filled: {why}"
    return None


def save(path: Path, state: Mapping[str, Any], *, force: bool = False, only_tensors: bool = False) -> None:
    """Writes the tensors of a state as whole tensors, into a file that ends in `.safetensors`.

    The state may be nested; names are those of `torch.distributed.checkpoint`, such as `model.layers.0.w`.
    Entries other than tensors are rejected, or left out with `only_tensors`.

    Rank 0 writes, and holds all tensors in memory; `torch.distributed.checkpoint` writes one file per rank,
    and the package can read that too. All ranks call it with the same names in the same order. Rank 0 need
    not be in the device mesh of a DTensor.

    Errors: `ReshardError` for entries that are not tensors, for tensors without memory or inside of entries
    of other types, and for a state without a tensor. Nothing is written then. An error of one rank is raised
    on all ranks.
    """
    together = dist.is_initialized()
    writes = not together or dist.get_rank() == 0
    if together and dist.get_world_size() > 1:
        _agree_on_saving(state, only_tensors)
    tensors = _wholes(state, only_tensors, writes)
    failed: Exception | None = None
    try:
        if writes:
            _write_pairs(path, tensors, force=force)
    except Exception as error:
        failed = error
    # All ranks run the collectives of all tensors, even of those after an error of rank 0.
    try:
        for _ in tensors:
            pass
    except Exception as error:
        failed = failed or error
    if together:
        refusal: list[tuple[str, str] | None] = [None]
        if writes and failed is not None:
            refusal = [(getattr(failed, "kind", "raised"), str(failed))]
        dist.broadcast_object_list(refusal, src=0)
        if failed is None and refusal[0] is not None:
            failed = refused(*refusal[0])
    if failed is not None:
        raise failed


def _agree_on_saving(state: Mapping[str, Any], only_tensors: bool) -> None:
    """Raises an error of one rank on all ranks, before any of them waits for another."""
    found = _Found()
    refusal: Exception | None = None
    said: dict[str, str] = {}
    names: list[str] = []

    def looked_at() -> Iterator[tuple[str, DTensor]]:
        # One tensor at a time: a mapping may make its tensors on demand, and not all of them fit in memory.
        for entry in entries(state):
            if found.take(entry, only_tensors) and isinstance(entry.value, DTensor):
                names.append(entry.name)
                yield entry.name, entry.value

    try:
        said = tensors_on(looked_at())
        said["names"] = digest(names)
        found.check()
    except Exception as error:
        refusal = error
    agree("saving", refusal, [world()], said)


class _Found:
    """The problems of the entries of a state that is to be written."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []
        self._objects: list[str] = []
        self._within: list[Entry] = []
        self._any_tensor = False

    def take(self, entry: Entry, only_tensors: bool) -> bool:
        """Returns True if an entry is a tensor that can be read; records a problem otherwise."""
        if not isinstance(entry.value, torch.Tensor):
            if not only_tensors:
                self._objects.append(entry.name)
            elif holds_tensors(entry.value):
                self._within.append(entry)
            return False
        self._any_tensor = True
        if (why := why_not(entry.value)) is not None:
            self.problems.append((why.kind, f"{entry.name} cannot be read: {why}"))
        return why is None

    def check(self) -> None:
        """Raises all problems as one message."""
        problems = self.problems
        if self._objects:
            problems.append(("object", f"not tensors in the state: {listed(self._objects)}; only_tensors=True leaves them out"))
        if (within := _lost_within(self._within)) is not None:
            problems.append(within)
        if not self._any_tensor:
            problems.append(("no_tensor", "the state has no tensor to write"))
        if problems:
            raise refused(problems[0][0], "; ".join(message for _, message in problems[:10]))


def _wholes(state: Mapping[str, Any], only_tensors: bool, writes: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the names and whole tensors of a state, made one at a time; raises all problems at the end."""
    found = _Found()
    for entry in entries(state):
        if not found.take(entry, only_tensors):
            continue
        whole = _whole(entry.value.detach())
        if not found.problems:
            yield entry.name, whole.cpu() if writes else whole
    found.check()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the whole tensor, on the ranks of its device mesh and on rank 0."""
    if not isinstance(tensor, DTensor):
        return settled(tensor)
    whole = settled(tensor.full_tensor())
    ranks, me = mesh(tensor.device_mesh).ranks, dist.get_rank()
    if 0 in ranks:
        return whole
    # Rank 0 has no shard of it and may not know its shape, so the shape is sent first.
    if me == min(ranks):
        dist.send_object_list([(tuple(whole.shape), whole.dtype)], dst=0)
        if whole.numel():
            dist.send(_bytes(whole), dst=0)
    elif me == 0:
        told: list[Any] = [None]
        dist.recv_object_list(told, src=min(ranks))
        shape, dtype = told[0]
        whole = torch.empty(shape, dtype=dtype, device=tensor._local_tensor.device)
        if whole.numel():
            dist.recv(_bytes(whole), src=min(ranks))
    return whole


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's memory as bytes; a copy's if the tensor is not contiguous."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def read_once(of: DTensorSpec) -> DTensorSpec:
    """Returns a spec on the same device mesh in which one rank owns each element, if dims are long enough.

    An axis with replicas is used to split the dim with the longest remaining extent.
    """
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


def _filled(opened: Checkpoint, name: str, tensor: torch.Tensor, planner: Planner) -> Exception | None:
    """Fills a tensor. Returns a read error after this rank has run the plan of a DTensor with zeros."""
    if not isinstance(tensor, DTensor):
        try:
            tensor.copy_(_tensor(opened.read(name), tensor.dtype).view(tensor.shape))
        except Exception as error:
            return error
        return None
    spec = tensor._spec
    if not spec.mesh._is_current_rank_part_of_mesh():
        return None
    plain = all(isinstance(one, Shard | Replicate) for one in spec.placements)
    reading = read_once(spec) if plain else spec
    of, failed = sharding(reading), None
    try:
        read = _tensor(opened.shard(name, of, dist.get_rank()), tensor.dtype)
    except Exception as error:
        failed, read = error, torch.zeros(of.local_numel(dist.get_rank()), dtype=tensor.dtype)
    read = read.to(tensor._local_tensor.device)
    local = moved(read, reading, spec, planner) if reading != spec else read
    if failed is None:
        tensor._local_tensor.copy_(local.view(tensor._local_tensor.shape))
    return failed


def _dtype(of: torch.dtype) -> Any:
    from reshard import DType

    return DType(of)


def _tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    """Returns an array's bytes as a flat tensor."""
    view, _, _ = lend(array)
    raw = bytearray(view)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype) if raw else torch.empty(0, dtype=dtype)


class Reader(StorageReader):
    """Reads checkpoints of every supported format for `torch.distributed.checkpoint.load`.

    >>> torch.distributed.checkpoint.load(state, storage_reader=Reader("model.safetensors"))

    Entries that are not tensors are passed to PyTorch's planner as their bytes. The default planner unpickles
    them with `weights_only=False`, which can run any code; `reshard.torch.load` does not.
    """

    def __init__(self, path: Path) -> None:
        self.reset(path)

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Opens another checkpoint, if one is given."""
        if checkpoint_id is not None:
            self._opened = open_checkpoint(checkpoint_id)

    @property
    def bytes_read(self) -> int:
        """The bytes that this rank has read."""
        return self._opened.bytes_read

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Returns the metadata from the headers, with every tensor as one chunk, and the path of every name."""
        found: dict[str, Any] = {}
        for tensor in self._opened.tensors:
            size = torch.Size(tensor.shape)
            chunk = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
            found[tensor.name] = TensorStorageMetadata(TensorProperties(dtype=_torch_dtype(tensor.dtype)), size, [chunk])
        # Parts of a `.pt` file have no bytes that could be loaded.
        found |= {name: BytesStorageMetadata() for name in self._opened._objects_with_bytes}
        # PyTorch's planner for states that do not exist yet looks up the path of each name.
        paths = self._opened.paths
        return Metadata(found, planner_data={name: paths.get(name, (name,)) for name in found})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Returns the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Returns the plans unchanged."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads exactly the requested region of every tensor, and the bytes of objects."""
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(self._opened.object(item.storage_index.fqn)))
                continue
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
        """Returns True if the path exists."""
        return os.path.exists(checkpoint_id)


def _torch_dtype(of: Any) -> torch.dtype:
    """Returns PyTorch's element type for this library's."""
    for name in dir(torch):
        found = getattr(torch, name)
        if isinstance(found, torch.dtype):
            try:
                if _dtype(found) == of:
                    return found
            except (ValueError, TypeError):
                continue
    raise refused("dtype", f"PyTorch has no dtype for {of}")
