"""Agreement of ranks before their first collective: an error of one rank is raised on all without a wait.

    agree("load", refusal, [ranks, ..], tensors_on(tensors))   # returns on all these ranks, or raises on all

Each rank sends only a short text: its error, and for each of its device meshes a digest of the DTensors
there, which is equal on all ranks of that mesh. Tensors may be on several device meshes, and a rank knows
only its own. The ranks of each mesh therefore agree in turn, in an order common to all ranks, and a rank that
has learnt of an error forwards it. An error that is found after the ranks of an earlier device mesh have
agreed reaches only those of them that are also in a later one.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from reshard import ReshardError
from reshard._refusals import refused

from reshard.torch.lost import lost
from reshard.torch.specs import mesh
from reshard.torch.version import _disable_current_modes

# The rank of an error if one rank raised it, its kind and its message.
_Refusal = tuple[int | None, str, str]
_Said = tuple[_Refusal | None, Mapping[str, str]]


def world() -> list[int]:
    """Returns all ranks of the default group; without one, rank 0."""
    return list(range(dist.get_world_size())) if dist.is_initialized() else [0]


def ranks_of(*meshes: DeviceMesh | None) -> list[int]:
    """Returns the ranks of these device meshes, ascending."""
    return sorted({rank for one in meshes if one is not None for rank in mesh(one).ranks})


def digest(of: Iterable[object]) -> str:
    """Returns a short text that differs for values with different printed forms."""
    made = hashlib.sha256()
    for one in of:
        made.update(f"{one}\n".encode(errors="surrogatepass"))
    return made.hexdigest()[:32]


def tensors_on(tensors: Iterable[tuple[str, DTensor]]) -> dict[str, str]:
    """Returns for each device mesh a digest of its DTensors' names, shapes, types, placements and order."""
    by_mesh: dict[str, list[str]] = {}
    for name, tensor in tensors:
        on = mesh(tensor.device_mesh)
        if dist.get_rank() in on:
            key = f"{list(on.ranks)} {list(on.shape)}" if len(on.ranks) <= 16 else digest([list(on.ranks), list(on.shape)])
            by_mesh.setdefault(key, []).append(f"{name!r} {list(tensor.shape)} {tensor.dtype} {tensor.placements}")
    return {key: digest(lines) for key, lines in by_mesh.items()}


def agree(what: str, refusal: Exception | None, groups: Iterable[Sequence[int]], said: Mapping[str, str]) -> None:
    """Raises an error of one rank on all ranks of these groups; of several, the error of the lowest rank.

    The texts of `said` under the same key must be equal. A rank in no group raises only its own error.

    Errors: `ReshardError` with the rank, or the original error on the rank that raised it; `EngineError` if a
    rank does not arrive.
    """
    own: _Refusal | None = None
    if refusal is not None:
        rank = dist.get_rank() if dist.is_initialized() else 0
        own = (rank, str(getattr(refusal, "kind", "raised")), _sentence(refusal))
    known = own
    alone = True
    for members in sorted({tuple(group) for group in groups}):
        if not dist.is_initialized() or len(members) < 2 or dist.get_rank() not in members:
            continue
        alone = False
        try:
            with _disable_current_modes():
                all_of = _gathered((known, said), members)
        except RuntimeError as error:
            raise refusal or lost(error, f"agreeing on {what}", members, 0) from error
        known = _first(what, members, all_of)
    if refusal is not None and (alone or known == own and not isinstance(refusal, ReshardError)):
        raise refusal
    if known is not None:
        rank, kind, sentence = known
        raise refused(kind, sentence if rank is None else f"rank {rank}: {sentence}") from refusal


def _first(what: str, members: Sequence[int], all_of: list[_Said]) -> _Refusal | None:
    """Returns the error of the lowest rank, or that of two ranks whose texts differ."""
    refusals = [theirs for theirs, _ in all_of if theirs is not None]
    if refusals:
        return min(refusals, key=lambda one: -1 if one[0] is None else one[0])
    first: dict[str, tuple[int, str]] = {}
    for rank, (_, texts) in zip(members, all_of, strict=True):
        for key, text in texts.items():
            other, its = first.setdefault(key, (rank, text))
            if its != text:
                return (
                    None,
                    "disagrees",
                    f"rank {rank} has other DTensors than rank {other} for {what}; all ranks must give the same names, shapes, types and "
                    f"placements in the same order",
                )
    return None


def _sentence(error: Exception) -> str:
    if isinstance(error, ReshardError):
        return str(error)
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _gathered(own: _Said, members: Sequence[int]) -> list[_Said]:
    """Returns the data of each member."""
    if len(members) == dist.get_world_size():
        of_all: list[Any] = [None] * len(members)
        dist.all_gather_object(of_all, own)
        return of_all
    # A group with exactly these members may not exist. Messages of the default group always work: the first
    # member collects.
    first, me = members[0], dist.get_rank()
    if me != first:
        dist.send_object_list([own], dst=first)
        return list(_received(first))
    of_all = [own, *(_received(rank) for rank in members[1:])]
    for rank in members[1:]:
        dist.send_object_list([of_all], dst=rank)
    return of_all


def _received(rank: int) -> Any:
    got: list[Any] = [None]
    dist.recv_object_list(got, src=rank)
    return got[0]
