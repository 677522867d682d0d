"""A parser of compiled modules: instructions, collectives, received bytes, and source lines."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from reshard._refusals import refused

COLLECTIVES = {
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast", "ragged-all-to-all",
}

_WIDTHS = {"pred": 1.0, "token": 0.0, "opaque": 0.0, "bf16": 2.0}


@dataclasses.dataclass(frozen=True)
class Shape:
    """An array of a result: XLA's name of its element type, and its extents."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size in bytes; a four-bit element counts as half a byte."""
        width = _WIDTHS.get(self.dtype)
        if width is None:
            digits = re.match(r"[a-z]+(\d+)", self.dtype)
            width = int(digits[1]) / 8 if digits else 0.0
        return math.ceil(width * math.prod(self.dims))


@dataclasses.dataclass
class Instruction:
    """One line of a computation."""

    name: str
    shapes: list[Shape]
    is_tuple: bool
    opcode: str
    operands: list[str]
    literal: str
    attributes: dict[str, str]
    is_root: bool

    @functools.cached_property
    def kind(self) -> str:
        """The opcode, without the suffix of an asynchronous start."""
        return self.opcode.removesuffix("-start")

    @functools.cached_property
    def is_collective(self) -> bool:
        """True for collectives that wait for other ranks; False for the `-done` of an asynchronous one."""
        return self.kind in COLLECTIVES

    def called(self) -> list[str]:
        """Returns the names of the computations that it calls."""
        found = []
        for key in ("calls", "to_apply", "body", "condition", "branch_computations", "true_computation", "false_computation"):
            found += re.findall(r"%?([\w.\-]+)", self.attributes.get(key, ""))
        return found

    @property
    def trips(self) -> int | None:
        """The number of iterations of a loop, if XLA knows it."""
        found = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', self.attributes.get("backend_config", ""))
        return None if found is None else int(found[1])

    def groups(self, devices: int) -> list[list[int]]:
        """Returns the groups of communicating ranks, in the written order; for a permute pairs (from, to)."""
        if self.kind == "collective-permute":
            return [[int(a), int(b)] for a, b in re.findall(r"\{(\d+),(\d+)\}", self.attributes.get("source_target_pairs", ""))]
        text = self.attributes.get("replica_groups", "{}")
        if text in ("{}", "{{}}"):
            return [list(range(devices))]
        return replica_groups(text, self.attributes.get("device_ids"))

    def received_bytes(self, devices: int) -> int:
        """Returns the largest number of bytes that a rank receives; no rank receives data that it has."""
        groups = self.groups(devices)
        if self.kind == "collective-permute":
            return self.result_bytes if any(a != b for a, b in groups) else 0
        size = max(len(group) for group in groups)
        whole = self.result_bytes
        match self.kind:
            case "all-reduce":
                return 2 * whole * (size - 1) // size
            case "reduce-scatter":
                return whole * (size - 1)
            case _:
                return whole * (size - 1) // size

    @property
    def result_bytes(self) -> int:
        """The size of the result in bytes; without the operands that an asynchronous start also returns."""
        shapes = self.shapes
        if self.opcode.endswith("-start") and self.kind in ("all-gather", "collective-permute"):
            shapes = shapes[len(self.operands) : 2 * len(self.operands)]
        return sum(shape.bytes for shape in shapes)


@dataclasses.dataclass
class Computation:
    """A named sequence of instructions, by name and in order."""

    name: str
    instructions: dict[str, Instruction]

    @functools.cached_property
    def root(self) -> Instruction:
        """The instruction that computes its result."""
        return next(one for one in reversed(self.instructions.values()) if one.is_root)

    @functools.cached_property
    def parameters(self) -> list[Instruction]:
        """Its parameters, in order."""
        listed = [one for one in self.instructions.values() if one.opcode == "parameter"]
        return sorted(listed, key=lambda one: int(one.literal))

    @functools.cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """The instructions that read each instruction."""
        found: dict[str, list[Instruction]] = {name: [] for name in self.instructions}
        for one in self.instructions.values():
            for operand in dict.fromkeys(one.operands):
                found[operand].append(one)
        return found

    @functools.cached_property
    def text(self) -> str:
        """Its code without names: equal for computations that compute equal results."""
        numbers = {name: number for number, name in enumerate(self.instructions)}
        return ";".join(
            f"{one.opcode}{one.shapes}({[numbers[o] for o in one.operands]}){one.literal}{meaning(one)}"
            for one in self.instructions.values()
        )


def meaning(one: Instruction) -> str:
    """Returns the attributes that determine the result, without source locations and called computations."""
    left_out = {"metadata", "channel_id", "sharding", "backend_config", "frontend_attributes", "calls", "to_apply", "body", "condition"}
    return ",".join(f"{key}={value}" for key, value in sorted(one.attributes.items()) if key not in left_out)


class Module:
    """A compiled module."""

    def __init__(self, text: str) -> None:
        self.computations: dict[str, Computation] = {}
        self.tables: dict[str, dict[int, str]] = {}
        found = re.search(r"num_partitions=(\d+)", text.split("\n", 1)[0])
        self.devices = int(found[1]) if found else 1
        current: Computation | None = None
        table: dict[int, str] | None = None
        for line in text.splitlines():
            header = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{", line)
            if header:
                current = Computation(header[2], {})
                self.computations[current.name] = current
                if header[1]:
                    self.entry = current
            elif line.strip() in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                table = self.tables.setdefault(line.strip(), {})
            elif line.startswith("}"):
                current = None
            elif current is not None and " = " in line:
                one = _instruction(line)
                current.instructions[one.name] = one
            elif table is not None and current is None:
                entry = re.match(r"(\d+) (.*)", line.strip())
                if entry:
                    table[int(entry[1])] = entry[2]
        if not self.computations:
            raise refused("hlo", "not the text of a compiled module; give compiled.as_text()")

    def collectives(self, of: Computation | None = None, times: int = 1) -> Iterator[tuple[Instruction, Computation, int]]:
        """Yields every collective, its computation and its run count; loops of unknown length count once."""
        computation = self.entry if of is None else of
        for one in computation.instructions.values():
            if one.is_collective:
                yield one, computation, times
            elif one.opcode in ("while", "call", "conditional", "fusion", "async-start"):
                for name in one.called():
                    if name in self.computations:
                        yield from self.collectives(self.computations[name], times * (one.trips or 1))

    def received_bytes(self) -> int:
        """Returns the bytes that a device receives while the module runs once."""
        return sum(one.received_bytes(self.devices) * times for one, _, times in self.collectives())

    def source(self, one: Instruction) -> tuple[str, int] | None:
        """Returns the caller's file and line: the innermost frame outside of JAX and this package."""
        metadata = one.attributes.get("metadata", "")
        plain = re.search(r'source_file="([^"]*)".*?source_line=(\d+)', metadata)
        if plain and not _is_library(plain[1]):
            return plain[1], int(plain[2])
        frame = re.search(r"stack_frame_id=(\d+)", metadata)
        number = int(frame[1]) if frame else 0
        while number > 0:
            at = self._row("StackFrames", number)
            place = self._row("FileLocations", at.get("file_location_id", 0))
            file = self.tables.get("FileNames", {}).get(place.get("file_name_id", 0), "").strip('"')
            if file and not _is_library(file):
                return file, place.get("line", 0)
            # Parents are counted from 1; the default 1 means that the frame has no parent.
            number = at.get("parent_frame_id", 1) - 1
        return None

    def _row(self, table: str, number: int) -> dict[str, int]:
        text = self.tables.get(table, {}).get(number, "")
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", text)}


_LIBRARIES = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (jax.__file__, __file__))


def _is_library(file: str) -> bool:
    return os.path.abspath(file).startswith(_LIBRARIES) or file.startswith("<")


def replica_groups(text: str, devices: str | None = None) -> list[list[int]]:
    """Parses XLA's groups, each in its written order, which `reshard.ProcessGroups` does not retain.

    ```text
    {{0,1},{2,3}}     [4,2]<=[2,4]T(1,0)                                 lists; an iota, reshaped and transposed
    mesh['a'=4,'b'=2] {'b'}                                              along axes of a mesh
    mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b':(1)2}               of a mesh whose devices are in another order
    ```
    """
    if text.startswith("{"):
        return [[int(n) for n in group.split(",")] for group in re.findall(r"\{([\d,]+)\}", text)]
    if text.startswith("["):
        shape, _, order = text.partition("<=")
        return [[int(n) for n in row] for row in _iota(order).reshape([int(n) for n in re.findall(r"\d+", shape)])]
    if not text.startswith("mesh["):
        raise refused("hlo", f"unknown notation of XLA's groups: {text}")
    axes, _, along = (text if devices is None else f"{text.split(']', 1)[0]}] {devices.rpartition(' ')[2]}").partition("] ")
    sizes = [(name, int(size)) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)]
    count = math.prod(size for _, size in sizes)
    ids = np.arange(count) if devices is None else _iota(devices.removeprefix("(").partition(") {")[0])
    # For a part of an axis, use three dims: outside of the part, the part, and inside of it. The parts become
    # the last dims.
    shape_of: list[int] = []
    where: dict[str, list[tuple[int, int]]] = {}
    wanted = re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", along)
    cuts = {name: sorted({1, size} | {int(n) * m for k, p, q in wanted if k == name and p for n, m in ((p, 1), (p, int(q)))})
            for name, size in sizes}
    for name, _ in sizes:
        for outer, inner in zip(cuts[name], cuts[name][1:], strict=False):
            where.setdefault(name, []).append((outer, len(shape_of)))
            shape_of.append(inner // outer)
    taken = []
    for name, outer, size in wanted:
        begin, end = (int(outer), int(outer) * int(size)) if outer else (1, dict(sizes)[name])
        taken += [dim for cut, dim in where.get(name, []) if begin <= cut < end]
    rest = [dim for dim in range(len(shape_of)) if dim not in taken]
    members = math.prod(shape_of[dim] for dim in taken)
    return [[int(n) for n in row] for row in ids.reshape(shape_of).transpose([*rest, *taken]).reshape(-1, members)]


def _iota(text: str) -> Any:
    """Evaluates `[2,4]T(1,0)`: an iota in a box of these extents, transposed and flattened."""
    box, _, order = text.partition("T")
    shape = [int(n) for n in re.findall(r"\d+", box)]
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return numbers.transpose([int(n) for n in re.findall(r"\d+", order)] if order else None).reshape(-1)


def _closing(text: str, at: int) -> int:
    """Returns the index after the bracket that closes the one at `at`; brackets in quotes do not count."""
    depth = 0
    quoted = False
    for i in range(at, len(text)):
        c = text[i]
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        elif not quoted and c in "({[":
            depth += 1
        elif not quoted and c in ")}]":
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def _split(text: str) -> list[str]:
    """Splits a text at the commas outside of brackets and quotes."""
    parts, begin, i = [], 0, 0
    while i < len(text):
        if text[i] in "({[":
            i = _closing(text, i)
            continue
        if text[i] == '"':
            i = text.index('"', i + 1) + 1
            continue
        if text[i] == ",":
            parts.append(text[begin:i].strip())
            begin = i + 1
        i += 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


def _shapes(text: str) -> list[Shape]:
    found = []
    for dtype, dims in re.findall(r"([a-z]\w*)\[([\d,<=]*)\]", text):
        found.append(Shape(dtype, tuple(int(n.removeprefix("<=")) for n in dims.split(",") if n)))
    return found


def _instruction(line: str) -> Instruction:
    # Remove the indices of tuple elements, which XLA writes as comments.
    line = re.sub(r"/\*index=\d+\*/", "", line)
    name, rest = line.strip().split(" = ", 1)
    is_root = name.startswith("ROOT ")
    end = _closing(rest, 0) if rest.startswith("(") else re.search(r"\s", rest).start()  # type: ignore[union-attr]
    shape, rest = rest[:end], rest[end:].strip()
    at = rest.index("(")
    closed = _closing(rest, at)
    inside = rest[at + 1 : closed - 1]
    opcode = rest[:at]
    literal = inside if opcode in ("constant", "parameter") else ""
    operands = [] if literal or not inside else [part.split()[-1].lstrip("%") for part in _split(inside)]
    attributes: dict[str, str] = {}
    for part in _split(rest[closed:].lstrip(",")):
        key, _, value = part.partition("=")
        attributes[key] = value
    return Instruction(
        name.removeprefix("ROOT ").lstrip("%"), _shapes(shape), shape.startswith("("), opcode, operands, literal, attributes, is_root
    )
