"""Checkpoints: open, read by region, save, reshard, compare.

    reshard.load("dir", mesh="tp=8", to={"*.q_proj.weight": "S(0)", "*": "R"}, rank=3)  # shards of one rank
    reshard.save("dir", tensors, "S(0)", mesh="tp=8")                                   # a file for each rank
    reshard.open_checkpoint("dir")                                                # read, verify and compare
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reshard._refusals import refused as _refused
from reshard._reshard import (
    Checkpoint,
    CheckpointTensor,
    DiffReport,
    Mesh,
    JobReport,
    VerifyReport,
    CheckpointWriter,
    load,
    open_checkpoint,
    write_whole,
)

Path = str | os.PathLike[str]
Meshes = Mesh | str | Mapping[str, int]
Wanted = str | Mapping[str, str]


def save(
    path: Path,
    tensors: Mapping[str, Any],
    sharding: Wanted | None = None,
    *,
    mesh: Meshes | None = None,
    texts: Mapping[str, str] | None = None,
    format: str = "rank_files",
    force: bool = False,
) -> None:
    """Writes whole tensors: into one file that ends in `.safetensors`, or sharded over a mesh into a folder.

    Arrays are any on the CPU: buffers, arrays of NumPy and tensors. A mapping may make them on demand: each
    is copied before the next is made. `reshard.torch.save` writes DTensors.

    A folder has a file for each rank and `sharding.json` with checksums, and is verified by reading it after
    the write. An existing output is replaced only with `force`.
    """
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors must be a mapping from names to arrays, not {type(tensors).__qualname__}")
    _write_pairs(path, tensors.items(), sharding, mesh=mesh, texts=texts, format=format, force=force)


def _write_pairs(
    path: Path,
    tensors: Iterable[tuple[str, Any]],
    sharding: Wanted | None = None,
    *,
    mesh: Meshes | None = None,
    texts: Mapping[str, str] | None = None,
    format: str = "rank_files",
    force: bool = False,
) -> None:
    """`save` of names and arrays that are made one at a time: each is copied before the next is made."""
    target = os.fspath(path)
    texts = _mapping("texts", texts)
    if sharding is None and mesh is None:
        if not target.endswith(".safetensors"):
            raise _refused("usage", f"{target} does not end in .safetensors; use that ending, or give a sharding and mesh=")
        if os.path.exists(target) and not force:
            raise _refused("output", f"the output {target} already exists; force=True replaces it")
        write_whole(target, tensors, texts)
        return
    if sharding is None or mesh is None:
        raise _refused("usage", "tensors are sharded over a mesh; give both a sharding and mesh=")
    parent = os.path.dirname(os.path.abspath(target))
    with tempfile.TemporaryDirectory(prefix=".reshard-", dir=parent) as folder:
        whole = os.path.join(folder, "whole.safetensors")
        write_whole(whole, tensors, texts)
        reshard(whole, mesh, sharding, target, format=format, force=force)


def _mapping(name: str, given: Mapping[str, str] | None) -> dict[str, str] | None:
    """Returns a mapping as a dict, or None."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a mapping from texts to texts, not {type(given).__qualname__}")
    return None if given is None else dict(given)


def reshard(
    source: Path | Checkpoint,
    mesh: Meshes,
    to: Wanted,
    out: Path,
    *,
    format: str = "rank_files",
    force: bool = False,
    resume: bool = False,
    verify: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> JobReport:
    """Reshards a checkpoint to another mesh, file to file; memory does not grow with tensors or ranks.

    `out` is a folder, or a file that ends in `.safetensors` for whole tensors. It appears completely or not
    at all.
    """
    opened = source if isinstance(source, Checkpoint) else open_checkpoint(source)
    wanted = to if isinstance(to, str) else _mapping("to", to) or {}
    return opened.reshard(
        mesh,
        wanted,
        out,
        format=format,
        force=force,
        resume=resume,
        verify=verify,
        progress=progress,
    )


def verify(path: Path) -> VerifyReport:
    """Reads the whole checkpoint and compares all checksums and replicas; the report lists the problems."""
    return open_checkpoint(path).verify()


def diff(first: Path, second: Path) -> DiffReport:
    """Compares two checkpoints and reports their differences."""
    return open_checkpoint(first).diff(open_checkpoint(second))


def inspect(path: Path) -> list[CheckpointTensor]:
    """Returns the headers' description of every tensor."""
    return list(open_checkpoint(path).tensors)


__all__ = [
    "Checkpoint",
    "CheckpointTensor",
    "DiffReport",
    "JobReport",
    "VerifyReport",
    "CheckpointWriter",
    "diff",
    "inspect",
    "load",
    "open_checkpoint",
    "reshard",
    "save",
    "verify",
]
