"""The report of an audit of a compiled function."""

from __future__ import annotations

import dataclasses
import os

from reshard import Plan
from reshard._finding import Finding
from reshard._refusals import counted


@dataclasses.dataclass(frozen=True)
class RedistributionRow:
    """One collective of a compiled function."""

    kind: str
    """The kind: all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute .."""
    over: str
    """The mesh axes over which the ranks communicate, or the groups."""
    source: tuple[str, int] | None
    """The file and the line of the caller."""
    op_name: str
    """JAX's name of the operation."""
    times: int
    """The number of runs, loop iterations included."""
    received_bytes: int
    """The bytes that a device receives, in all runs."""
    bound_bytes: int
    """The bytes that a device would have to receive for the same result."""
    findings: tuple[Finding, ...]
    """The wasted communication, one finding per cause; several are alternatives, and the bound is the best."""
    plan: Plan | None
    """A better plan, if the better alternative is a plan."""

    def __str__(self) -> str:
        where = "?" if self.source is None else f"{os.path.basename(self.source[0])}:{self.source[1]}"
        often = f" x{self.times}" if self.times > 1 else ""
        head = f"{where}: {self.kind} over {self.over}{often}, {self.received_bytes:,} B (bound {self.bound_bytes:,} B)"
        return "\n".join([head, *(f"    {finding.message}" for finding in self.findings)])


@dataclasses.dataclass(frozen=True)
class Audit:
    """The communication of a compiled function."""

    lines: tuple[RedistributionRow, ...]
    """Its collectives, in the order in which they run."""
    forgotten: tuple[Finding, ...]
    """Results that are declared as replicas but differ among ranks."""

    @property
    def received_bytes(self) -> int:
        """The bytes that a device receives in all."""
        return sum(line.received_bytes for line in self.lines)

    @property
    def bound_bytes(self) -> int:
        """The bytes that a device would have to receive."""
        return sum(line.bound_bytes for line in self.lines)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings of the collectives, followed by the forgotten reductions."""
        return (*(finding for line in self.lines for finding in line.findings), *self.forgotten)

    def __str__(self) -> str:
        calls = sum(line.times for line in self.lines)
        total = f"{counted(calls, 'collective')}, {self.received_bytes:,} B (bound {self.bound_bytes:,} B), {counted(len(self.findings), 'finding')}"
        return "\n".join([*map(str, self.lines), *(finding.message for finding in self.forgotten), total])
