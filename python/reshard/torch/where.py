"""The location of a call: module, source line, pass, mesh axis and stream."""

import os
import sys
import sysconfig
from dataclasses import dataclass
from enum import Enum
from types import FrameType

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from reshard._refusals import counted

from reshard.torch.traffic import Traffic

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_FSDP = os.path.join(_TORCH, "distributed", "fsdp") + os.sep
_DTENSOR = os.path.join(_TORCH, "distributed", "tensor") + os.sep
# Frames of PyTorch, of this library and of Python's own are not the caller's.
_SKIPPED = (_TORCH, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, "<frozen")
# PyTorch 2.14 deprecates functions by a wrapper of this module.
_WRAPS = os.sep + "typing_extensions.py"
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = (os.path.join(_PYTHON, "site-packages") + os.sep, os.path.join(_PYTHON, "dist-packages") + os.sep)
# The frame of every module that runs, with its hooks.
_RUNS_MODULE = torch.nn.Module._call_impl.__code__


class Pass(Enum):
    """The pass in which a call runs; its value is its name in a report."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OUTSIDE = "-"


class Caller(Enum):
    """The code that called a collective."""

    PROGRAM = "program"
    FSDP = "fsdp"
    FULL_TENSOR = "full_tensor"


@dataclass(frozen=True)
class Where:
    """The location of a call."""

    module: str | None = None
    """The path of the innermost module; None outside of modules, and `""` for the outermost."""
    line: tuple[str, int] | None = None
    """The file and the line of the caller; in backward, those of the forward op."""
    during: Pass = Pass.OUTSIDE
    """The pass."""
    axis: str | None = None
    """The name of the mesh axis; None if no known device mesh has the group."""
    stream: int | None = None
    """The id of the CUDA stream at the call; None for tensors on other devices."""


class Modules:
    """The paths of modules, and the locations of the ops that backward passes differentiate."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._roots: list[torch.nn.Module] = []  # as long as they live, ids are not those of others
        self._forward: dict[int, tuple[str | None, tuple[str, int] | None]] = {}
        self._last = -1

    def note_op(self) -> None:
        """Notes the location of an op of the forward pass, so that its backward can be located.

        Autograd numbers the ops that it differentiates; the node in backward has the same number.
        """
        number = torch._C._autograd._get_sequence_nr() - 1
        if number != self._last and number >= 0:
            self._last = number
            if number not in self._forward:
                found = self._caller()
                self._forward[number] = (found.module, found.line)

    def where(self) -> tuple[Where, Caller]:
        """Returns the location of the present call, without axis and stream, and the code that called."""
        found = self._caller()
        if torch._C._current_graph_task_id() == -1:
            return Where(found.module, found.line, Pass.OUTSIDE if found.module is None else Pass.FORWARD), found.code
        if found.module is not None:
            # FSDP2's parameters belong to its module, whichever op of it was differentiated last; other modules
            # run within backward to compute activations from scratch.
            return Where(found.module, found.line, Pass.BACKWARD), found.code
        node = torch._C._current_autograd_node()
        module, line = self._forward.get(-1 if node is None else node._sequence_nr(), (None, None))
        return Where(module, line or found.line, Pass.BACKWARD), found.code

    def _caller(self) -> "_Frames":
        """Returns the line of the innermost frame of the caller's code, and the innermost module that runs."""
        frame: FrameType | None = sys._getframe(2)
        found = _Frames()
        while frame is not None and (found.line is None or found.module is None):
            file = frame.f_code.co_filename
            if frame.f_code is _RUNS_MODULE:
                if found.module is None:
                    found.module = self._name(frame.f_locals["self"], frame)
            elif found.line is not None:
                pass  # only modules are looked for
            elif file.startswith(_FSDP):
                found.code = Caller.FSDP
                # Only FSDP2's group of parameters knows the path of its module.
                path = getattr(frame.f_locals.get("self"), "_module_fqn", None)
                found.module = path if found.module is None and isinstance(path, str) else found.module
            elif file.startswith(_DTENSOR) and frame.f_code.co_name == "full_tensor":
                found.code = Caller.FULL_TENSOR
            elif not file.startswith(_SKIPPED) and not file.endswith(_WRAPS) and (not file.startswith(_PYTHON) or file.startswith(_PACKAGES)):
                found.line = (file, frame.f_lineno)
            frame = frame.f_back
        return found

    def _name(self, module: torch.nn.Module, frame: FrameType) -> str:
        """Returns the path of a running module; the outermost one that runs is a root, whose path is empty."""
        if id(module) not in self._names:
            root, outer = module, frame.f_back
            while outer is not None:
                if outer.f_code is _RUNS_MODULE:
                    root = outer.f_locals["self"]
                outer = outer.f_back
            self._roots.append(root)
            for name, one in root.named_modules():
                self._names.setdefault(id(one), name)
            if id(module) not in self._names:  # a module that its caller has not registered
                self._roots.append(module)
                self._names[id(module)] = type(module).__name__
        return self._names[id(module)]


@dataclass
class _Frames:
    line: tuple[str, int] | None = None
    code: Caller = Caller.PROGRAM
    module: str | None = None


class Axes:
    """The names of the axes of device meshes, by their process groups."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._known: set[int] = set()
        self._meshes: list[DeviceMesh] = []
        self._groups: dict[tuple[int, int], tuple[int, ...]] = {}
        self._of_members: dict[tuple[int, ...], str] = {}

    def learn(self, mesh: DeviceMesh) -> None:
        """Learns the groups of a device mesh, of its root and of the flattened axes."""
        if id(mesh) in self._known:
            return
        self._known.add(id(mesh))
        self._meshes.append(mesh)  # as long as it lives, its id is not another's
        root = mesh._get_root_mesh()
        for one in (mesh, root, *root._flatten_mapping.values()):
            if one.get_coordinate() is None:
                continue
            for dim in range(one.ndim):
                name = one.mesh_dim_names[dim] if one.mesh_dim_names else f"d{dim}"
                try:
                    group = one.get_group(dim)
                except RuntimeError:
                    continue  # a device mesh without groups: no call is made over it
                members = tuple(dist.get_process_group_ranks(group))
                self._names.setdefault(group.group_name, name)
                self._of_members.setdefault(members, name)
                if one is mesh:
                    self._groups[id(mesh), dim] = members

    def of(self, made: Traffic) -> str | None:
        """Returns the axis of the group of a call."""
        known = self._names.get(made.group)
        if known is None:
            # PyTorch describes the groups that it makes for a device mesh by the axis.
            text = dist.distributed_c10d._resolve_process_group(made.group).group_desc
            known = text.removeprefix("mesh_") if text.startswith("mesh_") else None
        if known is not None:
            self._of_members.setdefault(made.members, known)
        return known

    def members(self, mesh: DeviceMesh, dim: int) -> tuple[int, ...]:
        """Returns the ranks of this rank's group along a dim of a learned mesh; none if it has no group."""
        return self._groups.get((id(mesh), dim), ())

    def name(self, members: tuple[int, ...]) -> str:
        """Returns the axis of these ranks, or their number."""
        known = self._of_members.get(members)
        return counted(len(members), "rank") if known is None else known
