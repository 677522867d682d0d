"""Checkpoints: open, read by region, save, reshard, compare.

    reshard.load("dir", mesh="tp=8", to={"*.q_proj.weight": "S(0)", "*": "R"}, rank=3)     what a rank holds, by name
    reshard.save("dir", tensors, "S(0)", mesh="tp=8")                                      a file for each rank
    reshard.open_checkpoint("dir")                                                         headers, regions, verify, diff
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from reshard._buffers import in_numpy as _in_numpy
from reshard._refusals import refused as _refused
from reshard._reshard import (
    Checkpoint,
    CheckpointTensor,
    Difference,
    Mesh,
    Resharded,
    Verified,
    Writer,
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

    A folder has a file for each rank and `sharding.json` with checksums; what was written is read back. What is there already is
    replaced only with `force`.
    """
    target = os.fspath(path)
    # Their memory is that of the tensors, which are kept until it is written.
    arrays = {name: _in_numpy(tensor) for name, tensor in tensors.items()}
    if sharding is None and mesh is None:
        if not target.endswith(".safetensors"):
            raise _refused("usage", f"{target} is no .safetensors file: name one, or say a sharding and a mesh")
        if os.path.exists(target) and not force:
            raise _refused("output", f"the output {target} is there already: force=True replaces it")
        write_whole(target, arrays, None if texts is None else dict(texts))
        return
    if sharding is None or mesh is None:
        raise _refused("usage", "tensors are sharded over a mesh: say both, a sharding and mesh=")
    parent = os.path.dirname(os.path.abspath(target))
    with tempfile.TemporaryDirectory(prefix=".reshard-", dir=parent) as folder:
        whole = os.path.join(folder, "whole.safetensors")
        write_whole(whole, arrays, None if texts is None else dict(texts))
        reshard(whole, mesh, sharding, target, format=format, force=force)


def reshard(
    source: Path | Checkpoint,
    mesh: Meshes,
    to: Wanted,
    out: Path,
    *,
    tensor: str | None = None,
    format: str = "rank_files",
    force: bool = False,
    resume: bool = False,
    unchecked: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Resharded:
    """Writes a checkpoint anew over another mesh, from files to files; memory does not grow with tensors or ranks.

    `out` is a folder, or a file that ends in `.safetensors` for whole tensors. It appears whole or not at all.
    """
    opened = source if isinstance(source, Checkpoint) else open_checkpoint(source)
    wanted = to if isinstance(to, str) else dict(to)
    return opened.reshard(
        mesh,
        wanted,
        out,
        tensor=tensor,
        format=format,
        force=force,
        resume=resume,
        unchecked=unchecked,
        progress=progress,
    )


def verify(path: Path) -> Verified:
    """Reads everything, and compares all checksums and all replicas; what is wrong is listed."""
    return open_checkpoint(path).verify()


def diff(first: Path, second: Path) -> Difference:
    """What two checkpoints do not have in common."""
    return open_checkpoint(first).diff(open_checkpoint(second))


def inspect(path: Path) -> list[CheckpointTensor]:
    """What the headers say of every tensor."""
    return list(open_checkpoint(path).tensors)


__all__ = [
    "Checkpoint",
    "CheckpointTensor",
    "Difference",
    "Resharded",
    "Verified",
    "Writer",
    "diff",
    "inspect",
    "load",
    "open_checkpoint",
    "reshard",
    "save",
    "verify",
]
