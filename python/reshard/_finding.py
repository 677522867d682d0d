"""The findings of audits: communication or work that a program does not need."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum


class FindingKind(Enum):
    """The kind of waste that an audit found; the value is its name in a report."""

    REPEATED = "repeated"
    """A collective receives a value that this rank has received before, unchanged."""
    FULL_TENSOR_IN_LOOP = "full_tensor in a loop"
    """One line gathers the same DTensor by `full_tensor()` several times."""
    REGATHERED = "regathered"
    """FSDP2 releases the parameters of a module and gathers them next."""
    BETTER_PLAN = "better plan"
    """The plan of a DTensor's redistribution receives fewer bytes."""
    GATHERED_THEN_SLICED = "gathered, then sliced"
    """Only a part of the gathered elements is read."""
    REDUCED_THEN_SLICED = "reduced, then sliced"
    """Only a part of the reduced elements is read."""
    REDUCED_BEFORE_ADDED = "reduced before added"
    """Several values are reduced, and the results are only added."""
    REDUCED_AXIS_BY_AXIS = "reduced axis by axis"
    """A value is reduced over one group, and the result over another."""
    SMALL_REDUCTIONS = "small reductions"
    """Several small values that are ready at the same time are reduced one at a time."""
    POSTED_LATE = "posted late"
    """A collective could have been in flight during products that ran between its input and its call."""
    UNBALANCED = "unbalanced"
    """One sender of an exchange sends much more than the others."""
    REPLICATED_WORK = "replicated work"
    """All ranks of an axis compute the same product."""
    NEEDLESS = "needless"
    """All ranks of a collective have the result before it."""
    DOUBLED_REDUCTION = "doubled reduction"
    """Ranks that have the same partial value add it several times."""
    SAME_IN_LOOP = "same in loop"
    """A loop repeats a collective whose operand it does not change."""
    SENT_WIDE = "sent wide"
    """A value is converted to a wider type, and then sent."""
    FORGOTTEN_REDUCTION = "forgotten reduction"
    """A result is declared as a replica, and ranks have different numbers."""


@dataclass(frozen=True)
class Finding:
    """One waste: its kind and location, the possible savings of this rank, and the code to write."""

    kind: FindingKind
    message: str
    """One line: the values involved, and why they are not needed."""
    code: str
    """The code to write, a short snippet."""
    saved_bytes: int
    """The bytes that this rank would not receive, in all runs."""
    saved_us: float | None = None
    """The time that the cost model estimates for the savings; None if it has no estimate."""
    saved_operations: int = 0
    """The floating-point operations that this rank would not compute."""
    module: str | None = None
    """The path of the module, or of several, joined by commas; None outside of modules."""
    line: tuple[str, int] | None = None
    """The file and the line of the caller."""
    times: int = 1
    """The number of occurrences at this line."""

    def __str__(self) -> str:
        where = "?" if self.line is None else f"{os.path.basename(self.line[0])}:{self.line[1]}"
        of = f" {self.module}" if self.module else ""
        often = f" x{self.times}" if self.times > 1 else ""
        saved = [f"{self.saved_bytes:,} B"] if self.saved_bytes else []
        saved += [f"{self.saved_operations:,} operations"] if self.saved_operations else []
        saved += [f"{self.saved_us:.1f} us"] if self.saved_us and self.saved_us >= 0.05 else []
        gain = f", saves {', '.join(saved)}" if saved else ""
        return "\n".join([f"{where}{of}: {self.kind.value}{often}{gain}", f"    {self.message}", *(f"    > {line}" for line in self.code.splitlines())])
