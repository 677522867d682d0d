"""Ranks agree before their first collective: what one of them refuses all of them raise, so that none waits for it.

    agree("load", refusal, [ranks, ..], tensors_on(tensors))     returns on all of these ranks, or raises on all of them

Nothing but a few words of each rank is sent: its refusal, and of each device mesh that it is in a digest of the DTensors there, which are
the same on all ranks of that mesh. Tensors may be on several device meshes, and a rank knows only of its own: the ranks of each agree in
turn, in one order for all, and whoever has learnt of a refusal passes it on. What is refused after the ranks of an earlier device mesh have
agreed does not reach those of them that are in no later one.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import _disable_current_modes

from reshard import ReshardError
from reshard._refusals import refused

from reshard.torch.lost import lost
from reshard.torch.specs import mesh

# The rank of a refusal, where one refused, its kind and its sentence.
_Refusal = tuple[int | None, str, str]
_Said = tuple[_Refusal | None, Mapping[str, str]]


def world() -> list[int]:
    """All ranks of the default group; this one where there is none."""
    return list(range(dist.get_world_size())) if dist.is_initialized() else [0]


def ranks_of(*meshes: DeviceMesh | None) -> list[int]:
    """The ranks of any of these device meshes, ascending."""
    return sorted({rank for one in meshes if one is not None for rank in mesh(one).ranks})


def digest(of: Iterable[object]) -> str:
    """A short text that is another one of other values, by what they print."""
    made = hashlib.sha256()
    for one in of:
        made.update(f"{one}\n".encode(errors="surrogatepass"))
    return made.hexdigest()[:32]


def tensors_on(tensors: Iterable[tuple[str, DTensor]]) -> dict[str, str]:
    """Of each device mesh that this rank is in, a digest of the names, shapes, types and placements of the DTensors on it, in order."""
    by_mesh: dict[str, list[str]] = {}
    for name, tensor in tensors:
        on = mesh(tensor.device_mesh)
        if dist.get_rank() in on:
            key = f"{list(on.ranks)} {list(on.shape)}" if len(on.ranks) <= 16 else digest([list(on.ranks), list(on.shape)])
            by_mesh.setdefault(key, []).append(f"{name!r} {list(tensor.shape)} {tensor.dtype} {tensor.placements}")
    return {key: digest(lines) for key, lines in by_mesh.items()}


def agree(what: str, refusal: Exception | None, groups: Iterable[Sequence[int]], said: Mapping[str, str]) -> None:
    """Raises what one rank of any of these groups refuses on all of them, of several the lowest; `said` under the same key must be the same.

    Who is in none of them raises its own.

    Errors: `ReshardError` with the rank, by whom it was refused as it was; `EngineError` where a rank does not come.
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
    """What the lowest rank refuses, or how two disagree."""
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
                    f"rank {rank} has other DTensors than rank {other} for {what}: all ranks give the same names, shapes, types and "
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
    """What each of the members says."""
    if len(members) == dist.get_world_size():
        of_all: list[Any] = [None] * len(members)
        dist.all_gather_object(of_all, own)
        return of_all
    # No group need have just these members, and messages of the default group always can: the first of them collects.
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
