"""The recorded calls that detectors search, and the occurrences of waste that they find."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reshard import Plan
from reshard._finding import FindingKind

from reshard.torch.flow import Call, Content, Flow, Region
from reshard.torch.traffic import CollectiveKind
from reshard.torch.where import Axes, Caller, Where

if TYPE_CHECKING:
    from reshard.torch.audit import Moved


@dataclass(eq=False)
class Redistribution:
    """A redistribution of a DTensor: its result, and a better plan if there is one."""

    result: tuple[Content, Region] | None = None
    better: Plan | None = None


@dataclass(eq=False)
class Traced:
    """A recorded call: its dataflow, its location, and the redistribution and the row that it belongs to."""

    call: Call
    where: Where
    caller: Caller
    redistribution: Redistribution | None
    row: "Moved | None" = None

    @property
    def kind(self) -> CollectiveKind:
        """The kind of the call."""
        return self.call.traffic.kind

    @property
    def received_bytes(self) -> int:
        """The bytes that this rank received."""
        return self.call.traffic.received_bytes


@dataclass(frozen=True)
class Exchange:
    """A collective for the cost model: its kind, its members, and the bytes of the global tensor."""

    kind: CollectiveKind
    members: tuple[int, ...]
    whole_bytes: int


@dataclass(frozen=True)
class Found:
    """One occurrence of a waste: the calls that it explains, and the exchanges before and after a repair."""

    kind: FindingKind
    message: str
    code: str
    calls: Sequence[Traced]
    saved: Sequence[int]
    """The saved bytes of each call."""
    before: Sequence[Exchange] = ()
    after: Sequence[Exchange] = ()


@dataclass(frozen=True)
class Trace:
    """All that the detectors read."""

    calls: Sequence[Traced]
    flow: Flow
    axes: Axes
    claimed: set[int]

    def open(self) -> Iterator[Traced]:
        """Yields the calls that no finding explains yet."""
        return (one for one in self.calls if id(one) not in self.claimed)

    def over(self, one: Traced) -> str:
        """Returns the axis of a call, or the number of its members."""
        return one.where.axis or self.axes.name(one.call.traffic.members)


def exchange(one: Traced) -> Exchange:
    """Returns a call as the cost model sees it."""
    made = one.call.traffic
    return Exchange(made.kind, made.members, max(size_of_regions(one.call.inputs), size_of_regions(one.call.outputs)))


def size_of_regions(of: Sequence[tuple[Content, Region]]) -> int:
    """Returns the bytes of regions."""
    return sum(region.numel * region.itemsize for _, region in of)
