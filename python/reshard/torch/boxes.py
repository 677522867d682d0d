"""The boxes of a transfer plan as views of tensors and of staging buffers, in buckets of one exchange each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from reshard.torch.described import TORCH_DTYPES, local_of

# A message has a multiple of these bytes, so that the boxes of any type in it are aligned.
_ALIGNED = 16


def view(tensor: torch.Tensor, offset: int, extents: list[int], strides: list[int]) -> torch.Tensor:
    """Returns elements of the memory that this rank has of a tensor, from an offset in that memory on."""
    local = local_of(tensor)
    return local.as_strided(extents, strides, local.storage_offset() + offset)


def converted(values: torch.Tensor, steps: list[str]) -> torch.Tensor:
    """Returns values in the last of several types, rounded to each of them in turn."""
    for name in steps:
        values = values.to(TORCH_DTYPES[name])
    return values


@dataclass
class Box:
    """A box of a plan: loops over a source and a target buffer."""

    peer: int
    source: str
    target: str
    cast: list[str]
    source_offset: int
    target_offset: int
    extents: list[int]
    source_strides: list[int]
    target_strides: list[int]
    # The offset in the bytes of all messages of a bucket.
    at: int = 0

    @classmethod
    def of(cls, one: dict[str, Any], peer: str) -> "Box":
        extents, sources, targets = ([loop[at] for loop in one["loops"]] for at in range(3))
        cast = one.get("cast", [])
        return cls(one[peer], one["source"], one["target"], cast, one["source_offset"], one["target_offset"], extents, sources, targets)

    @property
    def sent(self) -> int:
        """The index in `cast` of the type in which elements are sent: the first of the smallest."""
        sizes = [TORCH_DTYPES[name].itemsize for name in self.cast]
        return sizes.index(min(sizes))

    @property
    def dtype(self) -> torch.dtype:
        """The type in which elements are sent."""
        return TORCH_DTYPES[self.cast[self.sent]]

    @property
    def bytes(self) -> int:
        count = self.dtype.itemsize
        for extent in self.extents:
            count *= extent
        return count

    def source_view(self, held: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return view(held[self.source], self.source_offset, self.extents, self.source_strides)

    def target_view(self, held: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return view(held[self.target], self.target_offset, self.extents, self.target_strides)

    def staged(self, staging: torch.Tensor) -> torch.Tensor:
        return staging[self.at : self.at + self.bytes].view(self.dtype).view(self.extents)



@dataclass
class Bucket:
    """The boxes of some tensors of the target, which are one exchange."""

    sends: list[Box] = field(default_factory=list)
    receives: list[Box] = field(default_factory=list)
    send_bytes: list[int] = field(default_factory=list)
    receive_bytes: list[int] = field(default_factory=list)

    def assign_offsets(self, ranks: list[int]) -> None:
        """Assigns offsets in the messages of the ranks: wider types first, so that each box is aligned."""
        for boxes, sizes in ((self.sends, self.send_bytes), (self.receives, self.receive_bytes)):
            of_peer: dict[int, list[Box]] = {}
            for box in boxes:
                of_peer.setdefault(box.peer, []).append(box)
            at = 0
            for rank in ranks:
                begin = at
                for box in sorted(of_peer.get(rank, []), key=lambda box: -box.dtype.itemsize):
                    box.at, at = at, at + box.bytes
                at = -(-at // _ALIGNED) * _ALIGNED
                sizes.append(at - begin)


@dataclass
class Views:
    """Pairs of views, from which and to which a bucket is copied; `addresses` are those of the tensors."""

    addresses: list[int]
    to: list[torch.Tensor]
    from_: list[torch.Tensor]
    # Boxes with more than one conversion on this side, which need memory between them.
    slow: list[tuple[torch.Tensor, torch.Tensor, list[str]]]

    @classmethod
    def of(cls, addresses: list[int], boxes: list[Box], packs: bool, held: Mapping[str, torch.Tensor], staging: torch.Tensor) -> "Views":
        made = cls(addresses, [], [], [])
        for box in boxes:
            staged = box.staged(staging)
            to, of = (staged, box.source_view(held)) if packs else (box.target_view(held), staged)
            steps = box.cast[1 : box.sent + 1] if packs else box.cast[box.sent + 1 :]
            if len(steps) > 1:
                made.slow.append((to, of, steps))
            else:
                made.to.append(to)
                made.from_.append(of)
        return made

    def copy(self) -> None:
        if self.to:
            torch._foreach_copy_(self.to, self.from_)
        for to, of, steps in self.slow:
            to.copy_(converted(of, steps))


def in_buckets(sizes: Mapping[str, int], max_bytes: int) -> dict[str, int]:
    """Assigns names to buckets of at most `max_bytes`, or of one name, in their order."""
    of_name, number, filled = {}, 0, 0
    for name, size in sizes.items():
        if filled and filled + size > max_bytes:
            number, filled = number + 1, 0
        of_name[name] = number
        filled += size
    return of_name
