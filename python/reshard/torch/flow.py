"""The dataflow of a program on one rank: contents of memory, with their origin and their readers.

A content is the result of one write into a storage. Contents have numbers: equal ops of equally numbered contents
give equal numbers, so that equal numbers mean equal values; values are not compared.
"""

import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from reshard.torch.traffic import CollectiveKind, Traffic, named, tensors

# Ops that overwrite their target without reading it; so do those with an argument `out`.
_OVERWRITES = {"aten::copy_", "aten::fill_", "aten::zero_", "fsdp::all_gather_copy_in"}
# Written arguments that are not declared by the schema of an op.
_WRITES = {"fsdp::all_gather_copy_in": ("all_gather_output",)}
_COPIES = {"aten::clone", "aten::_to_copy", "aten::copy_"}
_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}
# Ops whose results are equal on ranks that have equal operands: no number among their arguments differs by rank.
_SAME = {
    *_PRODUCTS, *_COPIES, "aten::cat", "aten::add", "aten::sub", "aten::mul", "aten::div", "aten::neg", "aten::relu", "aten::gelu", "aten::silu",
    "aten::sigmoid", "aten::tanh", "aten::exp", "aten::rsqrt", "aten::mean", "aten::sum", "aten::_softmax", "aten::native_layer_norm",
    "aten::threshold_backward", "aten::_fused_rms_norm", "fsdp::split_with_sizes_copy",
}  # fmt: skip


# Calls after which all members have the same, and those whose result does not depend on this rank's input.
_EQUALIZES = {CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST}
_REDUCES = {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER}
_FOREIGN = {CollectiveKind.BROADCAST, CollectiveKind.GATHER, CollectiveKind.SCATTER, CollectiveKind.MESSAGES, CollectiveKind.REDUCE}


class ReadKind(Enum):
    """The use that an op makes of a content."""

    COMPUTE = "compute"
    COPY = "copy"
    ADD = "add"
    CALL = "call"


@dataclass(frozen=True)
class Region:
    """The elements of a storage that a tensor has, in elements of its type."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def numel(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def is_dense(self) -> bool:
        """True if it is one contiguous range in order."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True


@dataclass(eq=False)
class Read:
    """A read of a content by an op or a call."""

    time: int
    kind: ReadKind
    region: Region
    made: "tuple[Content, ...]"
    into: Region | None = None
    """For a copy: the region of the new content, element by element."""


@dataclass(eq=False)
class Call:
    """A collective call in the dataflow: its inputs and outputs with their regions."""

    time: int
    traffic: Traffic
    inputs: "tuple[tuple[Content, Region], ...]"
    outputs: "tuple[tuple[Content, Region], ...]" = ()
    key: Any = None
    """Equal keys mean equal results, if the other ranks run the same program."""


@dataclass(eq=False)
class Content:
    """The content of a storage after one op."""

    number: int
    time: int
    """The number of the op that wrote it; -1 if it was there before."""
    bytes: int
    replicated: frozenset[tuple[int, ...]] = frozenset()
    """The groups of ranks that all have this content."""
    reads: list[Read] = field(default_factory=list)
    call: Call | None = None
    storage: "_Storage | None" = None
    """Its storage, until it is overwritten."""

    def is_whole(self, region: Region) -> bool:
        """Returns True if a region has all elements."""
        return region.numel * region.itemsize == self.bytes and region.offset == 0


class _Storage:
    __slots__ = ("current", "held", "is_external", "reference")

    def __init__(self, reference: StorageWeakRef, current: Content, *, is_external: bool) -> None:
        self.reference, self.current, self.is_external = reference, current, is_external
        self.held: list[tuple[weakref.ref[torch.Tensor], Region]] = []


@dataclass(frozen=True)
class Product:
    """A matrix product: its operations, and the groups of ranks that compute the same."""

    time: int
    operations: int
    replicated: frozenset[tuple[int, ...]]


def region_of(tensor: torch.Tensor) -> Region:
    """Returns the elements of a tensor."""
    return Region(tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.itemsize)


class Flow:
    """The contents of all storages, and their readers, as ops report them."""

    def __init__(self) -> None:
        self.time = 0
        self.products: list[Product] = []
        self._storages: dict[int, _Storage] = {}
        self._numbers: dict[Any, int] = {}
        self._next = 0
        # The number of the results of ops that only allocate.
        self._blank = self._intern((self._intern("blank"), 0))

    def is_blank(self, content: Content) -> bool:
        """Returns True if a content is memory that no op has filled."""
        return content.number == self._blank

    def content(self, tensor: torch.Tensor) -> Content:
        """Returns the present content of a tensor's storage."""
        return self._storage(tensor).current

    def held(self, content: Content) -> list[Region]:
        """Returns the regions of a content that the program can still read: those of existing tensors."""
        if content.storage is None or content.storage.reference.expired():
            return []
        if content.storage.is_external:
            return [Region(0, (content.bytes,), (1,), 1)]  # tensors of it may exist that no op returned
        return [region for tensor, region in content.storage.held if _is_reachable(tensor)]

    def mark_replicated(self, tensor: torch.Tensor, members: Iterable[tuple[int, ...]]) -> None:
        """Notes that ranks of groups have the same tensor."""
        content = self.content(tensor)
        if content.is_whole(region_of(tensor)):
            content.replicated |= frozenset(members)

    def op(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any], made: Any) -> Product | None:
        """Notes an op that has run; returns its product, if it is one."""
        given = named(function, args, kwargs)
        results = tensors([made])
        used = [tensor for value in given.values() for tensor in tensors(value)]
        written = _written(function, given)
        into = {id(tensor) for tensor in written}
        name = function._schema.name
        sources = {_id(tensor) for tensor in used}
        if not written and results and all(_id(tensor) in sources for tensor in results):
            self._hold(results)  # views, and waits for a call
            return None
        self.time += 1
        overwrites = name in _OVERWRITES or "out" in given
        read = [(tensor, self.content(tensor), region_of(tensor)) for tensor in used if not (overwrites and id(tensor) in into)]
        targets = [*written, *(tensor for tensor in results if _id(tensor) not in sources)]
        number = self._number_of(function, given, into if overwrites else set())
        replicated = _replicated(given, read) if name in _SAME else frozenset()
        contents = []
        for at, tensor in enumerate(targets):
            key = self._intern((number, at))
            if name in _COPIES and len(read) == 1 and _is_same(read[0], tensor):
                key = read[0][1].number
            contents.append(self._write(tensor, key, replicated))
        self._read(name, given, read, targets, contents)
        self._hold(targets)
        if name not in _PRODUCTS:
            return None
        product = Product(self.time, 2 * read[-1][2].shape[-2] * results[0].numel(), replicated)
        self.products.append(product)
        return product

    def call(self, made: Traffic) -> Call:
        """Notes a collective that has been called."""
        self.time += 1
        inputs = tuple((self.content(tensor), region_of(tensor)) for tensor in made.inputs)
        key = (made.kind, made.group, made.reduction, made.arguments, tuple((content.number, _flat(region)) for content, region in inputs))
        is_known = made.kind not in _FOREIGN and (made.kind not in _REDUCES or made.reduction is not None)
        call = Call(self.time, replace(made, inputs=(), outputs=()), inputs, key=key if is_known else None)
        common = _common(inputs)
        if made.kind in _EQUALIZES:
            common |= {made.members}
        else:
            mine = set(made.members)
            common = frozenset(group for group in common if len(mine & set(group)) == 1)
        outputs = []
        for at, tensor in enumerate(made.outputs):
            content = self._write(tensor, self._fresh() if call.key is None else self._intern((key, at)), common)
            content.call = call
            outputs.append((content, region_of(tensor)))
        for content, region in inputs:
            content.reads.append(Read(self.time, ReadKind.CALL, region, tuple(content for content, _ in outputs)))
        call.outputs = tuple(outputs)
        self._hold(made.outputs)
        return call

    def _storage(self, tensor: torch.Tensor) -> _Storage:
        storage = tensor.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is None:
            content = Content(self._fresh(), -1, storage.nbytes())
            known = self._storages[storage._cdata] = _Storage(StorageWeakRef(storage), content, is_external=True)
            content.storage = known
        return known

    def _write(self, tensor: torch.Tensor, number: int, replicated: frozenset[tuple[int, ...]]) -> Content:
        """Sets the content of a tensor's storage; the elements outside of the tensor are those of the old content."""
        storage, region = tensor.untyped_storage(), region_of(tensor)
        content = Content(number, self.time, storage.nbytes(), replicated)
        known = self._storages.get(storage._cdata)
        if known is None:
            known = self._storages[storage._cdata] = _Storage(StorageWeakRef(storage), content, is_external=False)
        else:
            old = known.current
            old.storage = None
            if not content.is_whole(region):
                content.number, content.replicated = self._intern((number, old.number, region)), frozenset()
                old.reads.append(Read(self.time, ReadKind.COMPUTE, Region(0, (old.bytes,), (1,), 1), (content,)))
            known.current = content
        content.storage = known
        return content

    def _read(
        self, name: str, given: dict[str, Any], read: list[tuple[torch.Tensor, Content, Region]], targets: list[torch.Tensor], contents: list[Content]
    ) -> None:
        """Notes the reads of an op, and how their elements are found in its result."""
        regions = [region_of(tensor) for tensor in targets]
        whole = len(contents) == 1 and contents[0].is_whole(regions[0])
        kind = ReadKind.COMPUTE
        into: list[Region | None] = [None] * len(read)
        shapes = {region.shape for _, _, region in read}
        if whole and len(read) == 1 and name in _COPIES and shapes == {regions[0].shape}:
            kind, into = ReadKind.COPY, [regions[0]]
        elif whole and name == "aten::cat" and len({len(shape) for shape in shapes}) == 1:
            kind, into = ReadKind.COPY, _parts_of(regions[0], int(given.get("dim", 0)), [region for _, _, region in read])
        elif whole and name in ("aten::add", "aten::add_") and len(read) == 2 and len(shapes) == 1 and given.get("alpha", 1) == 1:
            kind = ReadKind.ADD
        for (_, content, region), part in zip(read, into, strict=True):
            content.reads.append(Read(self.time, kind, region, tuple(contents), part))

    def _hold(self, results: Iterable[torch.Tensor]) -> None:
        for tensor in results:
            self._storage(tensor).held.append((weakref.ref(tensor), region_of(tensor)))

    def _number_of(self, function: Any, given: dict[str, Any], skipped: set[int]) -> int:
        """Returns the number of an op's result: equal for equal ops of equal operands, and new if values are drawn."""
        seen = False

        def key(value: Any) -> Any:
            nonlocal seen
            if isinstance(value, torch.Tensor):
                if id(value) in skipped:
                    return region_of(value)
                seen = True
                return self.content(value).number, region_of(value), value.dtype
            if isinstance(value, list | tuple):
                return tuple(key(one) for one in value)
            # Objects such as generators have a state.
            return (type(value), value) if isinstance(value, int | float | str | bool | complex | torch.dtype) or value is None else self._fresh()

        operands = tuple((name, key(value)) for name, value in given.items())
        name = function._schema.name
        draws = torch.Tag.nondeterministic_seeded in function.tags or name.endswith("_like") or name.startswith("aten::new_")
        if "empty" in name:
            return self._intern("blank")  # so that equal parts make equal buffers
        return self._intern((name, function._overloadname, operands)) if seen and not draws else self._fresh()

    def _intern(self, key: Any) -> int:
        return self._numbers.setdefault(key, self._fresh())

    def _fresh(self) -> int:
        self._next += 1
        return self._next


def _is_reachable(reference: "weakref.ref[torch.Tensor]") -> bool:
    """Returns True if Python refers to a tensor.

    Threads of process groups refer to tensors for a while after their calls, without using them.
    """
    tensor = reference()
    # Two references are those of this function, and one is PyTorch's if it refers to the tensor too.
    return tensor is not None and sys.getrefcount(tensor) - 2 > (1 if tensor._use_count() > 1 else 0)


def _id(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _written(function: Any, given: dict[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that an op writes to, by its schema."""
    more = _WRITES.get(function._schema.name, ())
    names = [one.name for one in function._schema.arguments if one.name in more or (one.alias_info is not None and one.alias_info.is_write)]
    return tensors([given.get(name) for name in names])


def _flat(region: Region) -> tuple[Any, ...]:
    """Returns the elements of a call's operand, whose dims do not matter."""
    return (region.offset, region.numel, region.itemsize) if region.is_dense else (region.offset, region.shape, region.strides, region.itemsize)


def _is_same(read: tuple[torch.Tensor, Content, Region], target: torch.Tensor) -> bool:
    """Returns True if a copy has the source's elements in the source's order."""
    tensor, content, region = read
    into = region_of(target)
    return content.is_whole(region) and region.is_dense and into.is_dense and region.shape == into.shape and tensor.dtype == target.dtype


def _parts_of(whole: Region, dim: int, parts: list[Region]) -> list[Region | None]:
    """Returns the region of each operand of a concatenation in its result."""
    dim, begin, found = dim % len(whole.shape), 0, []
    for part in parts:
        found.append(Region(whole.offset + begin * whole.strides[dim], part.shape, whole.strides, whole.itemsize))
        begin += part.shape[dim]
    return list(found)


def _replicated(given: dict[str, Any], read: list[tuple[torch.Tensor, Content, Region]]) -> frozenset[tuple[int, ...]]:
    """Returns the groups of ranks that have all operands of an op, and so its result.

    A number may differ by rank: nothing is known then.
    """
    if any(isinstance(given.get(name), int | float) for name in ("other", "value", "scalar")):
        return frozenset()
    return _common([(content, region) for _, content, region in read])


def _common(of: Sequence[tuple[Content, Region]]) -> frozenset[tuple[int, ...]]:
    """Returns the groups of ranks that have all of these contents; parts may differ by rank."""
    each = [content.replicated if content.is_whole(region) else frozenset() for content, region in of]
    return frozenset.intersection(*each) if each else frozenset()
